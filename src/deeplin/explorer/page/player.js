// Play, pause, step and speed of a training as an animation.
import { byId } from "./dom.js";

const DURATION = 6000; // milliseconds of a whole training at speed 1

export class Player {
  /** `move(frame)` shows a record (null: no playhead) and returns what to say about it. */
  constructor(move) {
    this.move = move;
    this.frames = 0;
    this.frame = null;
    this.playing = false;
    this.slider = byId("frame");
    this.button = byId("play");
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    byId("step").addEventListener("click", () => this._step(1));
    byId("back").addEventListener("click", () => this._step(-1));
    this.slider.addEventListener("input", () => {
      this.pause();
      this.go(this.slider.valueAsNumber);
    });
  }

  /** A new training with this many records: the playhead stays where it was in the run. */
  reset(frames) {
    const share = this.frame === null || this.frames < 2 ? 1 : this.frame / (this.frames - 1);
    this.frames = frames;
    this.slider.max = frames - 1;
    this.go(share >= 1 && !this.playing ? null : Math.round(share * (frames - 1)));
  }

  go(frame) {
    this.frame = frame;
    const shown = frame ?? this.frames - 1;
    this.slider.value = shown;
    const words = this.move(frame);
    byId("readout").textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
  }

  play() {
    this.playing = true;
    this.button.textContent = "❚❚ Pause";
    if (this.frame === null || this.frame >= this.frames - 1) this.go(0);
    this.place = this.frame;
    this.last = performance.now();
    requestAnimationFrame((now) => this._tick(now));
  }

  pause() {
    this.playing = false;
    this.button.textContent = "▶ Play";
  }

  _step(by) {
    this.pause();
    this.go(Math.min(Math.max((this.frame ?? this.frames - 1) + by, 0), this.frames - 1));
  }

  _tick(now) {
    if (!this.playing) return;
    const speed = Number(byId("speed").value);
    this.place += (Math.max(now - this.last, 0) * speed * (this.frames - 1)) / DURATION;
    this.last = now;
    const frame = Math.min(Math.floor(this.place), this.frames - 1);
    if (frame !== this.frame) this.go(frame);
    if (frame >= this.frames - 1) this.pause();
    else requestAnimationFrame((next) => this._tick(next));
  }
}

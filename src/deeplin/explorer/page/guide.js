// The guide: a story as steps (see, move, see again) that stays while inputs move and notices what is done.
import { byId, make } from "./dom.js";
import { checkClaim, summaryOf } from "./facts.js";
import { reference } from "./references.js";
import { settings } from "./settings.js";

const MARKS = { done: "✓", now: "●", later: "○" };

export class Guide {
  /** `open(values)` moves inputs, as a visitor would. */
  constructor(open) {
    this.open = open;
    this.name = "";
    byId("story-close").addEventListener("click", () => open({ story: "" }));
  }

  get preset() {
    return settings.presets[this.name];
  }

  /** Begin a story, or none; the one that is told goes on where it is. It is shown on its own tab. */
  tell(name, here) {
    byId("story").hidden = !name || !here;
    if (name === this.name) return;
    Object.assign(this, { name, done: 0, found: [], key: "", before: null });
    if (name) this._build();
  }

  /**
   * Look at a new picture: every step whose condition it meets is done, one after another. `key` stands for what
   * its numbers depend on; numbers of other settings or data are no longer shown.
   */
  notice(state, result, key) {
    const { steps } = this.preset;
    if (key !== this.key) Object.assign(this, { key, found: [] });
    for (let i = this.done; i < steps.length; i++) {
      const step = steps[i];
      const claim = step.claim && checkClaim(step.claim, state, result, this.before);
      this.found[i] = claim?.text ?? "";
      const met = step.claim ? claim?.holds : inside(state, step.when);
      if (!met) break;
      if (step.claim) this.before = summaryOf(state, result);
      this.done = i + 1;
    }
    this._show();
  }

  /** {name, steps: [{text, done, found}]} of the story that is shown; null without one. */
  get progress() {
    if (byId("story").hidden) return null;
    const steps = this.preset.steps.map((step, i) => ({ text: textOf(step), done: i < this.done, found: this.found[i] ?? "" }));
    return { name: this.name, steps };
  }

  _build() {
    const { title, steps, read } = this.preset;
    byId("story-title").textContent = title;
    this.items = steps.map((step) => {
      const found = make("small", {});
      const item = make("li", {}, make("i", { "aria-hidden": "true" }), make("b", {}, step.move ? "Move. " : "See. "), textOf(step), " ", found);
      if (step.move) {
        const move = make("button", { type: "button", className: "do" }, "Do it");
        move.addEventListener("click", () => this.open(step.to));
        item.append(move);
      }
      return { item, found };
    });
    byId("story-steps").replaceChildren(...this.items.map(({ item }) => item));
    byId("story-read").replaceChildren("Read on: ", ...read.flatMap((name, i) => {
      const { text, link } = reference(name);
      const part = link ? make("a", { href: link, target: "_blank", rel: "noreferrer" }, text) : make("span", {}, text);
      return i ? ["; ", part] : [part];
    }));
    this._show();
  }

  _show() {
    this.items.forEach(({ item, found }, i) => {
      const where = i < this.done ? "done" : i === this.done ? "now" : "later";
      item.className = `${where} ${this.preset.steps[i].move ? "move" : "see"}`;
      if (where === "now") item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
      item.firstChild.textContent = MARKS[where];
      const text = this.found[i];
      found.textContent = !text ? "" : where === "done" ? `Measured: ${text}.` : `Not seen in this picture: ${text}.`;
    });
    const left = this.items.length - this.done;
    byId("story-progress").textContent = left ? `${this.done} of ${this.items.length} steps done` : "All steps done";
  }
}

const textOf = (step) => step.see ?? step.move;
const inside = (state, when) => Object.entries(when).every(([name, [low, high]]) => state[name] >= low && state[name] <= high);

// A pen with the canvas' verbs that writes SVG, so that one drawing serves screen and file.

const escape = (text) => String(text).replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`);
const round = (value) => Math.round(value * 100) / 100;
const ANCHORS = { left: "start", center: "middle", right: "end" };
const BASELINES = { top: "hanging", middle: "central", alphabetic: "alphabetic" };

export class SvgPen {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [], path: "", clips: 0, stack: [] });
    this.state = {
      fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "11px system-ui, sans-serif",
      textAlign: "left", textBaseline: "alphabetic", dash: [], x: 0, y: 0, clip: null,
    };
    for (const name of ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "textBaseline"]) {
      Object.defineProperty(this, name, { get: () => this.state[name], set: (value) => { this.state[name] = value; } });
    }
  }

  save() { this.stack.push({ ...this.state }); }
  restore() { this.state = this.stack.pop(); }
  translate(x, y) { this.state.x += x; this.state.y += y; }
  setLineDash(dash) { this.state.dash = dash; }
  beginPath() { this.path = ""; }
  closePath() { this.path += "Z"; }
  moveTo(x, y) { this.path += `M${this._at(x, y)}`; }
  lineTo(x, y) { this.path += `L${this._at(x, y)}`; }
  rect(x, y, w, h) { this.path += `M${this._at(x, y)}h${round(w)}v${round(h)}h${round(-w)}Z`; }
  measureText(text) { return { width: 6 * text.length }; }
  clearRect() {}

  clip() {
    const id = `clip${++this.clips}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`);
    this.state.clip = id;
  }

  stroke() {
    const { strokeStyle, lineWidth, dash } = this.state;
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this._add(`<path d="${this.path}" fill="none" stroke="${strokeStyle}" stroke-width="${lineWidth}"${dashes}`);
  }

  fill() {
    this._add(`<path d="${this.path}" fill="${this.state.fillStyle}"`);
  }

  fillRect(x, y, w, h) {
    this.path = "";
    this.rect(x, y, w, h);
    this.fill();
  }

  strokeRect(x, y, w, h) {
    this.path = "";
    this.rect(x, y, w, h);
    this.stroke();
  }

  fillText(text, x, y) {
    const { font, fillStyle, textAlign, textBaseline } = this.state;
    const [at, up] = this._at(x, y).split(",");
    const anchor = `text-anchor="${ANCHORS[textAlign]}" dominant-baseline="${BASELINES[textBaseline]}"`;
    this._add(`<text x="${at}" y="${up}" style="font:${font}" fill="${fillStyle}" ${anchor}`, `${escape(text)}</text>`);
  }

  _at(x, y) {
    return `${round(x + this.state.x)},${round(y + this.state.y)}`;
  }

  _add(open, inside = null) {
    const { globalAlpha, clip } = this.state;
    const more = `${globalAlpha < 1 ? ` opacity="${globalAlpha}"` : ""}${clip ? ` clip-path="url(#${clip})"` : ""}`;
    this.parts.push(inside === null ? `${open}${more}/>` : `${open}${more}>${inside}`);
  }

  toString() {
    const { width, height } = this;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${this.parts.join("")}</svg>`;
  }
}

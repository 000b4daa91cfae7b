// One line chart on a canvas: curves, bands, level lines, a playhead, values on hover.
import { palette } from "./colors.js";
import { extent, format, scale } from "./scales.js";
import { Drawing } from "./surface.js";

const MARGIN = { left: 50, right: 12, top: 8, bottom: 34 };
const LABELED = 24; // the top margin with the name of the vertical axis in it
const FONT = "11px system-ui, sans-serif";

/**
 * A picture: {x: {values, label, log}, y: {log, ends, floor, label}, curves: [{name, color, values, x?, dash?,
 * width?, dots?}], levels: [{name, color, value, dash?}], ranges: [{name, color, low, high}], verticals:
 * [{name, color, value, dash?}], columns: [{color, from, to}], empty}. Colors are names of the palette,
 * or CSS colors; `empty` is the sentence shown where there is nothing to draw.
 */
export class Chart extends Drawing {
  constructor(canvas, tooltip) {
    super(canvas, tooltip);
    this.hovered = null;
    this.playhead = null;
    this.onopen = null;
    canvas.addEventListener("click", (event) => {
      if (this.onopen && this.scales) this.onopen(this.scales.x.value(event.offsetX));
    });
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => this._leave());
    canvas.addEventListener("blur", () => this._leave());
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  paint(pen, width, height) {
    const colors = palette();
    const { x, y } = this._scales(width, height);
    this.scales = { x, y };
    this._axes(pen, x, y, width, height, colors);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, this.top, width - MARGIN.left - MARGIN.right, height - this.top - MARGIN.bottom);
    pen.clip();
    const [top, bottom] = [this.top, height - MARGIN.bottom];
    for (const { color, from, to } of this.picture.columns ?? []) {
      pen.globalAlpha = 0.3;
      pen.fillStyle = paint(color, colors);
      pen.fillRect(x.at(from), top, x.at(to) - x.at(from), bottom - top);
      pen.globalAlpha = 1;
    }
    for (const part of this.picture.ranges ?? []) band(pen, part, x, y, colors, this.picture.x);
    for (const { value, color, dash } of this.picture.verticals ?? []) {
      if (!visible(value, x)) continue;
      stroke(pen, { color, dash, width: 1.5 }, colors);
      segment(pen, x.at(value), top, x.at(value), bottom);
      pen.setLineDash([]);
    }
    for (const curve of this.picture.curves) (curve.dots ? points : line)(pen, curve, x, y, colors, this.picture.x);
    for (const level of this.picture.levels ?? []) horizontal(pen, level, x, y, width, colors); // over runs that swing
    this._cursors(pen, x, height, colors);
    pen.restore();
    if (this._isEmpty(y)) this._explain(pen, width, height, colors);
  }

  get top() {
    return this.picture.y.label ? LABELED : MARGIN.top;
  }

  _isEmpty(y) {
    return this.picture.empty || !this.picture.curves.some((curve) => curve.values.some((value) => visible(value, y)));
  }

  /** The sentence that stands where there is nothing to draw, in lines that fit. */
  _explain(pen, width, height, colors) {
    const text = this.picture.empty ?? "Every value is 0: a logarithmic axis cannot show them.";
    Object.assign(pen, { font: "12px system-ui, sans-serif", fillStyle: colors.soft, textAlign: "center", textBaseline: "middle" });
    const lines = [""];
    for (const word of text.split(" ")) {
      if (pen.measureText(`${lines.at(-1)} ${word}`).width > width - MARGIN.left - 30) lines.push(word);
      else lines[lines.length - 1] = `${lines.at(-1)} ${word}`.trim();
    }
    lines.forEach((line, i) => pen.fillText(line, (MARGIN.left + width) / 2, height / 2 + 17 * (i - (lines.length - 1) / 2)));
  }

  _scales(width, height) {
    const { x, y, curves, levels = [], ranges = [], verticals = [] } = this.picture;
    const shown = x.log ? [x] : curves.map((curve) => ({ values: curve.x ?? x.values })); // a logarithmic axis begins with the records
    const across = [...shown.flatMap(({ values }) => ends(values, x.log)), ...verticals.map(({ value }) => value)];
    const floor = y.floor ?? -Infinity;
    const up = y.ends ?? extent(
      (function* () {
        for (const curve of curves) for (const value of curve.values) yield value > 0 ? Math.max(value, floor) : value;
        for (const level of levels) yield level.value;
        for (const range of ranges) { yield range.low; yield range.high; }
      })(),
      y.log,
    );
    return {
      x: scale(extent(across.length ? across : [0, 1], x.log, 0.02), [MARGIN.left, width - MARGIN.right], x.log),
      y: scale(up, [height - MARGIN.bottom, this.top], y.log),
    };
  }

  _axes(pen, x, y, width, height, colors) {
    const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, this.top, height - MARGIN.bottom];
    pen.font = FONT;
    pen.lineWidth = 1;
    pen.strokeStyle = colors.line;
    pen.fillStyle = colors.soft;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const tick of y.ticks) {
      const at = y.at(tick.value);
      if (at < top - 1 || at > bottom + 1) continue;
      segment(pen, left, at, right, at);
      pen.fillText(tick.label, left - 6, at);
    }
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const tick of x.ticks) {
      const at = x.at(tick.value);
      if (at < left - 1 || at > right + 1) continue;
      segment(pen, at, top, at, bottom);
      pen.fillText(tick.label, at, bottom + 5);
    }
    pen.fillText(this.picture.x.label, (left + right) / 2, bottom + 19);
    pen.textAlign = "left";
    if (this.picture.y.label) pen.fillText(this.picture.y.label, 6, 4);
    pen.strokeStyle = colors.frame;
    segment(pen, left, bottom, right, bottom);
    segment(pen, left, top, left, bottom);
  }

  _cursors(pen, x, height, colors) {
    const { picture } = this;
    const vertical = (value) => {
      const at = x.at(value);
      if (Number.isFinite(at)) segment(pen, at, this.top, at, height - MARGIN.bottom);
    };
    pen.setLineDash([]);
    pen.lineWidth = 1;
    if (this.playhead !== null && picture.x.values[this.playhead] !== undefined) {
      pen.strokeStyle = colors.text;
      vertical(picture.x.values[this.playhead]);
    }
    if (this.hovered === null) return;
    pen.strokeStyle = colors.soft;
    vertical(picture.x.values[this.hovered]);
  }

  // --- values on hover --------------------------------------------------------------------------

  _hover(event) {
    if (!this.scales || !this.picture) return;
    const wanted = this.scales.x.value(event.offsetX);
    const values = this.picture.x.values;
    let best = 0;
    for (let i = 1; i < values.length; i++) {
      if (Math.abs(values[i] - wanted) < Math.abs(values[best] - wanted)) best = i;
    }
    this._point(best, event.clientX, event.clientY);
  }

  _key(event) {
    if (!this.picture) return;
    const last = this.picture.x.values.length - 1;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this._leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = Math.min(Math.max((this.hovered ?? 0) + moves[event.key], 0), last);
    const box = this.canvas.getBoundingClientRect();
    this._point(next, box.left + this.scales.x.at(this.picture.x.values[next]), box.top + 20);
  }

  _point(index, clientX, clientY) {
    this.hovered = index;
    this.draw();
    this.tooltip.show(this.valuesAt(index), clientX, clientY);
  }

  /** Rows [name, value] of everything shown at a record. */
  valuesAt(index) {
    const { x, curves, levels = [] } = this.picture;
    const at = x.values[index];
    const rows = [[x.label, format(at, 6)]];
    for (const curve of curves) {
      if (!curve.name || curve.dots) continue;
      const value = curve.x ? interpolate(curve.x, curve.values, at) : curve.values[index];
      rows.push([curve.name, format(value, 5)]);
    }
    for (const level of levels) rows.push([level.name, format(level.value)]);
    return rows;
  }

  _leave() {
    if (this.hovered === null) return;
    this.hovered = null;
    this.tooltip.hide();
    this.draw();
  }
}

function ends(values, logarithmic) {
  const first = logarithmic ? values.find((value) => value > 0) : values[0];
  return [first, values[values.length - 1]];
}

function segment(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

const paint = (color, colors) => colors[color] ?? color;
const visible = (value, axis) => Number.isFinite(value) && (!axis.logarithmic || value > 0);

function stroke(pen, { color, width, dash }, colors) {
  pen.strokeStyle = paint(color, colors);
  pen.lineWidth = width ?? 2;
  pen.setLineDash(dash ?? []);
}

function points(pen, curve, x, y, colors) {
  pen.fillStyle = paint(curve.color, colors);
  const size = curve.dots;
  curve.values.forEach((value, i) => {
    if (visible(value, y) && visible(curve.x[i], x)) pen.fillRect(x.at(curve.x[i]) - size / 2, y.at(value) - size / 2, size, size);
  });
}

function line(pen, curve, x, y, colors, axis) {
  const across = curve.x ?? axis.values;
  stroke(pen, curve, colors);
  pen.globalAlpha = curve.alpha ?? 1;
  pen.beginPath();
  let down = false;
  for (let i = 0; i < curve.values.length; i++) {
    const seen = visible(curve.values[i], y) && visible(across[i], x);
    if (seen) {
      if (down) pen.lineTo(x.at(across[i]), y.at(curve.values[i]));
      else pen.moveTo(x.at(across[i]), y.at(curve.values[i]));
    }
    down = seen;
  }
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function band(pen, { low, high, color }, x, y, colors, axis) {
  const [from, to] = ends(axis.values, axis.log);
  if (!visible(low, y) || !visible(high, y)) return;
  pen.fillStyle = paint(color, colors);
  pen.globalAlpha = 0.18;
  pen.fillRect(x.at(from), y.at(high), x.at(to) - x.at(from), y.at(low) - y.at(high));
  pen.globalAlpha = 1;
}

function horizontal(pen, level, x, y, width, colors) {
  if (!visible(level.value, y)) return;
  stroke(pen, level, colors);
  segment(pen, MARGIN.left, y.at(level.value), width - MARGIN.right, y.at(level.value));
  pen.setLineDash([]);
}

function interpolate(across, values, at) {
  let i = 0;
  while (i + 1 < across.length - 1 && across[i + 1] < at) i++;
  if (across.length < 2) return values[0];
  const share = Math.min(Math.max((at - across[i]) / (across[i + 1] - across[i]), 0), 1);
  return values[i] * (1 - share) + values[i + 1] * share;
}

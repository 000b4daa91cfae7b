// One line chart on a canvas: curves, bands, level lines, a playhead, values on hover.
import { palette } from "./colors.js";
import { extent, format, scale } from "./scales.js";
import { Drawing } from "./surface.js";

const MARGIN = { left: 50, right: 12, top: 8, bottom: 34 };
const FONT = "11px system-ui, sans-serif";

/**
 * A picture: {x: {values, label, log}, y: {log, ends}, curves: [{name, color, values, x?, dash?,
 * width?}], bands: [{name, color, low, high, x?}], levels: [{name, color, value, dash?}], ranges:
 * [{name, color, low, high}]}. Colors are names of the palette, or CSS colors.
 */
export class Chart extends Drawing {
  constructor(canvas, tooltip) {
    super(canvas, tooltip);
    this.hovered = null;
    this.playhead = null;
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => this._leave());
    canvas.addEventListener("blur", () => this._leave());
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  /** Draw with any pen that knows the canvas' verbs (the screen's, a PNG's, an SVG's). */
  paint(pen, width, height) {
    const colors = palette();
    const { x, y } = this._scales(width, height);
    this.scales = { x, y };
    this._axes(pen, x, y, width, height, colors);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom);
    pen.clip();
    for (const part of [...(this.picture.ranges ?? []), ...(this.picture.bands ?? [])]) band(pen, part, x, y, colors, this.picture.x);
    for (const level of this.picture.levels ?? []) horizontal(pen, level, x, y, width, colors);
    for (const curve of this.picture.curves) line(pen, curve, x, y, colors, this.picture.x);
    this._cursors(pen, x, height, colors);
    pen.restore();
  }

  _scales(width, height) {
    const { x, y, curves, bands = [], levels = [], ranges = [] } = this.picture;
    const across = curves.flatMap((curve) => ends(curve.x ?? x.values, x.log));
    const up = y.ends ?? extent(
      (function* () {
        for (const curve of curves) yield* curve.values;
        for (const part of bands) { yield* part.low; yield* part.high; }
        for (const level of levels) yield level.value;
        for (const range of ranges) { yield range.low; yield range.high; }
      })(),
      y.log,
    );
    return {
      x: scale(extent(across.length ? across : [0, 1], x.log, 0.02), [MARGIN.left, width - MARGIN.right], x.log),
      y: scale(up, [height - MARGIN.bottom, MARGIN.top], y.log),
    };
  }

  _axes(pen, x, y, width, height, colors) {
    const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
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
    pen.strokeStyle = colors.frame;
    segment(pen, left, bottom, right, bottom);
    segment(pen, left, top, left, bottom);
  }

  _cursors(pen, x, height, colors) {
    const { picture } = this;
    const vertical = (value) => {
      const at = x.at(value);
      if (Number.isFinite(at)) segment(pen, at, MARGIN.top, at, height - MARGIN.bottom);
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
    const { x, curves, bands = [] } = this.picture;
    const at = x.values[index];
    const rows = [[x.label, format(at, 6)]];
    for (const curve of curves) {
      if (!curve.name) continue;
      const value = curve.x ? interpolate(curve.x, curve.values, at) : curve.values[index];
      rows.push([curve.name, format(value, 5)]);
    }
    for (const part of bands) rows.push([part.name, `${format(part.low[index])} to ${format(part.high[index])}`]);
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

function line(pen, curve, x, y, colors, axis) {
  const across = curve.x ?? axis.values;
  pen.strokeStyle = paint(curve.color, colors);
  pen.lineWidth = curve.width ?? 2;
  pen.setLineDash(curve.dash ?? []);
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
}

function band(pen, part, x, y, colors, axis) {
  const flat = typeof part.low === "number";
  const places = flat ? ends(axis.values, axis.log) : part.x ?? axis.values;
  const edge = (values, i) => (flat ? values : values[i]);
  const seen = Array.from(places, (_, i) => i).filter((i) => visible(edge(part.low, i), y) && visible(edge(part.high, i), y) && visible(places[i], x));
  if (seen.length < 2) return;
  pen.fillStyle = paint(part.color, colors);
  pen.globalAlpha = 0.18;
  pen.beginPath();
  seen.forEach((i, k) => (k ? pen.lineTo(x.at(places[i]), y.at(edge(part.high, i))) : pen.moveTo(x.at(places[i]), y.at(edge(part.high, i)))));
  for (const i of seen.reverse()) pen.lineTo(x.at(places[i]), y.at(edge(part.low, i)));
  pen.closePath();
  pen.fill();
  pen.globalAlpha = 1;
}

function horizontal(pen, level, x, y, width, colors) {
  if (!visible(level.value, y)) return;
  pen.strokeStyle = paint(level.color, colors);
  pen.lineWidth = level.width ?? 2;
  pen.setLineDash(level.dash ?? []);
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

// A heat map with a curve over it, a color bar, a framed cell, values on hover and click.
import { heat, palette } from "./colors.js";
import { scale } from "./scales.js";
import { Drawing } from "./surface.js";

const MARGIN = { left: 56, right: 70, top: 8, bottom: 36 };

/** Ends of the cells around their centers, half-way on the axis. */
function edges(centers, logarithmic) {
  const values = logarithmic ? Array.from(centers, Math.log) : Array.from(centers);
  const between = values.slice(1).map((value, i) => (value + values[i]) / 2);
  const all = [2 * values[0] - between[0], ...between, 2 * values.at(-1) - between.at(-1)];
  return logarithmic ? all.map(Math.exp) : all;
}

/**
 * Shows {columns, rates, values[column][rate], critical, labels, cell}. A value is a number for the ramp
 * or the name of a color; undefined where it is still being computed.
 */
export class HeatMap extends Drawing {
  constructor(canvas, tooltip) {
    super(canvas, tooltip);
    this.onopen = () => {};
    this.onmove = () => {};
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => tooltip.hide());
    canvas.addEventListener("click", (event) => {
      const cell = this._cellAt(event);
      if (cell) this.onopen(cell);
    });
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  paint(pen, width, height) {
    const colors = palette();
    const { columns, rates, values, critical, labels } = this.picture;
    const [across, up] = [edges(columns, false), edges(rates, true)];
    const x = scale([across[0], across.at(-1)], [MARGIN.left, width - MARGIN.right], false);
    const y = scale([up[0], up.at(-1)], [height - MARGIN.bottom, MARGIN.top], true);
    this.geometry = { across, up, x, y };
    const finite = values.flat().filter(Number.isFinite);
    const [low, high] = [Math.min(...finite, Infinity), Math.max(...finite, -Infinity)];
    const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
    values.forEach((column, i) => column.forEach((value, j) => {
      const [left, top] = [x.at(across[i]), y.at(up[j + 1])];
      const [right, bottom] = [x.at(across[i + 1]), y.at(up[j])];
      if (value === undefined) {
        pen.strokeStyle = colors.line; // computing: a stroke instead of a color
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(left, bottom);
        pen.lineTo(right, top);
        pen.stroke();
        return;
      }
      pen.fillStyle = colors[value] ?? heat(share(value));
      pen.fillRect(left, top, right - left + 0.5, bottom - top + 0.5);
    }));
    if (critical.every((value) => value > 0)) {
      for (const [shade, thick] of [["#ffffff", 6], [colors.green, 3]]) {
        pen.strokeStyle = shade;
        pen.lineWidth = thick;
        pen.beginPath();
        critical.forEach((value, i) => (i ? pen.lineTo(x.at(columns[i]), y.at(value)) : pen.moveTo(x.at(columns[i]), y.at(value))));
        pen.stroke();
      }
    }
    this._frame(pen, x, y, across, up);
    this._axes(pen, x, y, width, height, colors, labels);
    this._bar(pen, width, height, colors, low, high);
  }

  _frame(pen, x, y, across, up) {
    const { cell } = this.picture;
    if (!cell) return;
    const [i, j] = cell;
    for (const [shade, thick] of [["#000000", 4], ["#ffffff", 2]]) {
      pen.strokeStyle = shade;
      pen.lineWidth = thick;
      pen.strokeRect(x.at(across[i]), y.at(up[j + 1]), x.at(across[i + 1]) - x.at(across[i]), y.at(up[j]) - y.at(up[j + 1]));
    }
  }

  _axes(pen, x, y, width, height, colors, labels) {
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colors.soft;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of y.ticks) pen.fillText(tick.label, MARGIN.left - 6, y.at(tick.value));
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const tick of x.ticks) pen.fillText(tick.label, x.at(tick.value), height - MARGIN.bottom + 5);
    pen.fillText(labels.across, (MARGIN.left + width - MARGIN.right) / 2, height - MARGIN.bottom + 20);
    pen.textAlign = "left";
    pen.fillText("η", 6, MARGIN.top);
  }

  _bar(pen, width, height, colors, low, high) {
    if (!(high > low)) return;
    const [left, tall] = [width - MARGIN.right + 14, height - MARGIN.top - MARGIN.bottom];
    for (let i = 0; i < 40; i++) {
      pen.fillStyle = heat(1 - i / 39);
      pen.fillRect(left, MARGIN.top + (tall * i) / 40, 12, tall / 40 + 0.5);
    }
    pen.fillStyle = colors.soft;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) pen.fillText(String(Number((high + (low - high) * share).toFixed(1))).replace("-", "−"), left + 16, MARGIN.top + 6 + (tall - 12) * share);
  }

  _cellAt(event) {
    if (!this.geometry) return null;
    const { across, up, x, y } = this.geometry;
    const [a, b] = [x.value(event.offsetX), y.value(event.offsetY)];
    const i = across.findIndex((edge, k) => k > 0 && a < edge) - 1;
    const j = up.findIndex((edge, k) => k > 0 && b < edge) - 1;
    return i >= 0 && j >= 0 && a >= across[0] && b >= up[0] ? [i, j] : null;
  }

  _hover(event) {
    const cell = this._cellAt(event);
    if (!cell) return this.tooltip.hide();
    return this.tooltip.show(this.picture.describe(...cell), event.clientX, event.clientY);
  }

  _key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (!this.picture?.cell) return;
    if (event.key === "Enter") this.onopen(this.picture.cell);
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.onmove(moves[event.key]);
  }
}

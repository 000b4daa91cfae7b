// The network as a picture: its layers with their singular values, and how they are aligned.
import { layerColor, palette } from "./colors.js";
import { singularValues } from "./linear_algebra.js";
import { format } from "./scales.js";
import { Drawing } from "./surface.js";

const SIDE = 14;
const BOTTOM = 22;

/** Shows {widths, weights, alignment, step}: one box for each layer. */
export class NetworkPicture extends Drawing {
  constructor(canvas, tooltip) {
    super(canvas, tooltip);
    this.playhead = null;
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => tooltip.hide());
  }

  show(picture) {
    let at = 0;
    const values = picture.widths.slice(1).map((m, k) => {
      const n = picture.widths[k];
      const found = singularValues(picture.weights, at, m, n);
      at += m * n;
      return found;
    });
    super.show({ ...picture, values });
  }

  paint(pen, width, height) {
    const colors = palette();
    const { values, alignment } = this.picture;
    const depth = values.length;
    const room = (width - 2 * SIDE) / depth;
    const gap = Math.min(26, room * 0.3);
    const top = Math.max(...values.map((list) => list[0]), 1e-12);
    const tall = height - BOTTOM - 8;
    this.room = room;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "top";
    values.forEach((list, k) => {
      const left = SIDE + k * room + gap / 2;
      const wide = room - gap;
      pen.fillStyle = layerColor(k, depth);
      const bar = wide / list.length;
      list.forEach((value, i) => {
        const high = (value / top) * tall;
        pen.fillRect(left + i * bar, 8 + tall - high, Math.max(bar - 1, 0.5), high);
      });
      pen.strokeStyle = colors.frame;
      pen.lineWidth = 1;
      pen.strokeRect(left - 2, 6, wide + 4, tall + 4);
      pen.fillStyle = colors.soft;
      if (room > 16) pen.fillText(`W${subscript(k + 1)}`, left + wide / 2, height - BOTTOM + 6);
      if (k === 0) return;
      pen.lineWidth = 1 + 7 * alignment[k - 1];
      pen.strokeStyle = colors.blue;
      pen.globalAlpha = 0.2 + 0.8 * alignment[k - 1];
      pen.beginPath();
      pen.moveTo(left - gap + 2, 8 + tall / 2);
      pen.lineTo(left - 2, 8 + tall / 2);
      pen.stroke();
      pen.globalAlpha = 1;
    });
  }

  _hover(event) {
    if (!this.picture) return;
    const { values, alignment } = this.picture;
    const k = Math.min(Math.max(Math.floor((event.offsetX - SIDE) / this.room), 0), values.length - 1);
    const rows = [[`Layer ${k + 1}, singular values`, Array.from(values[k].slice(0, 6), (v) => format(v)).join(", ")]];
    if (k + 1 < values.length) rows.push(["alignment with the next", format(alignment[k])]);
    this.tooltip.show(rows, event.clientX, event.clientY);
  }
}

function subscript(number) {
  return String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
}

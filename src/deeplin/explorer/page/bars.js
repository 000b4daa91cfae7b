// Horizontal bars with their values.
import { palette } from "./colors.js";
import { format } from "./scales.js";
import { Drawing } from "./surface.js";

const LEFT = 148;
const RIGHT = 64;

export class Bars extends Drawing {
  paint(pen, width, height) {
    const colors = palette();
    const { bars } = this.picture;
    const [most, least] = [Math.max(...bars.map((bar) => bar.value), 1e-300), Math.min(...bars.map((bar) => bar.value), 0)];
    const scale = (width - LEFT - RIGHT) / (most - least);
    const zero = LEFT - least * scale;
    const room = (height - 16) / bars.length;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    bars.forEach(({ name, color, value }, i) => {
      const middle = 8 + room * (i + 0.5);
      const long = value * scale;
      pen.fillStyle = colors[color];
      pen.fillRect(Math.min(zero, zero + long), middle - room * 0.33, Math.max(Math.abs(long), 1), room * 0.66);
      pen.fillStyle = colors.text;
      pen.textAlign = "right";
      pen.fillText(name, LEFT - 8, middle);
      pen.textAlign = "left";
      pen.fillText(format(value), Math.max(zero, zero + long) + 6, middle);
    });
  }
}

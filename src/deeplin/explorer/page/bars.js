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
    const most = Math.max(...bars.map((bar) => bar.value), 1e-300);
    const room = (height - 16) / bars.length;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    bars.forEach(({ name, color, value }, i) => {
      const middle = 8 + room * (i + 0.5);
      const long = (Math.max(value, 0) / most) * (width - LEFT - RIGHT);
      pen.fillStyle = colors[color];
      pen.fillRect(LEFT, middle - room * 0.33, long, room * 0.66);
      pen.fillStyle = colors.text;
      pen.textAlign = "right";
      pen.fillText(name, LEFT - 8, middle);
      pen.textAlign = "left";
      pen.fillText(format(value), LEFT + long + 6, middle);
    });
  }
}

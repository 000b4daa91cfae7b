// A canvas at the resolution of the screen, and what every drawing on one does.

/** Clear the canvas and let `paint(pen, width, height)` draw in CSS pixels; hidden ones are left. */
function drawOn(canvas, paint) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width === 0 || height === 0) return;
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  paint(pen, width, height);
}

/** A picture on a canvas: `show` keeps and draws it, `paint(pen, width, height)` says how. */
export class Drawing {
  constructor(canvas, tooltip) {
    this.canvas = canvas;
    this.tooltip = tooltip;
    this.picture = null;
  }

  show(picture) {
    this.picture = picture;
    this.draw();
  }

  draw() {
    if (this.picture) drawOn(this.canvas, (pen, width, height) => this.paint(pen, width, height));
  }
}

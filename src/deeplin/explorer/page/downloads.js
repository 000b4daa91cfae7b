// A page's figures as one picture with its settings and a caption, and its numbers as a table.
import { palette } from "./colors.js";
import { make, save } from "./dom.js";
import { INPUTS } from "./state.js";

const CELL = { width: 400, height: 280, title: 22, key: 34 };
const STRIP = 200; // height of a figure that takes the whole width
const MARGIN = 20;
const LINE = 17;
const RESOLUTION = 2;
const SHOWN = {
  training: ["descent", "network", "data"], phase: ["phase", "descent", "network", "data"], orbits: ["orbits"],
  wide: ["wide", "population"], double_descent: ["population"],
};

/** The settings a page depends on, as one text. */
export function settingsText(state) {
  const groups = SHOWN[state.tab];
  const names = Object.keys(INPUTS).filter((name) => groups.includes(INPUTS[name].group));
  return names.map((name) => {
    const { label, options, kind } = INPUTS[name];
    const value = state[name];
    return `${label.replace(/ \(.*/, "")}: ${kind === "flag" ? (value ? "yes" : "no") : options ? options[value] : value}`;
  }).join("  ·  ");
}

function wrap(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(longer).width > width && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/** Size of the whole picture and its lines of text. */
function layout(pen, figures, state, verdict) {
  const columns = figures.length === 1 ? 1 : figures.length <= 4 ? 2 : 3;
  const cell = figures.length === 1 ? { ...CELL, width: 820, height: 460 } : CELL;
  const width = columns * cell.width + 2 * MARGIN;
  pen.font = "12px system-ui, sans-serif";
  const top = [`deeplin explorer, ${INPUTS.tab.options[state.tab].toLowerCase()}`];
  const bottom = [...wrap(pen, `${verdict.headline} ${verdict.text}`, width - 2 * MARGIN), ...wrap(pen, settingsText(state), width - 2 * MARGIN)];
  const head = MARGIN + 26;
  const small = figures.filter((figure) => !figure.wide);
  const rows = Math.ceil(small.length / columns) * cell.height;
  const boxes = figures.map((figure) => {
    const i = small.indexOf(figure);
    if (figure.wide) return { x: MARGIN, y: head + rows, width: columns * cell.width, height: STRIP };
    return { ...cell, x: MARGIN + (i % columns) * cell.width, y: head + Math.floor(i / columns) * cell.height };
  });
  const end = Math.max(...boxes.map((box) => box.y + box.height));
  return { boxes, width, height: end + bottom.length * LINE + MARGIN, top, bottom, end };
}

function compose(pen, figures, plan) {
  const colors = palette();
  const { boxes, width, height, top, bottom, end } = plan;
  pen.fillStyle = colors.paper;
  pen.fillRect(0, 0, width, height);
  const write = (text, x, y, font, color = colors.text) => {
    Object.assign(pen, { font, fillStyle: color, textAlign: "left", textBaseline: "top" });
    pen.fillText(text, x, y);
  };
  write(top[0], MARGIN, MARGIN - 6, "600 15px system-ui, sans-serif");
  figures.forEach((figure, i) => {
    pen.save();
    const box = boxes[i];
    pen.translate(box.x, box.y);
    write(figure.title, 6, 2, "600 12px system-ui, sans-serif");
    legend(pen, figure.legend, box, colors);
    pen.translate(0, CELL.title);
    figure.chart.paint(pen, box.width - 10, box.height - CELL.title - CELL.key - 10);
    pen.restore();
  });
  bottom.forEach((text, i) => write(text, MARGIN, end + i * LINE, "12px system-ui, sans-serif", colors.soft));
}

function legend(pen, items, box, colors) {
  let left = 50;
  let top = box.height - CELL.key - 4;
  pen.font = "11px system-ui, sans-serif";
  for (const { name, color, dash, band, solid } of items) {
    const long = 30 + pen.measureText(name).width;
    if (left + long > box.width && left > 50) [left, top] = [50, top + 16];
    pen.fillStyle = pen.strokeStyle = colors[color] ?? color;
    pen.globalAlpha = band && !solid ? 0.35 : 1;
    pen.lineWidth = 2;
    pen.setLineDash(dash ?? []);
    if (band || solid) pen.fillRect(left, top + 1, 14, 10);
    else {
      pen.beginPath();
      pen.moveTo(left, top + 6);
      pen.lineTo(left + 14, top + 6);
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    Object.assign(pen, { fillStyle: colors.soft, textAlign: "left", textBaseline: "top" });
    pen.fillText(name, left + 18, top);
    left += long;
  }
}

export function savePng(figures, state, verdict) {
  const canvas = make("canvas");
  const pen = canvas.getContext("2d");
  const plan = layout(pen, figures, state, verdict);
  canvas.width = plan.width * RESOLUTION;
  canvas.height = plan.height * RESOLUTION;
  pen.scale(RESOLUTION, RESOLUTION);
  compose(pen, figures, plan);
  canvas.toBlob((blob) => save(`deeplin-${state.tab}.png`, blob, "image/png"), "image/png");
}

export function saveCsv(rows, state) {
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  save(`deeplin-${state.tab}.csv`, rows.map((row) => row.map(cell).join(",")).join("\n") + "\n", "text/csv");
}

// The page of double descent: the risk of the minimum-norm solution against the number of inputs.
import { make } from "./dom.js";
import { Figure } from "./figure.js";
import { format } from "./scales.js";

export class DoubleDescentTab {
  constructor(parent, tooltip) {
    const grid = make("div", { className: "grid single" });
    parent.append(grid);
    this.figure = new Figure(grid, "double_descent", "Excess risk of the minimum-norm solution", tooltip);
  }

  get figures() {
    return [this.figure];
  }

  show(state, found) {
    const { dimensions, draws, expected, zero, n, d } = found;
    const mean = dimensions.map((_, i) => draws.reduce((sum, draw) => sum + draw[i], 0) / draws.length);
    const place = (better) => { const i = dimensions.reduce((best, _, k) => (better(mean[k], mean[best], dimensions[k]) ? k : best), 0); return { dimension: dimensions[i], risk: mean[i] }; };
    this.result = {
      ...found, mean, end: mean.at(-1), peak: place((a, b) => a > b), least: place((a, b) => a < b),
      first: place((a, b, m) => m < n && a < b), // the bottom of the first descent
    };
    const legend = [
      { name: "each draw of the samples", color: "blue" }, { name: "expectation", color: "green" },
      { name: "predicting zero", color: "gray", dash: [2, 3] }, { name: `n = ${n} samples`, color: "text", dash: [6, 4] },
    ];
    const curves = draws.map((values, k) => ({ name: `draw ${k + 1}`, color: "blue", values, width: 1 }));
    curves.push({ name: "expectation", color: "green", values: expected.map(({ bias, variance }) => bias + variance), width: 2.5 });
    this.figure.show(
      {
        x: { values: dimensions, label: "inputs used d′ (the others act as noise)", log: true }, y: { log: true }, curves,
        levels: [{ name: "predicting zero", color: "gray", value: zero, dash: [2, 3] }],
        verticals: [{ name: "n", value: n, color: "text", dash: [6, 4] }],
      },
      { legend, words: `peaks at ${this.result.peak.dimension} inputs` },
    );
    const { peak, least, end } = this.result;
    return {
      level: "good", critical: null,
      headline: `The mean of ${draws.length} draws peaks at ${peak.dimension} inputs for ${n} samples and falls to ${format(end)} at ${d}.`,
      text: `Its least value is ${format(least.risk)} at ${least.dimension} inputs; predicting zero costs ${format(zero)}.`,
    };
  }

  csv() {
    const { dimensions, draws, expected } = this.result;
    const rows = [["dimension", "expected_bias", "expected_variance", ...draws.map((_, k) => `draw_${k + 1}`)]];
    dimensions.forEach((m, i) => rows.push([m, expected[i].bias, expected[i].variance, ...draws.map((draw) => draw[i])]));
    return rows;
  }
}

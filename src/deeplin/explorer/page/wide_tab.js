// The page of wide networks: benign overfitting at any width.
import { Bars } from "./bars.js";
import { make } from "./dom.js";
import { Figure } from "./figure.js";
import { format } from "./scales.js";
import { describeWide } from "./verdict.js";

export class WideTab {
  constructor(parent, tooltip) {
    const grid = make("div", { className: "grid two" });
    parent.prepend(grid);
    this.loss = new Figure(grid, "wide_loss", "Training loss (mean square)", tooltip);
    this.distance = new Figure(grid, "wide_distance", "‖Θ − Θ_min‖² and ‖Θ_⊥‖²", tooltip);
    this.spectrum = new Figure(grid, "wide_spectrum", "Spectrum λ_j and effective ranks", tooltip);
    this.parts = new Figure(grid, "wide_parts", "Excess risk and its parts", tooltip, Bars);
  }

  get figures() {
    return [this.loss, this.distance, this.spectrum, this.parts];
  }

  show(state, result) {
    Object.assign(this, { state, result });
    const { records } = result;
    const x = { values: records.step, label: "steps", log: true };
    const y = { log: true };
    this.loss.show(
      { x, y, curves: [{ name: "loss", color: "blue", values: records.loss }], levels: [{ name: "predicting zero", color: "gray", dash: [2, 3], value: result.zeroLoss }] },
      { legend: [{ name: "trained network", color: "blue" }, { name: "predicting zero (min-norm interpolant: 0)", color: "gray", dash: [2, 3] }], words: `ends at ${format(result.loss)} after ${result.steps} steps` },
    );
    const two = [{ name: "‖Θ − Θ_min‖²", color: "blue" }, { name: "‖Θ_⊥‖², outside the data", color: "orange" }];
    this.distance.show(
      { x, y, curves: [{ ...two[0], values: records.distance }, { ...two[1], values: records.perpendicular }] },
      { legend: two, words: `ends at ${format(result.distance)}` },
    );
    this._spectrum();
    const bars = [
      { name: "predicting zero", color: "gray", value: result.zeroRisk },
      { name: "min-norm interpolant", color: "green", value: result.interpolantRisk },
      { name: "trained network", color: "blue", value: result.risk },
      { name: "= bias", color: "part", value: result.bias },
      { name: "+ noise fitted", color: "part", value: result.noise },
      { name: "+ Θ_⊥ (Ξ)", color: "orange", value: result.xi },
      { name: "+ cross terms", color: "part", value: result.cross },
    ];
    this.parts.show({ bars }, { words: bars.map(({ name, value }) => `${name} ${format(value)}`).join(", ") });
    return describeWide(state, result);
  }

  _spectrum() {
    const { spectrum, ranks, index } = this.result;
    const values = Array.from(spectrum, (_, j) => j + 1);
    const legend = [{ name: "eigenvalue λ_j", color: "text" }, { name: "effective rank of the tail from j", color: "green" }];
    const curves = [{ ...legend[0], values: Array.from(spectrum) }, { ...legend[1], values: Array.from(ranks) }];
    if (index >= 0) {
      const mark = { name: `k = ${index}`, color: "gray", dash: [6, 4] };
      legend.push(mark);
      curves.push({ ...mark, name: "", x: [index + 1, index + 1], values: [spectrum.at(-1), Math.max(...ranks)] });
    }
    this.spectrum.show(
      { x: { values, label: "j", log: true }, y: { log: true }, curves },
      { legend, words: index >= 0 ? `k = ${index}` : "no flat tail" },
    );
  }

  csv() {
    const { records } = this.result;
    const names = ["step", "loss", "distance", "perpendicular"];
    return [names, ...records.step.map((_, i) => names.map((name) => records[name][i]))];
  }
}

// The page of wide networks: benign overfitting at any width.
import { Bars } from "./bars.js";
import { byId, make, table } from "./dom.js";
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
    const two = [{ name: "‖Θ − Θ_min‖²", color: "blue" }, { name: "‖Θ_⊥‖² (stays)", color: "orange" }];
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
    byId("numbers").replaceChildren(table(this._numbers()));
    return describeWide(state, result);
  }

  _spectrum() {
    const { spectrum, ranks, index } = this.result;
    const values = Array.from(spectrum, (_, j) => j + 1);
    const legend = [{ name: "λ_j", color: "text" }, { name: "r_{j−1}", color: "green" }];
    const curves = [{ ...legend[0], values: Array.from(spectrum) }, { ...legend[1], values: Array.from(ranks.small) }];
    if (index >= 0) {
      const mark = { name: "k", color: "gray", dash: [6, 4] };
      legend.push(mark);
      curves.push({ ...mark, name: "", x: [index + 1, index + 1], values: [spectrum.at(-1), Math.max(...ranks.small)] });
    }
    this.spectrum.show(
      { x: { values, label: "j", log: true }, y: { log: true }, curves },
      { legend, words: index >= 0 ? `k = ${index}` : "no flat tail" },
    );
  }

  _numbers() {
    const { result } = this;
    const { bound, ranks, index: k } = result;
    const rows = [
      ["Excess risk: trained, interpolant, predicting zero", [result.risk, result.interpolantRisk, result.zeroRisk].map((value) => format(value, 4)).join(", ")],
      ["Squared distance to Θ_min", format(result.distance, 4)],
      ["‖Θ_⊥‖", format(result.perpendicularNorm, 4)],
      ["Conditional variance σ²q·Tr C (any interpolating network)", format(result.variance, 4)],
      ["BO-L4.2: risk ≤", `${format(result.risk, 4)} ≤ ${format(result.riskBound, 4)}`],
      ["k (BO-D2.2)", bound ? String(k) : "∞: no flat tail"],
    ];
    if (!bound) return rows;
    const total = bound.bias + bound.variance + bound.xi;
    return [
      ...rows,
      ["s_k, r_k, R_k", [ranks.tails[k], ranks.small[k], ranks.large[k]].map((value) => format(value, 4)).join(", ")],
      ["BO-T3.1 at c = 1: bias + variance + Ξ", `${format(bound.bias)} + ${format(bound.variance)} + ${format(bound.xi)} = ${format(total)}`],
      ["Smallest c for which it holds", format(result.risk / total)],
    ];
  }

  csv() {
    const { records } = this.result;
    const names = ["step", "loss", "distance", "perpendicular"];
    return [names, ...records.step.map((_, i) => names.map((name) => records[name][i]))];
  }
}

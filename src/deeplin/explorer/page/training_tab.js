// The training page: every run's whole way, its sharpness, the theory's lines, the layers.
import { layerColor } from "./colors.js";
import { make, table } from "./dom.js";
import { Figure } from "./figure.js";
import { NetworkPicture } from "./network_picture.js";
import { format } from "./scales.js";
import { describe, edgeName } from "./verdict.js";

const CURVES = { sharpness: "Sharpness", gap: "Risk above its minimum, R − R_min", distance: "Squared distance ‖Θ − Θ*‖²" };
const LAYERS = {
  singular: "Largest singular value of each layer",
  norms: "Norm ‖W_k‖ of each layer",
  alignment: "Alignment of neighboring layers",
};
const FLOOR = 1e-13; // of the start: what is below is rounding, and would hide what is above
const FIRST = { name: "first run", color: "blue" };
const OTHERS = { name: "other runs", color: "blue", width: 1, alpha: 0.6 };
const FLOW = { name: "its gradient flow", color: "gray", dash: [6, 4] };
const ZERO = { name: "predicting zero", color: "gray", dash: [2, 3], width: 1.5 };

export class TrainingTab {
  constructor(parent, tooltip) {
    const grid = make("div", { className: "grid" });
    parent.append(grid);
    this.curves = Object.fromEntries(Object.entries(CURVES).map(([name, title]) => [name, new Figure(grid, name, title, tooltip)]));
    this.network = new Figure(grid, "network", "The network at the playhead", tooltip, NetworkPicture);
    this.layers = Object.fromEntries(Object.entries(LAYERS).map(([name, title]) => [name, new Figure(grid, name, title, tooltip)]));
    this.values = make("div", { id: "values" });
    parent.append(this.values);
    this.frame = null;
  }

  get figures() {
    return [...Object.values(this.curves), ...Object.values(this.layers), this.network];
  }

  /** Show a training; its verdict. */
  show(state, result) {
    Object.assign(this, { state, result });
    const x = this._across(state, result);
    for (const name of Object.keys(CURVES)) this._curve(name, x);
    for (const name of Object.keys(LAYERS)) this._layer(name, x);
    this.at(this.frame === null ? null : Math.min(this.frame, x.values.length - 1), false);
    this.values.replaceChildren(table(this._values()));
    return describe(state, result);
  }

  /** What the page itself computes about this training: the theory's values, and what flow conserves along the first run. */
  _values() {
    const { theory, threshold, conserved, linear } = this.result;
    const rows = [[`${edgeName(this.state)}: above it a minimum is unstable`, format(threshold, 6)]];
    if (theory) rows.push(["S_min: least sharpness of a minimizer (X-2, X-7)", format(theory.exact, 6)]);
    if (theory?.lower) rows.push(["its bounds in the paper (FM-T2)", `${format(theory.lower, 6)} to ${format(theory.upper, 6)}`]);
    if (theory?.balanced) rows.push(["S_bal: where a vanishing start ends (X-3)", format(theory.balanced, 6)]);
    if (theory?.critical) rows.push(["critical learning rate", format(theory.critical, 6)]);
    if (linear && conserved) {
      rows.push(["Wₖ₊₁ᵀWₖ₊₁ − WₖWₖᵀ at the start (largest norm), which flow conserves", format(conserved.start, 4)]);
      rows.push(["its largest change in the first run", format(conserved.change, 4)]);
    }
    return rows;
  }

  /** Move the playhead to a record (null: the end, without a mark). */
  at(frame, redraw = true) {
    this.frame = frame;
    const last = this.result.layers.weights.length - 1;
    const shown = Math.min(frame ?? last, last);
    for (const figure of [...Object.values(this.curves), ...Object.values(this.layers)]) {
      const changed = figure.chart.playhead !== frame;
      figure.chart.playhead = frame;
      if (redraw || changed) figure.chart.draw();
    }
    const { weights, alignment, singular } = this.result.layers;
    const step = this.result.steps[shown];
    this.network.show(
      { widths: this.result.widths, weights: weights[shown], alignment: alignment[shown], step },
      {
        title: `The network of the first run at step ${format(step, 6)}`,
        words: `largest singular values ${singular[shown].map((v) => format(v)).join(", ")}`,
        legend: [{ name: "bars: singular values", color: "gray", band: true }, { name: "links: alignment", color: "blue" }],
      },
    );
    return this._readout(shown);
  }

  _readout(frame) {
    const { runs, linear, steps } = this.result;
    const run = runs[0];
    const parts = [`step ${format(steps[frame], 6)}`, `S = ${format(run.sharpness[frame])}`];
    parts.push(linear ? `R − R_min = ${format(run.gap[frame])}` : `R = ${format(run.risk[frame])}`);
    return `${parts.join(", ")} (first run)`;
  }

  _across(state, { steps }) {
    const log = state.horizontal_scale === "log";
    const at = (step) => (log ? step + 1 : step); // so that the start has a place on a logarithmic axis
    return { values: steps.map(at), at, label: log ? "steps + 1" : "steps", log };
  }

  _curve(name, x) {
    const { state, result } = this;
    const key = result.linear ? name : { gap: "risk", distance: "distance" }[name] ?? name;
    const several = result.runs.length > 1;
    const first = several ? FIRST : { ...FIRST, name: "run" };
    const legend = several ? [first, OTHERS] : [first];
    const curves = result.runs.slice(1).map((run, i) => ({ ...OTHERS, name: i < 5 ? `run ${i + 2}` : "", values: run[key] }));
    if (result.flow) {
      curves.push({ ...FLOW, x: result.flow.steps.map(x.at), values: result.flow[key] });
      legend.push(FLOW);
    }
    curves.push({ ...first, values: result.runs[0][key] });
    const floor = name === "sharpness" ? null : FLOOR * result.runs[0][key]?.[0];
    const picture = { x, y: { log: state.vertical_scale === "log", floor }, curves, levels: [], ranges: [] };
    if (name === "sharpness") this._lines(picture, legend);
    else this._baselines(name, picture, legend);
    if (name === "distance" && !result.linear) picture.empty = "A network with an activation is no single linear map: there is no Θ to measure a distance with.";
    if (name === "distance" && result.separable) picture.empty = "A linear map separates the classes: the loss has no minimum, so there is nothing to measure a distance from.";
    const values = result.runs[0][key];
    const title = name !== "gap" || (result.linear && !result.separable) ? CURVES[name] : result.linear ? "Risk R (it has no minimum)" : "Risk R";
    this.curves[name].show(picture, { legend, title, words: `first run from ${format(values[0])} to ${format(values.at(-1))}` });
  }

  /** What the zero map costs and, where the risk itself is shown, least squares. */
  _baselines(name, picture, legend) {
    const { linear, zeroRisk, zeroDistance, minimalRisk, separable } = this.result;
    if (name === "distance") {
      if (!linear || separable) return;
      picture.levels.push({ ...ZERO, value: zeroDistance });
    } else {
      picture.levels.push({ ...ZERO, value: linear ? zeroRisk - minimalRisk : zeroRisk });
      if (!linear) {
        picture.levels.push({ name: "least squares", color: "green", value: minimalRisk });
        legend.push({ name: "least squares, minimum norm", color: "green" });
      }
    }
    legend.push(linear ? { ...ZERO, name: "predicting zero (best linear map: 0)" } : ZERO);
  }

  /** The level lines of the sharpness picture. */
  _lines(picture, legend) {
    const { theory, threshold } = this.result;
    picture.levels.push({ name: edgeName(this.state), color: "purple", value: threshold });
    legend.push({ name: edgeName(this.state), color: "purple" });
    if (!theory) return;
    if (theory.lower) {
      picture.ranges.push({ name: "bounds of S_min", color: "green", low: theory.lower, high: theory.upper });
      legend.push({ name: "bounds of S_min", color: "green", band: true });
    }
    picture.levels.push({ name: "S_min", color: "green", value: theory.exact });
    legend.push({ name: "S_min", color: "green" });
    if (theory.balanced) {
      picture.levels.push({ name: "S_bal", color: "green", value: theory.balanced, dash: [2, 3] });
      legend.push({ name: "S_bal", color: "green", dash: [2, 3] });
    }
  }

  _layer(name, x) {
    const rows = this.result.layers[name];
    const depth = this.result.widths.length - 1;
    const count = rows[0].length;
    const curves = Array.from({ length: count }, (_, k) => ({
      name: count <= 12 ? (name === "alignment" ? `${k + 1}–${k + 2}` : `layer ${k + 1}`) : "",
      color: layerColor(k, depth), values: rows.map((row) => row[k]), width: 1.5,
    }));
    const y = name === "alignment" ? { log: false, ends: [-0.02, 1.04] } : { log: this.state.vertical_scale === "log" };
    const legend = depth === 1 ? [] : [
      { name: name === "alignment" ? "first pair" : "first layer", color: layerColor(0, depth) },
      { name: name === "alignment" ? "last pair of the first run" : "last layer of the first run", color: layerColor(count - 1, depth) },
    ];
    const empty = count ? null : "One layer has no neighbor to be aligned with.";
    this.layers[name].show({ x, y, curves, empty }, { legend, words: `first run, ${count} curves` });
  }

  /** Rows for the CSV file: a row for each record and run, layers of the first run. */
  csv() {
    const { runs, steps, layers } = this.result;
    const names = ["risk", "gap", "distance", "sharpness"].filter((name) => runs[0][name].length);
    const extra = Object.keys(LAYERS).flatMap((name) => layers[name][0].map((_, k) => [name, k]));
    const rows = [["step", "run", ...names, ...extra.map(([name, k]) => `${name}_${k + 1}`)]];
    steps.forEach((step, i) => runs.forEach((run, index) => {
      const own = extra.map(([name, k]) => (index === 0 ? layers[name][i]?.[k] ?? "" : ""));
      rows.push([step, index, ...names.map((name) => run[name][i] ?? ""), ...own]);
    }));
    return rows;
  }
}

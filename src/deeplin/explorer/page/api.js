// window.deeplin: the numerics of the page for programs, in the library's terms.
import { ActivationModel } from "./activations.js";
import { descend } from "./descent.js";
import { LogisticModel, labelsOf, logisticProblem } from "./logistic.js";
import { LinearModel } from "./network.js";
import { fromData } from "./problem.js";
import { Random } from "./random.js";
import { SharpnessTracker } from "./sharpness.js";
import { minimalSharpness, stabilityThreshold } from "./theory.js";

const EXACT = { tolerance: 1e-9, most: 2000 };

function matrix(name, rows) {
  if (!Array.isArray(rows) || rows.length === 0) throw new TypeError(`${name} is empty; pass rows of numbers.`);
  const table = rows.map((row) => (Array.isArray(row) || ArrayBuffer.isView(row) ? Array.from(row) : [row]));
  const width = table[0].length;
  const flat = Float64Array.from(table.flat());
  if (flat.length !== width * table.length || !flat.every(Number.isFinite)) {
    throw new TypeError(`${name} is not a table of finite numbers with rows of one length.`);
  }
  return { flat, rows: table.length, columns: width };
}

/** The problem of nested arrays X (n×d) and y (n or n×q); `loss` is "squared" or "logistic". */
function problemOf({ X, y, loss = "squared" }) {
  const [inputs, targets] = [matrix("X", X), matrix("y", y)];
  if (inputs.rows !== targets.rows) {
    throw new TypeError(`X has ${inputs.rows} rows and y ${targets.rows}; pass as many of both.`);
  }
  if (loss === "squared") return fromData(inputs.flat, targets.flat, inputs.rows, inputs.columns, targets.columns);
  if (loss !== "logistic") throw new TypeError(`loss is “${loss}”; pass "squared" or "logistic".`);
  const labels = targets.columns === 1 ? labelsOf(targets.flat) : null;
  if (!labels) throw new TypeError("y is not one column of two distinct values; the logistic loss needs two classes.");
  return logisticProblem(inputs.flat, labels, inputs.rows, inputs.columns);
}

/** Model and flat weights of nested layers [W_1, …, W_L], a read-out p and an activation. */
function modelOf(problem, { weights, readout = null, activation = "linear" }) {
  if (!Array.isArray(weights) || weights.length === 0) throw new TypeError("weights is empty; pass [W_1, …, W_L].");
  const layers = weights.map((layer, k) => matrix(`weights[${k}]`, layer));
  const widths = [layers[0].columns, ...layers.map((layer) => layer.rows)];
  layers.forEach((layer, k) => {
    if (layer.columns !== widths[k]) throw new TypeError(`weights[${k}] has ${layer.columns} columns; the layer below gives ${widths[k]}.`);
  });
  if (widths[0] !== problem.d) throw new TypeError(`weights[0] has ${widths[0]} columns and X ${problem.d}.`);
  const outputs = readout ? 1 : widths.at(-1);
  if (outputs !== problem.q) throw new TypeError(`the network has ${outputs} output(s) and y ${problem.q}.`);
  const flat = new Float64Array(layers.reduce((sum, layer) => sum + layer.flat.length, 0));
  let at = 0;
  for (const layer of layers) {
    flat.set(layer.flat, at);
    at += layer.flat.length;
  }
  const head = readout && Float64Array.from(readout);
  if (activation !== "linear") {
    if (problem.loss === "logistic") throw new TypeError(`activation is “${activation}”; the logistic loss is for linear networks here.`);
    return { model: new ActivationModel(problem, widths, activation), weights: flat };
  }
  const Kind = problem.loss === "logistic" ? LogisticModel : LinearModel;
  return { model: new Kind(problem, widths, head), weights: flat };
}

function nested(model, flat) {
  return model.offsets.slice(0, -1).map((at, k) => Array.from({ length: model.widths[k + 1] }, (_, i) =>
    Array.from(flat.subarray(at + i * model.widths[k], at + (i + 1) * model.widths[k]))));
}

/**
 * Gradient descent as in `deeplin.gradient_descent`: records at steps 0, k, 2k, … and the last.
 * Options: momentum, readout, activation, loss.
 * Returns {step, risk, gap, distance (squared), sharpness, status, steps, weights}.
 */
export function train(input) {
  const problem = problemOf(input);
  const { model, weights } = modelOf(problem, input);
  const { learning_rate, steps, record_every = 1, momentum = 0 } = input;
  const tracker = new SharpnessTracker(model, new Random(0, 31));
  const records = { step: [], risk: [], gap: [], distance: [], sharpness: [] };
  const outcome = descend(model, weights, { learning_rate, steps, record_every, momentum }, (at) => {
    records.step.push(at);
    records.risk.push(model.risk);
    if (model.linear) {
      records.gap.push(model.gap);
      records.distance.push(model.distance);
    }
    tracker.forget(); // every record on its own: nothing rises unseen
    records.sharpness.push(tracker.measure(EXACT));
  });
  return { ...records, ...outcome, weights: nested(model, weights) };
}

/** {lower, exact, upper, balanced, critical_learning_rate}; as a number it is `exact`. */
export function minimal_sharpness(input) {
  const { depth, readout_norm = 1, momentum = 0 } = input;
  const problem = problemOf(input);
  if (problem.separable) throw new TypeError("a linear map separates the two classes: the logistic loss has no minimum (X-16).");
  const found = minimalSharpness(problem, depth, readout_norm);
  const critical = stabilityThreshold({ learning_rate: 1, momentum }) / found.exact;
  const answer = { ...found, critical_learning_rate: critical };
  Object.defineProperty(answer, "valueOf", { value: () => found.exact });
  return answer;
}

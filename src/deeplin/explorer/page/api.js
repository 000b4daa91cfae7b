// window.deeplin: the numerics of the page for programs, in the library's terms.
import { ActivationModel } from "./activations.js";
import { descend } from "./descent.js";
import { expectedRisk, fittedRisks } from "./double_descent.js";
import { flow as follow } from "./flow.js";
import { transpose } from "./linear_algebra.js";
import { LogisticModel, labelsOf, logisticProblem } from "./logistic.js";
import { LinearModel } from "./network.js";
import { balancedOrbit, doublingRate, modeThreshold, networkIterates, modeIterates, periodOf } from "./orbits.js";
import { riskOf } from "./overfitting.js";
import { fromData } from "./problem.js";
import { Batches, Random } from "./random.js";
import { SharpnessTracker } from "./sharpness.js";
import { decayedMinimum, minimalSharpness, stabilityThreshold } from "./theory.js";
import { interpolation, reduceStart, trainReduced } from "./wide.js";

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

/** Arrays of risk, gap, distance (squared) and sharpness that `note()` fills from a loaded model. */
function recorder(model, decay) {
  const tracker = new SharpnessTracker(model, new Random(0, 31));
  const records = { risk: [], gap: [], distance: [], sharpness: [] };
  const note = () => {
    records.risk.push(model.risk);
    if (model.linear) {
      records.gap.push(model.gap);
      records.distance.push(model.distance);
    }
    tracker.forget(); // every record on its own: nothing rises unseen
    records.sharpness.push(tracker.measure(EXACT) + 2 * decay);
  };
  return { records, note };
}

function nested(model, flat) {
  return model.offsets.slice(0, -1).map((at, k) => Array.from({ length: model.widths[k + 1] }, (_, i) =>
    Array.from(flat.subarray(at + i * model.widths[k], at + (i + 1) * model.widths[k]))));
}

/**
 * Gradient descent as in `deeplin.gradient_descent`: records at steps 0, k, 2k, … and the last.
 * Options: momentum, nesterov, weight_decay, batch_size with seed, readout, activation, loss.
 * Returns {step, risk, gap, distance (squared), sharpness, status, steps, weights}.
 */
export function train(input) {
  const problem = problemOf(input);
  const { model, weights } = modelOf(problem, input);
  const { learning_rate, steps, record_every = 1, momentum = 0, nesterov = false, weight_decay = 0 } = input;
  const { batch_size = null, seed = 0 } = input;
  const full = !batch_size || batch_size >= problem.n;
  const batches = full ? null : new Batches(problem.n, batch_size, new Random(seed, 5));
  const { records, note } = recorder(model, weight_decay);
  const step = [];
  const options = { learning_rate, steps, record_every, momentum, nesterov, weight_decay, batches };
  const outcome = descend(model, weights, options, (at) => {
    step.push(at);
    note();
  });
  return { step, ...records, ...outcome, weights: nested(model, weights) };
}

/** Gradient flow observed at `times` (from 0, increasing); records as in `train`. */
export function flow(input) {
  const problem = problemOf(input);
  const { model, weights } = modelOf(problem, input);
  const { times, rtol = 1e-10, atol = 1e-12, weight_decay = 0 } = input;
  const { records, note } = recorder(model, weight_decay);
  const options = { rtol, atol, weight_decay, most: 1e6 };
  const outcome = follow(model, weights, times, options, () => note());
  return { time: times, ...records, status: outcome.status };
}

/** The sharpness of one network. */
export function sharpness(input) {
  const problem = problemOf(input);
  const { model, weights } = modelOf(problem, input);
  const { records, note } = recorder(model, input.weight_decay ?? 0);
  model.load(weights);
  note();
  return records.sharpness[0];
}

/** {lower, exact, upper, balanced, critical_learning_rate}; as a number it is `exact`. */
export function minimal_sharpness(input) {
  const { depth, readout_norm = 1, momentum = 0, nesterov = false } = input;
  const problem = problemOf(input);
  if (problem.separable) throw new TypeError("a linear map separates the two classes: the logistic loss has no minimum (X-16).");
  const found = minimalSharpness(problem, depth, readout_norm);
  const critical = stabilityThreshold({ learning_rate: 1, momentum, nesterov }) / found.exact;
  const answer = { ...found, critical_learning_rate: critical };
  Object.defineProperty(answer, "valueOf", { value: () => found.exact });
  return answer;
}

/** The minimum with weight decay: {objective, sharpness, collapsed} (X-9, one output). */
export function decayed_minimum(input) {
  const { objective, sharpness, collapsed } = decayedMinimum(problemOf(input), input.depth, input.weight_decay);
  return { objective, sharpness, collapsed };
}

/**
 * A wide network with identity middle layers, trained through its reduction. With a
 * `population` {spectrum, optimum (d×q), noise}, also its excess risk and the parts of it (BO-L4.2).
 */
export function wide(input) {
  const { depth, learning_rate, max_steps, loss_target = 1e-7 } = input;
  const [X, Y] = [matrix("X", input.X), matrix("y", input.y)];
  const problem = interpolation({ X: X.flat, Y: Y.flat, n: X.rows, d: X.columns, q: Y.columns });
  const [first, last] = [matrix("first", input.first), matrix("last", input.last)];
  const start = reduceStart(problem, first.flat, last.flat, first.rows, depth);
  const run = trainReduced(problem, start, {
    learning_rate, max_steps, depth, loss_target, record_every: max_steps,
  });
  const theta = Array.from({ length: X.columns }, (_, a) =>
    Array.from({ length: Y.columns }, (_, r) => run.theta[r * X.columns + a]));
  const { distance, loss, steps, status, r } = run;
  const answer = { theta, distance, loss, steps, status, width: r };
  if (!input.population) return answer;
  const { spectrum, optimum, noise } = input.population;
  const truth = matrix("optimum", optimum);
  const data = {
    spectrum: Float64Array.from(spectrum), truth: transpose(truth.flat, truth.rows, truth.columns),
    n: X.rows, d: X.columns, q: Y.columns,
  };
  const { risk, bias, variance, noise: fitted, xi, cross, zeroRisk, interpolantRisk, riskBound, index, bound } = riskOf(problem, data, run, { wide_noise: noise });
  return { ...answer, risk, bias, variance, noise: fitted, xi, cross, zero_risk: zeroRisk, minimum_norm_risk: interpolantRisk, bound: riskBound, index, interpolation_bound: bound };
}

/**
 * Descent on ½‖W_L…W_1 − diag(targets)‖² near its balanced minimum: {critical, doubling, orbit of the
 * largest mode or null, period (null: none up to 16), mode, network} (iterates after settling; null: diverged).
 */
export function orbits({ targets, depth, learning_rate }) {
  const sorted = [...targets].sort((a, b) => b - a);
  const mode = modeIterates(sorted[0], depth, learning_rate);
  return {
    critical: modeThreshold(sorted[0], depth), doubling: doublingRate(sorted[0], depth),
    orbit: balancedOrbit(sorted[0], depth, learning_rate), period: mode && periodOf(mode),
    mode, network: networkIterates(sorted, depth, learning_rate),
  };
}

/**
 * Excess risk of the minimum-norm least-squares solution on the first d′ inputs, for each of `dimensions`
 * (increasing): {dimension, excess_risk (of these samples), bias, variance (expected)}; `population` as in `wide`.
 */
export function double_descent(input) {
  const [X, Y, truth] = [matrix("X", input.X), matrix("y", input.y), matrix("optimum", input.population.optimum)];
  const [n, d, q] = [X.rows, X.columns, Y.columns];
  const spectrum = Float64Array.from(input.population.spectrum);
  const data = { X: X.flat, Y: Y.flat, truth: transpose(truth.flat, d, q), spectrum, n, d, q };
  const powers = Array.from({ length: d }, (_, j) => truth.flat.subarray(j * q, j * q + q).reduce((sum, value) => sum + value ** 2, 0));
  const expected = input.dimensions.map((m) => expectedRisk(spectrum, powers, input.population.noise, q, n, m));
  return {
    dimension: input.dimensions, excess_risk: fittedRisks(data, input.dimensions),
    bias: expected.map((each) => each.bias), variance: expected.map((each) => each.variance),
  };
}

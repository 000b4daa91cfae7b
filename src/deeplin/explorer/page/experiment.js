// From a state to everything the training page shows.
import { descend } from "./descent.js";
import { flow } from "./flow.js";
import { LayerTracker } from "./layers.js";
import { Random } from "./random.js";
import { SharpnessTracker } from "./sharpness.js";
import { isLinear, modelOf, readoutOf, weightsOf, widthsOf } from "./start.js";
import { minimalSharpness, stabilityThreshold } from "./theory.js";
import { dot, norm } from "./linear_algebra.js";

const MOST_RECORDS = 160;
const MOST_NUMBERS = 4e6; // weights kept along all records of the first run
const MOST_WORK = 2e10; // multiplications of one picture: about half a minute of one core
const FLOW_FLOOR = 1e-11; // of the initial gap: below it there would be only the solver's noise

/** Steps between records: odd, so that an oscillation of period two stays visible. */
function recordEvery(state, size) {
  const records = Math.min(MOST_RECORDS, Math.max(16, Math.floor(MOST_NUMBERS / size)));
  const few = isLinear(state) ? records : Math.min(records, 60);
  return Math.ceil(state.steps / few) | 1;
}

/** The steps that are recorded: evenly, or on a logarithmic axis ever farther apart; gaps are odd. */
function recordSteps(state, every) {
  const steps = [];
  const growth = (10 * every) / state.steps;
  for (let step = 0; step < state.steps;) {
    steps.push(step);
    step += state.horizontal_scale === "log" ? Math.min(Math.ceil(growth * step) | 1, 2 * every - 1) : every;
  }
  return [...steps, state.steps];
}

/** Multiplications that a picture of `runs` runs takes, roughly. */
export function workOf(state, problem, runs = state.seeds) {
  const widths = widthsOf(state, problem);
  let size = 0;
  for (let k = 1; k < widths.length; k++) size += widths[k] * widths[k - 1];
  const rows = isLinear(state) ? problem.q : problem.n;
  const records = state.steps / recordEvery(state, size);
  return runs * size * rows * 3 * (state.steps + 20 * records);
}

export function theoryOf(state, problem) {
  if (!isLinear(state)) return null;
  const readout = readoutOf(state, problem);
  if ((readout && problem.q > 1) || problem.separable) return null;
  const theory = minimalSharpness(problem, state.depth, readout ? norm(readout) : 1);
  return { ...theory, critical: stabilityThreshold({ ...state, learning_rate: 1 }) / theory.exact };
}

export function tooMuchWork(state, problem, runs) {
  const work = workOf(state, problem, runs);
  if (work <= MOST_WORK) return null;
  return (
    `This picture needs ${work.toExponential(0)} multiplications, more than ` +
    `${MOST_WORK.toExponential(0)}; choose fewer steps, fewer runs, or a smaller network.`
  );
}

/** Train every seed of the state and measure the whole way; the first run keeps its weights. */
export function train(state, problem) {
  const model = modelOf(state, problem);
  const every = recordEvery(state, model.size);
  const result = {
    steps: recordSteps(state, every), runs: [], separable: problem.separable ?? false, targetDeviation: problem.targetDeviation,
    zeroRisk: problem.targetMoment, zeroDistance: problem.optimum ? dot(problem.optimum, problem.optimum) : NaN,
    minimalRisk: problem.minimalRisk, theory: theoryOf(state, problem), layers: null, flow: null,
    threshold: stabilityThreshold(state), linear: model.linear, widths: model.widths,
  };
  for (let index = 0; index < state.seeds; index++) {
    result.runs.push(trainOne(state, problem, model, index, result));
  }
  if (model.linear) result.conserved = conservation(model, result.layers.weights);
  if (state.flow) result.flow = flowOf(state, problem, model);
  return result;
}

/** W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, which gradient flow conserves: its largest norm at the start, and its largest change by the end. */
function conservation({ widths, depth, offsets }, kept) {
  const [first, last] = [kept[0], kept.at(-1)];
  let [start, change] = [0, 0];
  for (let k = 0; k + 1 < depth; k++) {
    const before = imbalance(first, k, widths, offsets);
    const after = imbalance(last, k, widths, offsets);
    start = Math.max(start, norm(before));
    change = Math.max(change, norm(after.map((value, i) => value - before[i])));
  }
  return depth > 1 ? { start, change } : null;
}

/** W_{k+1}ᵀW_{k+1} − W_kW_kᵀ of neighboring layers (k from 0). */
function imbalance(weights, k, widths, offsets) {
  const [inner, middle, outer] = [widths[k], widths[k + 1], widths[k + 2]];
  const [lower, upper] = [weights.subarray(offsets[k], offsets[k + 1]), weights.subarray(offsets[k + 1], offsets[k + 1] + outer * middle)];
  const out = new Float64Array(middle * middle);
  for (let i = 0; i < middle; i++) {
    for (let j = 0; j < middle; j++) {
      let sum = 0;
      for (let a = 0; a < outer; a++) sum += upper[a * middle + i] * upper[a * middle + j];
      for (let b = 0; b < inner; b++) sum -= lower[i * inner + b] * lower[j * inner + b];
      out[i * middle + j] = sum;
    }
  }
  return out;
}

function trainOne(state, problem, model, index, result) {
  const first = index === 0 ? result : null;
  const weights = weightsOf(state, problem, index);
  const tracker = new SharpnessTracker(model, new Random(index, 11));
  const layers = first && new LayerTracker(model);
  const run = { risk: [], gap: [], distance: [], sharpness: [] };
  if (first) first.layers = { singular: [], norms: [], alignment: [], weights: [] };
  const options = { ...state, record_at: result.steps };
  const outcome = descend(model, weights, options, (step) => {
    run.risk.push(model.risk);
    if (model.linear) {
      run.gap.push(model.gap);
      run.distance.push(model.distance);
    }
    const precision = step === 0 ? { tolerance: 1e-5, most: 200 } : { tolerance: 5e-4, most: 30 };
    run.sharpness.push(tracker.measure(precision));
    if (first) {
      const measured = layers.measure(weights);
      for (const name of ["singular", "norms", "alignment"]) first.layers[name].push(measured[name]);
      first.layers.weights.push(Float64Array.from(weights));
    }
  });
  return { ...run, ...outcome };
}

let lastFlow = { key: null, problem: null, end: 0, path: null };

/**
 * Gradient flow of the first run over the same stretch of time, η·steps. Its path does not depend
 * on η: while that slider moves it is computed once, somewhat farther than asked for.
 */
function flowOf(state, problem, model = modelOf(state, problem)) {
  const rate = state.learning_rate / (1 - state.momentum); // a heavy ball moves that much faster
  const end = rate * state.steps;
  const key = JSON.stringify([...model.widths, state.architecture, state.initialization, state.scale, state.seed, state.data_seed, state.loss]);
  const known = lastFlow.key === key && lastFlow.problem === problem;
  if (!known || lastFlow.end < end) {
    const reach = known ? 1.5 * end : end;
    lastFlow = { key, problem, end: reach, path: flowPath(state, problem, model, reach) };
  }
  return until(lastFlow.path, end, rate);
}

/** The part of a path up to a time, in steps; what has settled stays where it is. */
function until(path, end, rate) {
  let count = path.time.findIndex((time) => time > end);
  if (count < 0) count = path.time.length;
  const out = { steps: path.time.slice(0, count).map((time) => time / rate) };
  for (const name of ["risk", "gap", "distance", "sharpness"]) out[name] = path[name].slice(0, count);
  if (path.settled && path.time.at(-1) < end) {
    out.steps.push(end / rate);
    out.risk.push(path.risk.at(-1));
    out.sharpness.push(path.sharpness.at(-1));
    out.gap.push(NaN);
    out.distance.push(NaN);
  }
  return out;
}

function flowPath(state, problem, model, end) {
  const path = { time: [], gap: [], distance: [], sharpness: [], risk: [] };
  const tracker = new SharpnessTracker(model, new Random(0, 12));
  const options = { rtol: 1e-7, atol: 1e-10, most: 4000, settled: FLOW_FLOOR };
  const outcome = flow(model, weightsOf(state, problem), end, options, (_, time) => {
    const precision = time === 0 ? { tolerance: 1e-4, most: 100 } : { tolerance: 1e-3, most: 20 };
    path.time.push(time);
    path.risk.push(model.risk);
    path.sharpness.push(tracker.measure(precision));
    if (!model.linear) return;
    path.gap.push(model.gap);
    path.distance.push(model.distance);
  });
  return { ...path, settled: outcome.status === "done" && outcome.time < end };
}

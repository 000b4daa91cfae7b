// From a state to everything the training page shows.
import { descend } from "./descent.js";
import { EigenTracker } from "./eigen.js";
import { flow } from "./flow.js";
import { LayerTracker } from "./layers.js";
import { Batches, Random } from "./random.js";
import { isLinear, modelOf, readoutOf, weightsOf, widthsOf } from "./start.js";
import { decayedMinimum, minimalSharpness, stabilityThreshold } from "./theory.js";
import { norm } from "./linear_algebra.js";

const MOST_RECORDS = 160;
const MOST_NUMBERS = 4e6; // weights kept along all records of the first run
export const MOST_WORK = 2e10; // multiplications of one picture: about half a minute of one core
const FLOW_RECORDS = 81;
const FLOW_FLOOR = 1e-13; // of the initial gap: below it there is only the solver's noise

/** Steps between records: odd, so that an oscillation of period two stays visible. */
export function recordEvery(state, size) {
  const records = Math.min(MOST_RECORDS, Math.max(16, Math.floor(MOST_NUMBERS / size)));
  const few = isLinear(state) ? records : Math.min(records, 60);
  return Math.ceil(state.steps / few) | 1;
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
  if (readout && problem.q > 1) return null;
  const theory = minimalSharpness(problem, state.depth, readout ? norm(readout) : 1);
  theory.settles = theory.exact; // the sharpness that decides the critical rate
  theory.decayed = null;
  if (state.weight_decay > 0) {
    theory.settles = null;
    if (problem.q === 1 && !readout) {
      theory.decayed = decayedMinimum(problem, state.depth, state.weight_decay);
      theory.settles = theory.decayed.sharpness;
    }
  }
  theory.critical = theory.settles
    ? stabilityThreshold({ ...state, learning_rate: 1 }) / theory.settles
    : null;
  return theory;
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
    steps: [], runs: [], every, theory: theoryOf(state, problem), layers: null, flow: null,
    threshold: stabilityThreshold(state), linear: model.linear, widths: model.widths,
  };
  for (let step = 0; step < state.steps; step += every) result.steps.push(step);
  result.steps.push(state.steps);
  for (let index = 0; index < state.seeds; index++) {
    result.runs.push(trainOne(state, problem, model, index, every, index === 0 ? result : null));
  }
  if (state.flow && !state.nesterov) result.flow = flowOf(state, problem, model);
  return result;
}

function trainOne(state, problem, model, index, every, first) {
  const weights = weightsOf(state, problem, index);
  const tracker = new EigenTracker(model.size, new Random(index, 11));
  const apply = (x, out) => model.hessian(x, out);
  const layers = first && new LayerTracker(model);
  const run = { risk: [], gap: [], distance: [], sharpness: [] };
  if (first) first.layers = { singular: [], norms: [], alignment: [], weights: [] };
  const full = !state.batch_size || state.batch_size >= problem.n;
  const batches = full ? null : new Batches(problem.n, state.batch_size, new Random(index, 5));
  const options = { ...state, record_every: every, batches };
  const outcome = descend(model, weights, options, (step) => {
    run.risk.push(model.risk);
    if (model.linear) {
      run.gap.push(model.gap);
      run.distance.push(model.distance);
    }
    const precision = step === 0 ? { tolerance: 1e-5, most: 200 } : { tolerance: 1e-3, most: 30 };
    run.sharpness.push(tracker.largest(apply, precision).value + 2 * state.weight_decay);
    if (first) {
      const measured = layers.measure(weights);
      for (const name of ["singular", "norms", "alignment"]) first.layers[name].push(measured[name]);
      first.layers.weights.push(Float64Array.from(weights));
    }
  });
  return { ...run, ...outcome };
}

/** Gradient flow of the first run over the same stretch of time, η·steps. */
export function flowOf(state, problem, model = modelOf(state, problem)) {
  const rate = state.learning_rate / (1 - state.momentum); // a heavy ball moves that much faster
  const end = rate * state.steps;
  const times = Array.from({ length: FLOW_RECORDS }, (_, i) => (end * i) / (FLOW_RECORDS - 1));
  const out = { steps: [], gap: [], distance: [], sharpness: [], risk: [] };
  const tracker = new EigenTracker(model.size, new Random(0, 12));
  const start = weightsOf(state, problem);
  const options = { rtol: 1e-6, atol: 1e-9, most: 6000, weight_decay: state.weight_decay };
  let initial = 0;
  const outcome = flow(model, start, times, options, (i) => {
    const precision = i === 0 ? { tolerance: 1e-4, most: 100 } : { tolerance: 1e-3, most: 20 };
    out.steps.push(times[i] / rate);
    out.risk.push(model.risk);
    out.sharpness.push(
      tracker.largest((x, y) => model.hessian(x, y), precision).value + 2 * state.weight_decay,
    );
    if (!model.linear) return;
    if (i === 0) initial = model.gap;
    const clear = model.gap > FLOW_FLOOR * initial;
    out.gap.push(clear ? model.gap : NaN);
    out.distance.push(clear ? model.distance : NaN);
  });
  return { ...out, status: outcome.status };
}

// The phase diagram: how every run of a grid ends.
import { descend } from "./descent.js";
import { theoryOf } from "./experiment.js";
import { rises } from "./facts.js";
import { Random } from "./random.js";
import { SharpnessTracker } from "./sharpness.js";
import { isLinear, modelOf, weightsOf } from "./start.js";

const RATES = 28;
const SCALES = { linear: [0.1, 0.7, 25], residual: [0, 3, 25], gelu: [0.3, 0.8, 11], relu: [0.3, 0.8, 11] };
const DEPTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40];
const RATE_BOUNDS = [1e-4, 3];

function geometric(low, high, count) {
  return Float64Array.from({ length: count }, (_, i) => {
    const value = low * (high / low) ** (i / (count - 1));
    return Math.min(Math.max(value, RATE_BOUNDS[0]), RATE_BOUNDS[1]);
  });
}

/** Without a minimizer that is a single map there is no distance; the risk is shown instead. */
const hasDistance = (state, problem) => isLinear(state) && !problem.separable;

/** Columns (scales or depths), rates, the critical rate of each column, and what is measured at the end. */
export function gridOf(state, problem) {
  const measured = hasDistance(state, problem) ? "distance" : "risk";
  if (state.phase_over === "scale") {
    const [low, high, count] = SCALES[state.architecture];
    const columns = Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
    const critical = theoryOf(state, problem)?.critical ?? null;
    const middle = critical ?? 0.1;
    return {
      columns, measured, rates: geometric(middle / 8, middle * 4, RATES),
      critical: columns.map(() => critical),
    };
  }
  const columns = ["gelu", "relu"].includes(state.architecture) ? DEPTHS.filter((L) => L <= 20) : DEPTHS;
  const critical = columns.map((depth) => theoryOf({ ...state, depth }, problem)?.critical ?? null);
  const top = Math.max(...critical.map((value) => value ?? 0.5)) * 2;
  return { columns, measured, rates: geometric(top / 200, top, RATES), critical };
}

/**
 * The runs of one column: final distance or risk, sharpness and status. What has not
 * settled is "unsettled" where its risk also rose in the second half, by more than rounding, and else
 * "unfinished".
 */
export function columnOf(state, problem, value, rates) {
  const chosen = { ...state, [state.phase_over]: value };
  const model = modelOf(chosen, problem);
  const start = weightsOf(chosen, problem);
  const tracker = new SharpnessTracker(model, new Random(0, 13));
  const out = { distance: [], sharpness: [], status: [] };
  const excess = () => (model.linear ? model.gap : model.risk);
  for (const learning_rate of rates) {
    const weights = Float64Array.from(start);
    let [step, before, swings] = [0, Infinity, false];
    const watch = () => {
      const now = excess();
      if (2 * step++ > state.steps && rises(before, now)) swings = true;
      before = now;
      return false;
    };
    const options = { ...chosen, learning_rate, record_every: state.steps, stop: watch };
    const { status } = descend(model, weights, options, () => {});
    const lost = status === "diverged";
    const sharpness = lost ? NaN : tracker.measure({ tolerance: 1e-3, most: 60 });
    out.status.push(lost ? "diverged" : status === "converged" ? "settled" : swings ? "unsettled" : "unfinished");
    out.distance.push(lost ? NaN : hasDistance(state, problem) ? model.distance : model.risk);
    out.sharpness.push(sharpness);
  }
  return out;
}

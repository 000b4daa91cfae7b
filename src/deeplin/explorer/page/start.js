// Where training starts: the network of a state, its initial weights and its read-out.
import { ActivationModel } from "./activations.js";
import { norm } from "./linear_algebra.js";
import { LogisticModel, labelsOf, logisticProblem } from "./logistic.js";
import { LinearModel, shapeOf } from "./network.js";
import { Random } from "./random.js";

const RESIDUAL = "residual";

export const isLinear = (state) => !["gelu", "relu"].includes(state.architecture);

/** Widths d_0 … d_L: a residual network keeps the dimension, the others end at the outputs. */
export function widthsOf(state, problem) {
  const { d, q } = problem;
  if (state.architecture === RESIDUAL) return Array(state.depth + 1).fill(d);
  return [d, ...Array(state.depth - 1).fill(state.width), q];
}

/** The fixed read-out of a residual network: a random unit vector for each output. */
export function readoutOf(state, problem) {
  if (state.architecture !== RESIDUAL) return null;
  const { d, q } = problem;
  const random = new Random(state.data_seed, 2);
  const rows = random.normals(q * d);
  for (let r = 0; r < q; r++) {
    const row = rows.subarray(r * d, r * d + d);
    const length = norm(row);
    for (let a = 0; a < d; a++) row[a] /= length;
  }
  return rows;
}

/**
 * The problem of a state's loss on the data of a squared-loss problem; null where there are not two
 * classes. Synthetic targets become the sign of the regression target.
 */
export function withLoss(problem, { loss, data }) {
  if (loss !== "logistic") return problem;
  const labels = labelsOf(data === "synthetic" ? problem.Y.map((value) => (value > 0 ? 1 : -1)) : problem.Y);
  return labels && logisticProblem(problem.X, labels, problem.n, problem.d);
}

export function modelOf(state, problem) {
  const widths = widthsOf(state, problem);
  const Kind = problem.loss === "logistic" ? LogisticModel : LinearModel;
  if (isLinear(state)) return new Kind(problem, widths, readoutOf(state, problem));
  return new ActivationModel(problem, widths, state.architecture);
}

/** Initial weights of run `index`: it starts like run 0 of seed + index. */
export function weightsOf(state, problem, index = 0, scale = state.scale) {
  const { widths, depth, offsets, size } = shapeOf(widthsOf(state, problem));
  const weights = new Random(state.seed + index, 3).normals(size);
  if (state.architecture === RESIDUAL) {
    const factor = scale / Math.sqrt(depth * problem.d);
    for (let i = 0; i < size; i++) weights[i] *= factor;
    for (let k = 0; k < depth; k++) {
      for (let a = 0; a < problem.d; a++) weights[offsets[k] + a * (problem.d + 1)] += 1;
    }
    return weights;
  }
  for (let i = 0; i < size; i++) weights[i] *= scale;
  if (state.initialization === "zero_layer") weights.fill(0, 0, offsets[1]);
  return weights;
}

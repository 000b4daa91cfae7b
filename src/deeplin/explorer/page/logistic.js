// The logistic loss ℓ(w) = (1/n)Σ log(1 + exp(−y_i x_iᵀw)), y_i = ±1: its minimum and its model.
import { dot, norm, product, symmetricEigen } from "./linear_algebra.js";
import { LinearModel } from "./network.js";
import { fromMoments } from "./problem.js";

const MOST_ITERATIONS = 200;

/** log(1 + e^{−m}) without overflow. */
const loss = (margin) => (margin > 0 ? Math.log1p(Math.exp(-margin)) : Math.log1p(Math.exp(margin)) - margin);
/** 1/(1 + e^m) = −φ′(m). */
const miss = (margin) => (margin > 0 ? Math.exp(-margin) / (1 + Math.exp(-margin)) : 1 / (1 + Math.exp(margin)));

/** ±1 for each target: of its two distinct values the larger one is +1; null where there are not two. */
export function labelsOf(targets) {
  const values = [...new Set(targets)].sort((a, b) => a - b);
  return values.length === 2 ? Float64Array.from(targets, (value) => (value === values[1] ? 1 : -1)) : null;
}

/** Risk, slope (d) and Hessian (d×d) of ℓ at w. */
function measure({ X, Y, n, d }, w, { slope = null, hessian = null }) {
  slope?.fill(0);
  hessian?.fill(0);
  let risk = 0;
  let least = Infinity;
  for (let i = 0; i < n; i++) {
    let margin = 0;
    for (let a = 0; a < d; a++) margin += w[a] * X[i * d + a];
    margin *= Y[i];
    least = Math.min(least, margin);
    risk += loss(margin) / n;
    const wrong = miss(margin);
    if (slope) for (let a = 0; a < d; a++) slope[a] -= (wrong * Y[i] * X[i * d + a]) / n;
    if (!hessian) continue;
    const weight = (wrong * (1 - wrong)) / n;
    for (let a = 0; a < d; a++) {
      const x = weight * X[i * d + a];
      for (let b = 0; b < d; b++) hessian[a * d + b] += x * X[i * d + b];
    }
  }
  return { risk, separates: least > 0 };
}

/**
 * The problem of X (n×d) and labels ±1, in the terms of `fromMoments`: Σ̂ is half the Hessian of ℓ at
 * its minimum, so that every formula for squared loss holds as it is. Data that a linear
 * map separates have no minimum: `separable` says so, and there is no optimum.
 */
export function logisticProblem(X, labels, n, d) {
  const data = { X, Y: labels, n, d };
  const [slope, hessian] = [new Float64Array(d), new Float64Array(d * d)];
  let w = new Float64Array(d);
  let state = measure(data, w, { slope, hessian });
  for (let k = 0; k < MOST_ITERATIONS && !state.separates; k++) {
    const step = newtonStep(hessian, slope, d);
    if (!(dot(step, slope) < -1e-30)) break;
    let size = 1;
    let next = w.map((value, a) => value + step[a]);
    while (measure(data, next, {}).risk > state.risk && size > 1e-10) {
      size /= 2;
      next = w.map((value, a) => value + size * step[a]);
    }
    const moved = size * norm(step);
    w = next;
    state = measure(data, w, { slope, hessian });
    if (moved <= 1e-14 * norm(w)) break;
  }
  const half = hessian.map((value) => value / 2);
  const cross = new Float64Array(d);
  product(cross, w, half, 0, 1, d, d);
  const problem = fromMoments(half, cross, Math.LN2, n, d, 1);
  const optimum = state.separates ? null : w;
  return {
    ...problem, X, Y: labels, optimum, loss: "logistic", separable: state.separates,
    minimalRisk: state.separates ? 0 : state.risk, targetMoment: Math.LN2,
  };
}

/** −H⁺g. */
function newtonStep(hessian, slope, d) {
  const { values, vectors } = symmetricEigen(hessian, d);
  const step = new Float64Array(d);
  for (let i = 0; i < d && values[i] > 1e-14 * values[0]; i++) {
    const u = vectors.subarray(i * d, i * d + d);
    const along = -dot(u, slope) / values[i];
    for (let a = 0; a < d; a++) step[a] += along * u[a];
  }
  return step;
}

/** A deep linear network with one output under the logistic loss. */
export class LogisticModel extends LinearModel {
  constructor(problem, widths, readout = null) {
    super(problem, widths, readout);
    this.curvature = new Float64Array(problem.d ** 2);
  }

  get risk() {
    return this.value;
  }

  _slope() {
    const { problem, difference: D } = this;
    const w = this.B[0];
    for (let i = 0; i < D.length; i++) D[i] = problem.optimum ? w[i] - problem.optimum[i] : NaN;
    const { risk } = measure(problem, w, { slope: this.F[0] });
    this.curved = false;
    this.value = risk;
    this.gap = Math.max(risk - problem.minimalRisk, 0);
  }

  /** out = rows · ∇²ℓ(Θ). */
  curve(rows, out) {
    const { problem, curvature } = this;
    if (!this.curved) measure(problem, this.B[0], { hessian: curvature });
    this.curved = true;
    product(out, rows, curvature, 0, 1, problem.d, problem.d);
  }
}

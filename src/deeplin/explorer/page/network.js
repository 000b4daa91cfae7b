// A deep linear network: product, risk, gradients and Hessian products.
//
// Layers W_1 … W_L lie one after another in a Float64Array. With B_k = pᵀW_L…W_{k+1} (q×d_k; the
// head p is I_q without a read-out) and F_k = G(W_{k−1}…W_1)ᵀ (q×d_{k−1}), G = 2(Θ − Θ*)Σ̂, the
// gradient is ∇_k = B_kᵀF_k (FM-grad): q rows travel through the layers, never n or d of them.
import { dot, identity, outer, product, productTransposed } from "./linear_algebra.js";
import { timesCovariance } from "./problem.js";

/** Sizes and places of the layers of a network with these widths (d_0, …, d_L). */
export function shapeOf(widths) {
  const depth = widths.length - 1;
  const offsets = [0];
  for (let k = 1; k <= depth; k++) offsets.push(offsets[k - 1] + widths[k] * widths[k - 1]);
  return { widths, depth, offsets, size: offsets[depth] };
}

export class LinearModel {
  constructor(problem, widths, readout = null) {
    this.problem = problem;
    Object.assign(this, shapeOf(widths));
    const { q } = problem;
    this.linear = true;
    const rows = () => widths.map((width) => new Float64Array(q * width));
    this.B = rows();
    this.B[this.depth].set(readout ?? identity(q));
    this.F = rows();
    this.dB = rows();
    this.dF = rows();
    this.difference = new Float64Array(q * widths[0]);
  }

  get theta() {
    return this.B[0];
  }

  get risk() {
    return this.problem.minimalRisk + this.gap;
  }

  /** Take in the weights: products, G and gap = R − R_min. */
  load(weights) {
    const { problem, widths, depth, offsets, B, F } = this;
    const { q } = problem;
    this.weights = weights;
    for (let k = depth; k >= 1; k--) {
      product(B[k - 1], B[k], weights, offsets[k - 1], q, widths[k], widths[k - 1]);
    }
    this._slope();
    for (let k = 1; k < depth; k++) {
      productTransposed(F[k], F[k - 1], weights, offsets[k - 1], q, widths[k], widths[k - 1]);
    }
  }

  /** G into F_1, and the gap. */
  _slope() {
    const { problem, difference: D, B, F } = this;
    for (let i = 0; i < D.length; i++) D[i] = B[0][i] - problem.optimum[i];
    timesCovariance(problem, D, F[0]);
    this.gap = Math.max(dot(D, F[0]), 0);
    for (let i = 0; i < D.length; i++) F[0][i] *= 2;
  }

  /** out = the derivative of G along a change `rows` of Θ: 2·rows·Σ̂. */
  curve(rows, out) {
    timesCovariance(this.problem, rows, out);
    for (let i = 0; i < out.length; i++) out[i] *= 2;
  }

  /** ‖Θ − Θ*‖_F². */
  get distance() {
    return dot(this.difference, this.difference);
  }

  gradient(out) {
    const { widths, depth, offsets, B, F } = this;
    for (let k = 1; k <= depth; k++) {
      outer(out, offsets[k - 1], B[k], F[k - 1], this.problem.q, widths[k], widths[k - 1]);
    }
  }

  /** out = ∇²R · E at the loaded weights: the derivative of ∇_k = B_kᵀF_k along E. */
  hessian(E, out) {
    const { problem, widths, depth, offsets, weights, B, F, dB, dF } = this;
    const { q } = problem;
    for (let k = depth; k >= 1; k--) {
      const m = widths[k];
      const n = widths[k - 1];
      const at = offsets[k - 1];
      product(dB[k - 1], B[k], E, at, q, m, n);
      if (k < depth) product(dB[k - 1], dB[k], weights, at, q, m, n, true);
    }
    this.curve(dB[0], dF[0]);
    for (let k = 1; k <= depth; k++) {
      const m = widths[k];
      const n = widths[k - 1];
      const at = offsets[k - 1];
      outer(out, at, B[k], dF[k - 1], q, m, n);
      if (k === depth) break;
      outer(out, at, dB[k], F[k - 1], q, m, n, true);
      productTransposed(dF[k], dF[k - 1], weights, at, q, m, n);
      productTransposed(dF[k], F[k - 1], E, at, q, m, n, true);
    }
  }
}

// The sharpness of a model at its loaded weights: the largest eigenvalue of its Hessian.
//
// One output: a change E_k of layer k enters R only through E_kᵀv_k and E_k a_k, v_k = B_kᵀ and
// a_k = F_kᵀ (see network.js). Every eigenvector with a nonzero eigenvalue is therefore of the form
// E_k = v̂_k ξ_kᵀ + ζ_k â_kᵀ with ζ_k ⟂ v_k, and products with the Hessian need matrix-vector
// products only: Σ(d_{k−1} + d_k) numbers instead of Σ d_{k−1}d_k.
import { EigenTracker } from "./eigen.js";
import { dot, norm, product, productTransposed } from "./linear_algebra.js";

/** Follows the top eigenvector from one call to the next. */
export class SharpnessTracker {
  constructor(model, random) {
    const reduced = model.linear && model.problem.q === 1 ? new ReducedHessian(model) : null;
    this.tracker = new EigenTracker(reduced ? reduced.size : model.size, random);
    this.prepare = () => reduced?.load();
    this.apply = reduced ? (x, out) => reduced.apply(x, out) : (x, out) => model.hessian(x, out);
  }

  forget() {
    this.tracker.forget();
  }

  /** The sharpness at the weights the model has loaded. */
  measure(precision) {
    this.prepare();
    return this.tracker.largest(this.apply, precision).value;
  }
}

class ReducedHessian {
  constructor(model) {
    this.model = model;
    const { widths, depth } = model;
    this.places = []; // of ξ_k and ζ_k in the vector
    let at = 0;
    for (let k = 1; k <= depth; k++) {
      this.places.push([at, at + widths[k - 1]]);
      at += widths[k - 1] + widths[k];
    }
    this.size = at;
    this.unit = widths.map((width) => new Float64Array(width)); // v̂_k
    this.lengths = new Float64Array(depth + 1); // ‖v_k‖
    this.forward = new Float64Array(depth + 1); // ‖a_k‖
    this.C = widths.map((width) => new Float64Array(width));
    this.Q = widths.map((width) => new Float64Array(width));
    this.y = widths.map((width) => new Float64Array(width));
  }

  load() {
    const { model, unit, lengths, forward } = this;
    for (let k = 1; k <= model.depth; k++) {
      lengths[k] = norm(model.B[k]);
      forward[k] = norm(model.F[k - 1]);
      const factor = lengths[k] > 0 ? 1 / lengths[k] : 0;
      for (let i = 0; i < unit[k].length; i++) unit[k][i] = model.B[k][i] * factor;
    }
  }

  apply(x, out) {
    const { model, places, unit, lengths, forward, C, Q, y } = this;
    const { widths, depth, offsets, weights, F } = model;
    C[depth].fill(0);
    for (let k = depth; k >= 1; k--) {
      const [m, n] = [widths[k], widths[k - 1]];
      const [xi, zeta] = places[k - 1];
      const a = F[k - 1];
      product(C[k - 1], C[k], weights, offsets[k - 1], 1, m, n);
      let [along, beside] = [0, 0];
      for (let j = 0; j < n; j++) {
        C[k - 1][j] += lengths[k] * x[xi + j];
        along += x[xi + j] * a[j];
      }
      for (let i = 0; i < m; i++) beside += unit[k][i] * x[zeta + i];
      // y_k = E_k a_k, with ζ made orthogonal to v_k
      const shift = along - forward[k] * beside;
      for (let i = 0; i < m; i++) y[k][i] = forward[k] * x[zeta + i] + shift * unit[k][i];
    }
    model.curve(C[0], Q[0]);
    for (let k = 1; k <= depth; k++) {
      const [m, n] = [widths[k], widths[k - 1]];
      const [xi, zeta] = places[k - 1];
      const a = F[k - 1];
      const share = dot(unit[k], C[k]);
      for (let j = 0; j < n; j++) out[xi + j] = lengths[k] * Q[k - 1][j] + share * a[j];
      for (let i = 0; i < m; i++) out[zeta + i] = forward[k] * (C[k][i] - share * unit[k][i]);
      if (k === depth) break;
      productTransposed(Q[k], Q[k - 1], weights, offsets[k - 1], 1, m, n);
      for (let i = 0; i < m; i++) Q[k][i] += y[k][i];
    }
  }
}

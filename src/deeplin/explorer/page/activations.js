// Networks with GELU or ReLU between the layers: these depend on every row of the data.
import { outer, product, productTransposed } from "./linear_algebra.js";
import { shapeOf } from "./network.js";

const ROOT = Math.sqrt(2 / Math.PI);
const CUBE = 0.044715;

/** Value, first and second derivative of GELU (tanh form, as FM-7 was run). */
function gelu(x, out) {
  const t = Math.tanh(ROOT * (x + CUBE * x * x * x));
  const inner = ROOT * (1 + 3 * CUBE * x * x);
  const slope = (1 - t * t) * inner;
  out[0] = 0.5 * x * (1 + t);
  out[1] = 0.5 * (1 + t) + 0.5 * x * slope;
  out[2] = slope + 0.5 * x * ((1 - t * t) * ROOT * 6 * CUBE * x - 2 * t * slope * inner);
}

function relu(x, out) {
  out[0] = x > 0 ? x : 0;
  out[1] = x > 0 ? 1 : 0;
  out[2] = 0;
}

const ACTIVATIONS = { gelu, relu };

export class ActivationModel {
  constructor(problem, widths, name) {
    this.problem = problem;
    Object.assign(this, shapeOf(widths));
    this.linear = false;
    this.activation = ACTIVATIONS[name];
    const { n } = problem;
    const rows = () => widths.map((width) => new Float64Array(n * width));
    // H_k: outputs of layer k; D_k: ∂R/∂Z_k; slopes and bends: φ′ and φ″ at Z_k; R…: along E.
    for (const name of ["H", "D", "slopes", "bends", "RZ", "RH", "RD", "back"]) this[name] = rows();
  }

  /** Forward and backward through the rows. */
  load(weights) {
    const { problem, widths, depth, offsets, H, D, slopes, bends, back } = this;
    const { X, Y, n, q } = problem;
    this.weights = weights;
    H[0].set(X);
    const triple = [0, 0, 0];
    for (let k = 1; k <= depth; k++) {
      const Z = H[k];
      productTransposed(Z, H[k - 1], weights, offsets[k - 1], n, widths[k], widths[k - 1]);
      if (k === depth) break;
      for (let i = 0; i < n * widths[k]; i++) {
        this.activation(Z[i], triple);
        [Z[i], slopes[k][i], bends[k][i]] = triple;
      }
    }
    let sum = 0;
    for (let i = 0; i < n; i++) {
      for (let r = 0; r < q; r++) {
        const miss = H[depth][i * q + r] - Y[i * q + r];
        sum += miss * miss;
        D[depth][i * q + r] = (2 * miss) / n;
      }
    }
    this.risk = sum / n;
    for (let k = depth; k > 1; k--) {
      product(back[k - 1], D[k], weights, offsets[k - 1], n, widths[k], widths[k - 1]);
      for (let i = 0; i < n * widths[k - 1]; i++) D[k - 1][i] = back[k - 1][i] * slopes[k - 1][i];
    }
  }

  gradient(out) {
    const { problem, widths, depth, offsets, H, D } = this;
    for (let k = 1; k <= depth; k++) {
      outer(out, offsets[k - 1], D[k], H[k - 1], problem.n, widths[k], widths[k - 1]);
    }
  }

  /** out = ∇²R · E at the loaded weights (forward derivative of the backward pass). */
  hessian(E, out) {
    const { problem, widths, depth, offsets, weights, H, D, slopes, bends, RZ, RH, RD, back } = this;
    const { n } = problem;
    for (let k = 1; k <= depth; k++) {
      const [m, l, at] = [widths[k], widths[k - 1], offsets[k - 1]];
      productTransposed(RZ[k], H[k - 1], E, at, n, m, l);
      if (k > 1) productTransposed(RZ[k], RH[k - 1], weights, at, n, m, l, true);
      if (k < depth) for (let i = 0; i < n * m; i++) RH[k][i] = slopes[k][i] * RZ[k][i];
    }
    for (let i = 0; i < n * widths[depth]; i++) RD[depth][i] = (2 * RZ[depth][i]) / n;
    for (let k = depth; k >= 1; k--) {
      const [m, l, at] = [widths[k], widths[k - 1], offsets[k - 1]];
      outer(out, at, RD[k], H[k - 1], n, m, l);
      if (k === 1) break;
      outer(out, at, D[k], RH[k - 1], n, m, l, true);
      product(RD[k - 1], RD[k], weights, at, n, m, l);
      product(RD[k - 1], D[k], E, at, n, m, l, true);
      for (let i = 0; i < n * l; i++) {
        RD[k - 1][i] =
          RD[k - 1][i] * slopes[k - 1][i] + back[k - 1][i] * bends[k - 1][i] * RZ[k - 1][i];
      }
    }
  }
}

// The largest eigenvalue of a symmetric operator, from products with it alone.
//
// Locally optimal conjugate gradients: each step takes the best vector in the space of the present
// one, its residual and the last direction (Rayleigh-Ritz on three vectors). Some eigenvalue is
// within ‖Hx − θx‖ of θ, and the error of θ is of the order of that residual's square.
import { dot, norm } from "./linear_algebra.js";

const EXACT = 1e-6; // results to tolerances below this one are verified by a fresh product
const RANDOM_SHARE = 0.01; // of a warm start, so that an eigenvector rising from below is found
const TURN = 0.05; // 1 − cos² of the angle between two eigenvectors that counts as another one
const LEFT = 1e-5; // share of a direction below which what is left of it is mostly rounding

/** Keeps the last eigenvectors and the work arrays of one operator that changes slowly. */
export class EigenTracker {
  constructor(size, random) {
    this.size = size;
    this.noise = random.normals(size);
    scale(this.noise, 1 / norm(this.noise));
    this.vector = Float64Array.from(this.noise);
    this.before = new Float64Array(size); // the eigenvector of the call before the last
    this.turned = false; // whether the last two differ
    for (const name of ["x", "Hx", "r", "Hr", "p", "Hp"]) this[name] = new Float64Array(size);
  }

  forget() {
    this.vector.set(this.noise);
    this.turned = false;
  }

  /** {value, residual, products}: `apply(x, out)` writes Hx; ends at ‖Hx − θx‖ ≤ tolerance·|θ|. */
  largest(apply, { tolerance = 1e-4, most = 60 } = {}) {
    const { x, Hx, r, Hr, p, Hp, size } = this;
    for (let i = 0; i < size; i++) x[i] = this.vector[i] + RANDOM_SHARE * this.noise[i];
    scale(x, 1 / norm(x));
    apply(x, Hx);
    let theta = dot(x, Hx);
    let residual = this._residual(theta);
    let products = 1;
    let direction = false;
    let checked = false;
    if (this.turned) {
      p.set(this.before); // in an oscillation of period two it comes back
      apply(p, Hp);
      products++;
      direction = true;
    }
    for (; ; residual = this._residual(theta)) {
      const done = !(residual > tolerance * Math.abs(theta));
      if (products >= most || (done && (checked || tolerance > EXACT))) break;
      products++;
      if (done) {
        apply(x, Hx); // the image was carried along: look once more before it is believed
        theta = dot(x, Hx);
        [checked, direction] = [true, false];
        continue;
      }
      apply(r, Hr);
      if (direction) direction = this._orthogonal();
      theta = this._best(theta, direction);
      [checked, direction] = [false, true];
    }
    this.turned = 1 - dot(x, this.vector) ** 2 > TURN;
    this.before.set(this.vector);
    this.vector.set(x);
    return { value: theta, residual, products };
  }

  /** r = Hx − θx as a unit vector orthogonal to x; its length. */
  _residual(theta) {
    const { x, Hx, r, size } = this;
    let [square, along] = [0, 0];
    for (let i = 0; i < size; i++) {
      const value = Hx[i] - theta * x[i];
      r[i] = value;
      square += value * value;
      along += value * x[i];
    }
    const length = Math.sqrt(square);
    const factor = 1 / Math.sqrt(Math.max(square - along * along, 1e-300));
    for (let i = 0; i < size; i++) r[i] = (r[i] - along * x[i]) * factor;
    return length;
  }

  /** Make p orthonormal to x and r, its image likewise; false when nothing is left of it. */
  _orthogonal() {
    const { x, Hx, r, Hr, p, Hp, size } = this;
    for (let round = 0; round < 3; round++) {
      let [alongX, alongR, before] = [0, 0, 0];
      for (let i = 0; i < size; i++) {
        alongX += p[i] * x[i];
        alongR += p[i] * r[i];
        before += p[i] * p[i];
      }
      const after = before - alongX * alongX - alongR * alongR;
      if (!(after > LEFT * LEFT * before)) return false;
      const factor = 1 / Math.sqrt(after);
      for (let i = 0; i < size; i++) {
        p[i] = (p[i] - alongX * x[i] - alongR * r[i]) * factor;
        Hp[i] = (Hp[i] - alongX * Hx[i] - alongR * Hr[i]) * factor;
      }
      if (after > 0.5 * before) break; // little was taken away: no digits were lost
    }
    return true;
  }

  /** Rayleigh-Ritz on x, r and (where there is one) p; the new θ. */
  _best(theta, direction) {
    const { x, Hx, r, Hr, p, Hp, size } = this;
    let [xr, rr, px, pr, pp] = [0, 0, 0, 0, 0];
    for (let i = 0; i < size; i++) {
      xr += x[i] * Hr[i];
      rr += r[i] * Hr[i];
      px += p[i] * Hx[i];
      pr += p[i] * Hr[i];
      pp += p[i] * Hp[i];
    }
    const best = direction ? largestOfThree(theta, xr, rr, px, pr, pp) : largestOfThree(theta, xr, rr, 0, 0, -Infinity);
    const [a, b, c] = [V[3 * best], V[3 * best + 1], direction ? V[3 * best + 2] : 0];
    let square = 0;
    for (let i = 0; i < size; i++) {
      const step = b * r[i] + c * p[i];
      const image = b * Hr[i] + c * Hp[i];
      x[i] = a * x[i] + step;
      Hx[i] = a * Hx[i] + image;
      p[i] = step;
      Hp[i] = image;
      square += x[i] * x[i];
    }
    const factor = 1 / Math.sqrt(square); // without it an error in the length would grow
    let value = 0;
    for (let i = 0; i < size; i++) {
      x[i] *= factor;
      Hx[i] *= factor;
      value += x[i] * Hx[i];
    }
    return value;
  }
}

function scale(a, factor) {
  for (let i = 0; i < a.length; i++) a[i] *= factor;
}

// The 3×3 matrix of the Rayleigh-Ritz step and its eigenvectors (rows), used by all trackers.
const T = new Float64Array(9);
const V = new Float64Array(9);

/** Diagonalize [[xx, xr, px], [xr, rr, pr], [px, pr, pp]]; the place of the largest eigenvalue. */
function largestOfThree(xx, xr, rr, px, pr, pp) {
  T.set([xx, xr, px, xr, rr, pr, px, pr, pp]);
  V.set([1, 0, 0, 0, 1, 0, 0, 0, 1]);
  for (let sweep = 0; sweep < 12; sweep++) {
    const off = Math.abs(T[1]) + Math.abs(T[2]) + Math.abs(T[5]);
    if (!(off > 1e-18 * (Math.abs(T[0]) + Math.abs(T[4])))) break;
    rotate(0, 1);
    rotate(0, 2);
    rotate(1, 2);
  }
  const first = T[0] >= T[4] ? 0 : 1;
  return T[8] > T[4 * first] ? 2 : first;
}

/** One Jacobi rotation that makes T[p, q] zero. */
function rotate(p, q) {
  const off = T[3 * p + q];
  if (off === 0) return;
  const theta = (T[4 * q] - T[4 * p]) / (2 * off);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  const k = 3 - p - q;
  const x = T[3 * k + p];
  const y = T[3 * k + q];
  T[3 * k + p] = T[3 * p + k] = c * x - s * y;
  T[3 * k + q] = T[3 * q + k] = s * x + c * y;
  T[4 * p] -= t * off;
  T[4 * q] += t * off;
  T[3 * p + q] = T[3 * q + p] = 0;
  for (let i = 0; i < 3; i++) {
    const u = V[3 * p + i];
    const v = V[3 * q + i];
    V[3 * p + i] = c * u - s * v;
    V[3 * q + i] = s * u + c * v;
  }
}

// The largest eigenvalue of a symmetric operator, from products with it alone.
//
// Locally optimal conjugate gradients: each step takes the best vector in the plane of the present
// one, its residual and the last direction (Rayleigh-Ritz on three vectors). |λ − θ| ≤ ‖Hx − θx‖
// for the nearest eigenvalue, and the error of θ is of the order of the residual's square.
import { dot, norm } from "./linear_algebra.js";

const NEARLY = 1e-5; // relative residual below which r is no longer orthogonal to x by itself
const RANDOM_SHARE = 1e-3; // of a warm start, so that an eigenvector rising from below is found

/** Keeps the last eigenvector and the work arrays of one operator that changes slowly. */
export class EigenTracker {
  constructor(size, random) {
    this.size = size;
    this.noise = Float64Array.from({ length: size }, () => random.normal());
    const length = norm(this.noise);
    for (let i = 0; i < size; i++) this.noise[i] /= length;
    this.vector = Float64Array.from(this.noise);
    for (const name of ["x", "Hx", "r", "Hr", "p", "Hp"]) this[name] = new Float64Array(size);
  }

  forget() {
    this.vector.set(this.noise);
  }

  /** {value, residual, products}: `apply(x, out)` writes Hx; ends at ‖Hx − θx‖ ≤ tolerance·|θ|. */
  largest(apply, { tolerance = 1e-4, most = 60 } = {}) {
    const { x, Hx, r, Hr, p, Hp, size } = this;
    for (let i = 0; i < size; i++) x[i] = this.vector[i] + RANDOM_SHARE * this.noise[i];
    scale(x, 1 / norm(x));
    apply(x, Hx);
    let theta = dot(x, Hx);
    let residual = 0;
    let direction = false;
    let products = 1;
    for (; ; products++) {
      let square = 0;
      for (let i = 0; i < size; i++) {
        r[i] = Hx[i] - theta * x[i];
        square += r[i] * r[i];
      }
      residual = Math.sqrt(square);
      if (!(residual > tolerance * Math.abs(theta)) || products >= most) break;
      scale(r, 1 / residual);
      if (residual < NEARLY * Math.abs(theta)) {
        remove(r, x); // rounding has begun to show
        scale(r, 1 / norm(r));
      }
      apply(r, Hr);
      if (direction) direction = this._orthogonal();
      theta = this._best(theta, direction);
      direction = true;
    }
    this.vector.set(x);
    return { value: theta, residual, products };
  }

  /** Make p orthonormal to x and r, its image likewise; false when nothing is left of it. */
  _orthogonal() {
    const { x, Hx, r, Hr, p, Hp } = this;
    const before = norm(p);
    for (let twice = 0; twice < 2; twice++) {
      add(p, Hp, x, Hx, -dot(p, x));
      add(p, Hp, r, Hr, -dot(p, r));
    }
    const after = norm(p);
    if (!(after > 1e-10 * before)) return false;
    scale(p, 1 / after);
    scale(Hp, 1 / after);
    return true;
  }

  /** Rayleigh-Ritz on x, r and (where there is one) p. */
  _best(theta, direction) {
    const { x, Hx, r, Hr, p, Hp, size } = this;
    T[0] = theta;
    T[1] = T[3] = dot(x, Hr);
    T[4] = dot(r, Hr);
    T[2] = T[6] = direction ? dot(p, Hx) : 0;
    T[5] = T[7] = direction ? dot(p, Hr) : 0;
    T[8] = direction ? dot(p, Hp) : -Infinity;
    const best = largestOfThree(direction);
    const a = V[3 * best];
    const b = V[3 * best + 1];
    const c = V[3 * best + 2];
    for (let i = 0; i < size; i++) {
      const step = b * r[i] + c * p[i];
      const image = b * Hr[i] + c * Hp[i];
      x[i] = a * x[i] + step;
      Hx[i] = a * Hx[i] + image;
      p[i] = step;
      Hp[i] = image;
    }
    return T[4 * best];
  }
}

// The 3×3 matrix of the Rayleigh-Ritz step and its eigenvectors (rows), used by all trackers.
const T = new Float64Array(9);
const V = new Float64Array(9);

/** Diagonalize T by Jacobi rotations; the place of its largest eigenvalue. */
function largestOfThree(direction) {
  V.fill(0);
  V[0] = V[4] = V[8] = 1;
  for (let sweep = 0; sweep < 12; sweep++) {
    const off = Math.abs(T[1]) + Math.abs(T[2]) + Math.abs(T[5]);
    if (!(off > 1e-18 * (Math.abs(T[0]) + Math.abs(T[4])))) break;
    rotate(0, 1);
    if (!direction) continue;
    rotate(0, 2);
    rotate(1, 2);
  }
  const first = T[0] >= T[4] ? 0 : 1;
  return T[8] > T[4 * first] ? 2 : first;
}

function rotate(p, q) {
  const off = T[3 * p + q];
  if (off === 0) return;
  const theta = (T[4 * q] - T[4 * p]) / (2 * off);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  const k = 3 - p - q;
  const [x, y] = [T[3 * k + p], T[3 * k + q]];
  T[3 * k + p] = T[3 * p + k] = c * x - s * y;
  T[3 * k + q] = T[3 * q + k] = s * x + c * y;
  T[4 * p] -= t * off;
  T[4 * q] += t * off;
  T[3 * p + q] = T[3 * q + p] = 0;
  for (let i = 0; i < 3; i++) {
    const [u, v] = [V[3 * p + i], V[3 * q + i]];
    V[3 * p + i] = c * u - s * v;
    V[3 * q + i] = s * u + c * v;
  }
}

function scale(a, factor) {
  for (let i = 0; i < a.length; i++) a[i] *= factor;
}

function remove(a, unit) {
  const along = dot(a, unit);
  for (let i = 0; i < a.length; i++) a[i] -= along * unit[i];
}

function add(p, Hp, x, Hx, factor) {
  for (let i = 0; i < p.length; i++) {
    p[i] += factor * x[i];
    Hp[i] += factor * Hx[i];
  }
}

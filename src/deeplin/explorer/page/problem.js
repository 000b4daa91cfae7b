// A regression problem seen through its moments: Σ̂ = XᵀX/n, Θ* of minimal norm, R_min.
import { dot, multiply, norm, product, symmetricEigen } from "./linear_algebra.js";
import { Random } from "./random.js";

/** The problem of data X (n×d) and Y (n×q), both row-major. */
export function fromData(X, Y, n, d, q) {
  const covariance = new Float64Array(d * d);
  const cross = new Float64Array(q * d);
  for (let i = 0; i < n; i++) {
    for (let a = 0; a < d; a++) {
      const x = X[i * d + a] / n;
      for (let b = 0; b < d; b++) covariance[a * d + b] += x * X[i * d + b];
      for (let r = 0; r < q; r++) cross[r * d + a] += x * Y[i * q + r];
    }
  }
  const problem = fromMoments(covariance, cross, dot(Y, Y) / n, n, d, q);
  let residual = 0;
  for (let i = 0; i < n; i++) {
    for (let r = 0; r < q; r++) {
      let value = Y[i * q + r];
      for (let a = 0; a < d; a++) value -= problem.optimum[r * d + a] * X[i * d + a];
      residual += value * value;
    }
  }
  return { ...problem, X, Y, minimalRisk: residual / n }; // summed, not by difference: keeps digits
}

/** The problem of Σ̂ (d×d), YᵀX/n (q×d) and ‖Y‖²/n. */
export function fromMoments(covariance, cross, targetMoment, n, d, q) {
  const { values, vectors } = symmetricEigen(covariance, d);
  const floor = 2.3e-16 * Math.max(n, d) * Math.max(values[0], 0);
  const rank = values.filter((value) => value > floor).length;
  const optimum = new Float64Array(q * d);
  for (let i = 0; i < rank; i++) {
    const u = vectors.subarray(i * d, i * d + d);
    for (let r = 0; r < q; r++) {
      const c = dot(cross.subarray(r * d, r * d + d), u) / values[i];
      for (let a = 0; a < d; a++) optimum[r * d + a] += c * u[a];
    }
  }
  const minimalRisk = Math.max(targetMoment - dot(optimum, cross), 0);
  return {
    n, d, q, rank, covariance, optimum, targetMoment, minimalRisk, diagonal: null,
    eigenvalues: values.slice(0, rank), eigenvectors: vectors.subarray(0, rank * d),
    X: null, Y: null,
  };
}

/** The same problem with targets divided by `factor`. */
export function scaled(problem, factor) {
  const divide = (values) => values && values.map((value) => value / factor);
  return {
    ...problem, Y: divide(problem.Y), optimum: divide(problem.optimum),
    targetMoment: problem.targetMoment / factor ** 2, minimalRisk: problem.minimalRisk / factor ** 2,
  };
}

/** Gaussian X with a log-spaced spectrum, Y = XΘᵀ + noise, scaled to ‖Θ*‖_F = 1 (FM's data set). */
export function synthetic({ data_seed, samples, dimension, outputs, noise, condition_number }) {
  const random = new Random(data_seed, 1);
  const [n, d, q] = [samples, dimension, outputs];
  const X = random.normals(n * d);
  for (let i = 0; i < n * d; i++) X[i] *= condition_number ** (-(i % d) / (2 * Math.max(d - 1, 1)));
  const truth = random.normals(d * q);
  const Y = multiply(X, truth, n, d, q);
  for (let i = 0; i < n * q; i++) Y[i] += noise * random.normal();
  const problem = fromData(X, Y, n, d, q);
  return scaled(problem, norm(problem.optimum));
}

/** The problem in the eigenbasis of Σ̂: inputs of dimension rank, Σ̂ diagonal. */
export function inEigenbasis(problem) {
  const { d, q, rank, eigenvalues, eigenvectors } = problem;
  const optimum = new Float64Array(q * rank);
  for (let r = 0; r < q; r++) {
    for (let i = 0; i < rank; i++) {
      const u = eigenvectors.subarray(i * d, i * d + d);
      optimum[r * rank + i] = dot(problem.optimum.subarray(r * d, r * d + d), u);
    }
  }
  return { ...problem, d: rank, optimum, diagonal: eigenvalues, X: null, Y: null };
}

/** out (q×d) = rows (q×d) Σ̂. */
export function timesCovariance(problem, rows, out) {
  const { d, q, diagonal } = problem;
  if (diagonal) {
    for (let i = 0; i < q * d; i++) out[i] = rows[i] * diagonal[i % d];
    return;
  }
  product(out, rows, problem.covariance, 0, q, d, d);
}

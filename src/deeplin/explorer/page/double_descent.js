// Double descent: the excess risk of the minimum-norm least-squares solution on the first d′ inputs.
//
// Inputs are independent with variances λ_j, so those that are left out act as noise. Below d′ = n the
// solution is that of least squares, above it the interpolant of least norm.
import { dot } from "./linear_algebra.js";
import { populationData } from "./wide.js";

const DRAWS = 5;
const POINTS = 40;

/** Solve A x = B for a positive definite A (m×m) and B (m×q), by Cholesky; A and B are overwritten. */
function solve(A, B, m, q) {
  for (let j = 0; j < m; j++) {
    for (let i = j; i < m; i++) {
      let sum = A[i * m + j];
      for (let k = 0; k < j; k++) sum -= A[i * m + k] * A[j * m + k];
      A[i * m + j] = i === j ? Math.sqrt(sum) : sum / A[j * m + j];
    }
  }
  for (let r = 0; r < q; r++) {
    for (let i = 0; i < m; i++) {
      let sum = B[i * q + r];
      for (let k = 0; k < i; k++) sum -= A[i * m + k] * B[k * q + r];
      B[i * q + r] = sum / A[i * m + i];
    }
    for (let i = m - 1; i >= 0; i--) {
      let sum = B[i * q + r];
      for (let k = i + 1; k < m; k++) sum -= A[k * m + i] * B[k * q + r];
      B[i * q + r] = sum / A[i * m + i];
    }
  }
  return B;
}

/** Excess risk of the fit on the first d′ inputs, for each d′; `truth` is q×d, X n×d, Y n×q. */
export function fittedRisks({ X, Y, truth, spectrum, n, d, q }, dimensions) {
  const power = (j) => { let sum = 0; for (let r = 0; r < q; r++) sum += truth[r * d + j] ** 2; return sum; };
  const tails = new Float64Array(d + 1);
  for (let j = d - 1; j >= 0; j--) tails[j] = tails[j + 1] + spectrum[j] * power(j);
  const inner = leastSquares(X, Y, n, d, q, dimensions.filter((m) => m <= n));
  const outer = leastNorm(X, Y, n, d, q, dimensions.filter((m) => m > n));
  return [...inner, ...outer].map(({ m, theta }) => {
    let risk = tails[m];
    for (let j = 0; j < m; j++) for (let r = 0; r < q; r++) risk += spectrum[j] * (theta[j * q + r] - truth[r * d + j]) ** 2;
    return risk;
  });
}

/** (XᵀX)^{−1}XᵀY on the first m ≤ n inputs. */
function leastSquares(X, Y, n, d, q, dimensions) {
  const most = dimensions.at(-1) ?? 0;
  const [A, B] = [new Float64Array(most * most), new Float64Array(most * q)];
  for (let k = 0; k < n; k++) {
    for (let i = 0; i < most; i++) {
      const x = X[k * d + i];
      for (let j = 0; j < most; j++) A[i * most + j] += x * X[k * d + j];
      for (let r = 0; r < q; r++) B[i * q + r] += x * Y[k * q + r];
    }
  }
  return dimensions.map((m) => {
    const block = Float64Array.from({ length: m * m }, (_, i) => A[Math.floor(i / m) * most + (i % m)]);
    return { m, theta: solve(block, B.slice(0, m * q), m, q) };
  });
}

/** Xᵀ(XXᵀ)^{−1}Y on the first m > n inputs; XXᵀ grows with m. */
function leastNorm(X, Y, n, d, q, dimensions) {
  const gram = new Float64Array(n * n);
  let used = 0;
  return dimensions.map((m) => {
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        for (let a = used; a < m; a++) gram[i * n + j] += X[i * d + a] * X[j * d + a];
      }
    }
    used = m;
    const weights = solve(gram.slice(), Float64Array.from(Y), n, q);
    const theta = new Float64Array(m * q);
    for (let k = 0; k < n; k++) {
      for (let j = 0; j < m; j++) for (let r = 0; r < q; r++) theta[j * q + r] += X[k * d + j] * weights[k * q + r];
    }
    return { m, theta };
  });
}

/**
 * The expected excess risk {bias, variance} at d′ inputs (Hastie, Montanari, Rosset, Tibshirani 2022): with
 * σ² the noise and what the inputs left out add to it, d′/(n − d′ − 1) of it below d′ = n; above, κ
 * with Σ λ_i/(λ_i + κ) = n and df₂ = Σ λ_i²/(λ_i + κ)².
 */
export function expectedRisk(spectrum, powers, noise, q, n, m) {
  let rest = 0;
  for (let j = m; j < spectrum.length; j++) rest += spectrum[j] * powers[j];
  const level = noise ** 2 * q + rest;
  if (m <= n) return { bias: rest, variance: m < n - 1 ? (level * m) / (n - m - 1) : Infinity };
  const used = Array.from(spectrum.subarray(0, m));
  let [low, high] = [-80, Math.log(used.reduce((sum, value) => sum + value, 0) / n)];
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2;
    const kappa = Math.exp(middle);
    if (used.reduce((sum, value) => sum + value / (value + kappa), 0) > n) low = middle;
    else high = middle;
  }
  const kappa = Math.exp((low + high) / 2);
  const shares = used.map((value) => value / (value + kappa));
  const second = dot(shares, shares);
  const left = shares.reduce((sum, share) => sum + share * (1 - share), 0); // n − df₂
  const missed = shares.reduce((sum, share, j) => sum + (1 - share) ** 2 * used[j] * powers[j], 0);
  return { bias: rest + (n * missed) / left, variance: (level * second) / left };
}

/** Numbers of inputs from 1 to d, dense around n. */
function dimensionsOf(n, d) {
  const near = Array.from({ length: 2 * POINTS }, (_, i) => Math.round(n * (i + 1) * (2 / (2 * POINTS))));
  const far = Array.from({ length: POINTS }, (_, i) => Math.round(2 * n * (d / (2 * n)) ** ((i + 1) / POINTS)));
  return [...new Set([...near, ...far])].filter((m) => m >= 1 && m <= d).sort((a, b) => a - b);
}

/** Everything the page shows: `DRAWS` samples, the expectation, and what predicting zero costs. */
export function doubleDescent(state) {
  const dimensions = dimensionsOf(state.wide_samples, state.wide_dimension);
  const draws = [];
  let data;
  for (let k = 0; k < DRAWS; k++) {
    data = populationData(state, k);
    draws.push(fittedRisks(data, dimensions));
  }
  const { spectrum, truth, n, d, q } = data;
  const powers = Array.from(spectrum, (_, j) => { let sum = 0; for (let r = 0; r < q; r++) sum += truth[r * d + j] ** 2; return sum; });
  const expected = dimensions.map((m) => expectedRisk(spectrum, powers, state.wide_noise, q, n, m));
  const zero = powers.reduce((sum, power, j) => sum + power * spectrum[j], 0);
  return { dimensions, draws, expected, zero, n, d };
}

// The price of interpolation: exact excess risk, its parts, effective ranks and the bound of BO.
import { dot, norm } from "./linear_algebra.js";

/**
 * The excess risk taken apart, effective ranks (BO-D2.1) and the bound BO-T3.1. With P the
 * projection on the data, Θ − Θ* = P(Θ − Θ*) − (I − P)Θ* + Θ_⊥, and P Θ = Θ_min once the data are fitted:
 * the squares of the three parts (noise, bias, xi) and the rest, their products (cross), add up to the risk.
 */
export function riskOf(problem, { spectrum, truth, n, d, q }, run, { wide_noise }) {
  const size = (map) => map.reduce((sum, value, i) => sum + value * value * spectrum[i % d], 0);
  const minus = (a, b) => a.map((value, i) => value - b[i]);
  const onData = projected(problem, truth);
  const beside = minus(truth, onData);
  const [bias, noise, xi] = [size(beside), size(minus(problem.optimum, onData)), size(run.perpendicular)];
  const risk = size(minus(run.theta, truth));
  let trace = 0;
  for (let i = 0; i < problem.rank; i++) {
    const u = problem.eigenvectors.subarray(i * d, i * d + d);
    trace += size(u) / (n * problem.eigenvalues[i]);
  }
  const ranks = effectiveRanks(spectrum);
  const k = ranks.small.findIndex((value) => value >= n);
  const perpendicular = norm(run.perpendicular);
  const bound = k < 0 ? null : {
    bias: (ranks.tails[k] / n) * dot(truth, truth),
    variance: q * Math.log(q / 0.1) * (k / n + n / ranks.large[k]),
    xi: (ranks.tails[k] / n) * perpendicular ** 2,
  };
  return {
    spectrum, ranks, index: k, bound, perpendicularNorm: perpendicular,
    risk, interpolantRisk: size(minus(problem.optimum, truth)),
    interpolantNorm: norm(problem.optimum), zeroRisk: size(truth),
    bias, noise, xi, cross: risk - bias - noise - xi,
    variance: wide_noise ** 2 * q * trace,
    riskBound: 2 * size(minus(beside, run.perpendicular)) + 2 * noise,
  };
}

function projected({ rank, d, q, eigenvectors }, map) {
  const out = new Float64Array(map.length);
  for (let i = 0; i < rank; i++) {
    const u = eigenvectors.subarray(i * d, i * d + d);
    for (let r = 0; r < q; r++) {
      const along = dot(map.subarray(r * d, r * d + d), u);
      for (let a = 0; a < d; a++) out[r * d + a] += along * u[a];
    }
  }
  return out;
}

/** s_j, r_j = s_j/λ_{j+1} and R_j = s_j²/Σ_{i>j}λ_i², summed from the smallest (BO-D2.1). */
export function effectiveRanks(spectrum) {
  const sorted = Float64Array.from(spectrum).sort().reverse();
  const d = sorted.length;
  const [tails, small, large] = [0, 1, 2].map(() => new Float64Array(d));
  let [sum, squares] = [0, 0];
  for (let j = d - 1; j >= 0; j--) {
    sum += sorted[j];
    squares += sorted[j] ** 2;
    tails[j] = sum;
    small[j] = sorted[j] > 0 ? sum / sorted[j] : 0;
    large[j] = squares > 0 ? sum ** 2 / squares : 0;
  }
  return { tails, small, large };
}

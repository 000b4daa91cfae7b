// The price of interpolation: exact excess risk, its parts and effective ranks.
import { dot, norm } from "./linear_algebra.js";

/**
 * The excess risk taken apart, and effective ranks (BO-D2.1). With P the
 * projection on the data, Θ − Θ* = P(Θ − Θ*) − (I − P)Θ* + Θ_⊥, and P Θ = Θ_min once the data are fitted:
 * the squares of the three parts (noise, bias, xi) and the rest, their products (cross), add up to the risk.
 */
export function riskOf(problem, { spectrum, truth, n, d }, run) {
  const size = (map) => map.reduce((sum, value, i) => sum + value * value * spectrum[i % d], 0);
  const minus = (a, b) => a.map((value, i) => value - b[i]);
  const onData = projected(problem, truth);
  const beside = minus(truth, onData);
  const [bias, noise, xi] = [size(beside), size(minus(problem.optimum, onData)), size(run.perpendicular)];
  const risk = size(minus(run.theta, truth));
  const ranks = effectiveRanks(spectrum);
  return {
    spectrum, ranks, index: ranks.findIndex((value) => value >= n), perpendicularNorm: norm(run.perpendicular),
    risk, interpolantRisk: size(minus(problem.optimum, truth)),
    interpolantNorm: norm(problem.optimum), zeroRisk: size(truth),
    bias, noise, xi, cross: risk - bias - noise - xi,
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

/** r_j = s_j/λ_{j+1} with s_j = Σ_{i>j}λ_i, summed from the smallest (BO-D2.1). */
function effectiveRanks(spectrum) {
  const sorted = Float64Array.from(spectrum).sort().reverse();
  const ranks = new Float64Array(sorted.length);
  let sum = 0;
  for (let j = sorted.length - 1; j >= 0; j--) {
    sum += sorted[j];
    ranks[j] = sorted[j] > 0 ? sum / sorted[j] : 0;
  }
  return ranks;
}

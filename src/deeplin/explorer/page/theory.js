// What is known before training: the least sharpness a minimizer can have, and what follows.
import { dot, norm, symmetricEigen } from "./linear_algebra.js";

/** Minimum of a unimodal function on [low, high] by golden section. */
function goldenSection(f, low, high, rounds = 90) {
  const share = (Math.sqrt(5) - 1) / 2;
  let [a, b] = [low, high];
  let [x, y] = [b - share * (b - a), a + share * (b - a)];
  let [fx, fy] = [f(x), f(y)];
  for (let i = 0; i < rounds; i++) {
    if (fx <= fy) {
      [b, y, fy] = [y, x, fx];
      x = b - share * (b - a);
      fx = f(x);
    } else {
      [a, x, fx] = [x, y, fy];
      y = a + share * (b - a);
      fy = f(y);
    }
  }
  return Math.min(fx, fy);
}

/** Θ* in the eigenbasis of Σ̂: rows c_i = Θ*u_i (rank × q). */
function coordinates({ rank, d, q, optimum, eigenvectors }) {
  return Array.from({ length: rank }, (_, i) => {
    const u = eigenvectors.subarray(i * d, i * d + d);
    return Float64Array.from({ length: q }, (_, r) => dot(optimum.subarray(r * d, r * d + d), u));
  });
}

/**
 * The least sharpness of a minimizer, the bracket of FM-T2 (one output only) and the
 * limit of vanishing initialization S_bal. One search, in s = log v:
 * S_min^{L/(L−1)} = min 2(L−1)(2/v)^{1/(L−1)}‖p‖^{2/(L−1)} λ_max(Θ*Σ̂(I − vΣ̂)^{−1}Θ*ᵀ), 0 < v < 1/Λ,
 * whose logarithm is convex.
 */
export function minimalSharpness(problem, depth, readoutNorm = 1) {
  const L = depth;
  const { eigenvalues, q } = problem;
  const largest = eigenvalues[0];
  const C = coordinates(problem);
  if (L === 1) {
    const exact = 2 * readoutNorm ** 2 * largest;
    return { ...bracket(problem, L, readoutNorm, C), exact, balanced: exact };
  }
  const value = (s) => {
    const v = Math.exp(s) / largest;
    const M = weighted(C, q, (i) => eigenvalues[i] / (1 - v * eigenvalues[i]));
    const top = q === 1 ? M[0] : symmetricEigen(M, q).values[0];
    return Math.log(top) - s / (L - 1);
  };
  // 1 − vΛ is 1 − e^s: search in its logarithm too, the minimum may be close to v = 1/Λ
  const least = goldenSection((z) => value(-Math.log1p(Math.exp(-z))), -40, 34);
  const constant =
    Math.log(2 * (L - 1)) + (Math.log(2 * largest) + 2 * Math.log(readoutNorm)) / (L - 1);
  const exact = Math.exp(((L - 1) / L) * (least + constant));
  const balanced = q === 1 ? balancedSharpness(problem, L, readoutNorm) : null;
  return { ...bracket(problem, L, readoutNorm, C), exact, balanced };
}

/** Σ_i weight(i) c_i c_iᵀ (q×q). */
function weighted(C, q, weight) {
  const M = new Float64Array(q * q);
  C.forEach((c, i) => {
    const w = weight(i);
    for (let r = 0; r < q; r++) for (let s = 0; s < q; s++) M[r * q + s] += w * c[r] * c[s];
  });
  return M;
}

/** FM-T2: 2‖w*‖^{2−2/L}‖p‖^{2/L}·(La, sqrt((2L−1)Λ² + (L−1)²a²)). */
function bracket(problem, L, readoutNorm, C) {
  if (problem.q > 1) return { lower: null, upper: null };
  const largest = problem.eigenvalues[0];
  const size = norm(problem.optimum);
  const a = weighted(C, 1, (i) => problem.eigenvalues[i])[0] / size ** 2;
  const factor = 2 * size ** (2 - 2 / L) * readoutNorm ** (2 / L);
  const upper = factor * Math.sqrt((2 * L - 1) * largest ** 2 + (L - 1) ** 2 * a ** 2);
  return { lower: factor * L * a, upper };
}

/** S_bal = λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), one output. */
function balancedSharpness(problem, depth, readoutNorm = 1) {
  const { eigenvalues, rank } = problem;
  const size = norm(problem.optimum);
  const z = coordinates(problem).map((c, i) => (c[0] / size) * Math.sqrt(eigenvalues[i]));
  const M = new Float64Array(rank * rank);
  for (let i = 0; i < rank; i++) {
    for (let j = 0; j < rank; j++) M[i * rank + j] = (depth - 1) * z[i] * z[j];
    M[i * rank + i] += eigenvalues[i];
  }
  const factor = 2 * size ** (2 - 2 / depth) * readoutNorm ** (2 / depth);
  return factor * symmetricEigen(M, rank).values[0];
}

/** Sharpness above which a minimum is unstable for steps of size η: 2/η, with momentum (2 + 2β)/η. */
export function stabilityThreshold({ learning_rate, momentum = 0 }) {
  return (2 + 2 * momentum) / learning_rate;
}

// What is known before training: the least sharpness a minimizer can have, and what follows.
import { dot, norm, symmetricEigen } from "./linear_algebra.js";
import { LinearModel } from "./network.js";
import { Random } from "./random.js";
import { SharpnessTracker } from "./sharpness.js";

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
export function balancedSharpness(problem, depth, readoutNorm = 1) {
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
export function stabilityThreshold({ learning_rate, momentum = 0, nesterov = false }) {
  const top = 2 + 2 * momentum;
  return (nesterov ? top / (1 + 2 * momentum) : top) / learning_rate;
}

/**
 * The global minimizer of R + λΣ‖W_k‖² for one output: w = (Σ̂ + μI)^{−1}Σ̂w* with
 * μ = λ‖w‖^{2/L−2}, the best root or w = 0, and its sharpness, which all of them share.
 */
export function decayedMinimum(problem, depth, decay) {
  const { eigenvalues, rank } = problem;
  const c = coordinates(problem).map((row) => row[0]);
  const at = (mu) => c.map((value, i) => (value * eigenvalues[i]) / (eigenvalues[i] + mu));
  const size = (w) => Math.sqrt(w.reduce((sum, value) => sum + value * value, 0));
  const miss = (s) => s - Math.log(decay) - (2 / depth - 2) * Math.log(size(at(Math.exp(s))));
  const risk = (w) => w.reduce((sum, v, i) => sum + eigenvalues[i] * (v - c[i]) ** 2, 0);
  let best = { w: c.map(() => 0), objective: risk(c.map(() => 0)), collapsed: true };
  const [low, high, count] = [Math.log(eigenvalues[rank - 1]) - 40, Math.log(eigenvalues[0]) + 40, 800];
  for (let i = 0; i < count; i++) {
    let [a, b] = [low + ((high - low) * i) / count, low + ((high - low) * (i + 1)) / count];
    if (miss(a) > 0 || miss(b) <= 0) continue; // a minimum: the derivative of F crosses upward
    for (let k = 0; k < 100; k++) {
      const middle = (a + b) / 2;
      if (miss(middle) > 0) b = middle;
      else a = middle;
    }
    const w = at(Math.exp((a + b) / 2));
    const objective = risk(w) + decay * depth * size(w) ** (2 / depth);
    if (objective < best.objective) best = { w, objective, collapsed: false };
  }
  const sharpness = decayedSharpness(problem, depth, decay, best);
  return { ...best, objective: best.objective + problem.minimalRisk, sharpness };
}

/** Largest eigenvalue of ∇²(R + λΣ‖W‖²) at the balanced network with product w (eigenbasis). */
function decayedSharpness(problem, depth, decay, { w, collapsed }) {
  const { eigenvalues, rank } = problem;
  if (collapsed && depth > 2) return 2 * decay; // the Hessian of R vanishes at zero
  const basis = {
    ...problem, d: rank, diagonal: eigenvalues,
    optimum: Float64Array.from(coordinates(problem), (row) => row[0]),
  };
  const widths = [rank, ...Array(depth - 1).fill(2), 1];
  const model = new LinearModel(basis, widths);
  const weights = new Float64Array(model.size);
  const size = Math.hypot(...w);
  const layer = size ** (1 / depth);
  if (size > 0) {
    for (let k = 0; k < depth; k++) weights[model.offsets[k]] = layer;
    for (let i = 0; i < rank; i++) weights[i] = (layer * w[i]) / size;
  }
  model.load(weights);
  const tracker = new SharpnessTracker(model, new Random(1));
  return tracker.measure({ tolerance: 1e-9, most: 500 }) + 2 * decay;
}

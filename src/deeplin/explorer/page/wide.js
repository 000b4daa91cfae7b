// Networks of any width, trained exactly at the cost of one of width rank(X) + q.
import { descend } from "./descent.js";
import { dot, identity, multiply, norm, symmetricEigen, transpose } from "./linear_algebra.js";
import { LinearModel } from "./network.js";
import { riskOf } from "./overfitting.js";
import { inEigenbasis } from "./problem.js";
import { Random } from "./random.js";

const RECORDS = 400;
const EARLY = 16; // steps that are all recorded
const LOSS_TARGET = 1e-7;

/** The population's eigenvalues: k spikes and a flat tail, or a power law. */
function spectrumOf(state) {
  const { wide_dimension, spectrum, exponent, spikes, epsilon } = state;
  return Float64Array.from({ length: wide_dimension }, (_, j) => {
    if (spectrum === "power") return (j + 1) ** -exponent;
    return j < spikes ? 1 : epsilon;
  });
}

/** Gaussian rows with this spectrum, Y = XΘ*ᵀ + noise, ‖Θ*‖_F = 1 (BO); Θ* is that of every draw. */
export function populationData(state, draw = 0) {
  const spectrum = spectrumOf(state);
  const [n, d, q] = [state.wide_samples, state.wide_dimension, state.wide_outputs];
  let random = new Random(state.wide_seed, 21);
  const truth = random.normals(q * d);
  const size = norm(truth);
  for (let i = 0; i < q * d; i++) truth[i] /= size;
  if (draw) random = new Random(state.wide_seed, 100 + draw);
  const X = random.normals(n * d);
  for (let i = 0; i < n * d; i++) X[i] *= Math.sqrt(spectrum[i % d]);
  const Y = multiply(X, transpose(truth, q, d), n, d, q);
  for (let i = 0; i < n * q; i++) Y[i] += state.wide_noise * random.normal();
  return { spectrum, truth, X, Y, n, d, q };
}

/** The problem of n < d rows through the n×n Gram matrix: spectrum and vectors of Σ̂, Θ_min. */
export function interpolation({ X, Y, n, d, q }) {
  const gram = multiply(X, transpose(X, n, d), n, d, n).map((value) => value / n);
  const { values, vectors } = symmetricEigen(gram, n);
  const floor = 2.3e-16 * Math.max(n, d) * values[0];
  const rank = values.filter((value) => value > floor).length;
  const basis = multiply(vectors.subarray(0, rank * n), X, rank, n, d);
  const optimum = new Float64Array(q * d);
  const targets = multiply(vectors.subarray(0, rank * n), Y, rank, n, q);
  for (let i = 0; i < rank; i++) {
    const length = Math.sqrt(n * values[i]);
    const u = basis.subarray(i * d, i * d + d);
    for (let a = 0; a < d; a++) u[a] /= length;
    for (let r = 0; r < q; r++) {
      const c = targets[i * q + r] / length;
      for (let a = 0; a < d; a++) optimum[r * d + a] += c * u[a];
    }
  }
  const targetMoment = dot(Y, Y) / n;
  const fitted = dot(targets, targets) / n; // ‖UᵀY‖²/n: all of it where rank = n
  return {
    n, d, q, rank, optimum, targetMoment, minimalRisk: Math.max(targetMoment - fitted, 0) * (rank < n),
    eigenvalues: values.slice(0, rank), eigenvectors: basis, covariance: null, X: null, Y: null,
  };
}

/** The reduced start of BO-D2.3 at width m, drawn without any m-wide matrix (X-5, Bartlett). */
function drawStart(problem, { width, depth, alpha, beta, random }) {
  const { rank, q } = problem;
  const total = rank + q;
  const r = Math.min(width, total);
  const factor = new Float64Array(r * total);
  for (let i = 0; i < r; i++) {
    for (let j = 0; j < total; j++) {
      if (width < total || j > i) factor[i * total + j] = random.normal();
      else if (j === i) factor[i * total + j] = Math.sqrt(random.chiSquare(width - i));
    }
  }
  const first = new Float64Array(r * rank);
  const last = new Float64Array(q * r);
  for (let i = 0; i < r; i++) {
    for (let j = 0; j < rank; j++) first[i * rank + j] = alpha * factor[i * total + j];
    for (let s = 0; s < q; s++) last[s * r + i] = beta * factor[i * total + rank + s];
  }
  return layersOf(first, last, r, depth);
}

function layersOf(first, last, r, depth) {
  const weights = new Float64Array(first.length + (depth - 2) * r * r + last.length);
  weights.set(first, 0);
  for (let k = 0; k < depth - 2; k++) weights.set(identity(r), first.length + k * r * r);
  weights.set(last, weights.length - last.length);
  return { weights, r };
}

/** Descent on the mean loss R/q of the reduced network; {theta, distance, loss, status, …}. */
export function trainReduced(problem, start, options) {
  const { learning_rate, max_steps, depth, loss_target = LOSS_TARGET, record_every } = options;
  const { q, rank, d } = problem;
  const reduced = inEigenbasis(problem);
  const widths = [rank, ...Array(depth - 1).fill(start.r), q];
  const model = new LinearModel(reduced, widths);
  const weights = Float64Array.from(start.weights);
  const records = { step: [], loss: [], distance: [], perpendicular: [] };
  const goal = q * loss_target;
  let taken = 0;
  const note = (step) => {
    const inside = model.distance;
    const outside = perpendicularOf(model, start, d, q);
    const beside = dot(outside, outside);
    records.step.push(step);
    records.loss.push(model.risk / q);
    records.distance.push(inside + beside);
    records.perpendicular.push(beside);
  };
  const outcome = descend(
    model, weights,
    { learning_rate: learning_rate / q, steps: max_steps, record_every: 1, stop: () => model.risk <= goal },
    (step) => {
      taken = step;
      if (step % record_every === 0 || step < EARLY) note(step);
    },
  );
  if (records.step.at(-1) !== taken) note(taken);
  const perpendicular = perpendicularOf(model, start, d, q);
  const theta = Float64Array.from(perpendicular);
  for (let s = 0; s < q; s++) {
    for (let i = 0; i < rank; i++) {
      const c = model.theta[s * rank + i];
      for (let a = 0; a < d; a++) theta[s * d + a] += c * problem.eigenvectors[i * d + a];
    }
  }
  const status = outcome.status === "diverged" ? "diverged" : model.risk <= goal ? "converged" : "stopped";
  return {
    theta, perpendicular, records, status, steps: outcome.steps, loss: model.risk / q, r: start.r,
    distance: records.distance.at(-1),
  };
}

/** Θ_⊥ = A_L…A_2 N (q×d): the map outside the span of the data. */
function perpendicularOf(model, start, d, q) {
  return multiply(model.B[1], start.outside, q, start.r, d);
}

/** The learning rate on the mean loss at which descent is unstable at the start, nearly. */
function stableLimit(problem, start, depth) {
  const { rank, q, eigenvalues } = problem;
  const { r, weights } = start;
  const last = weights.subarray(weights.length - q * r);
  const b = symmetricEigen(multiply(last, transpose(last, q, r), q, r, q), q).values[0];
  const scaled = weights.slice(0, r * rank).map((value, i) => value * Math.sqrt(eigenvalues[i % rank]));
  const share = (depth - 2) * b + 1;
  let vector = new Float64Array(rank).fill(1);
  let length = 0;
  for (let k = 0; k < 40; k++) {
    const unit = vector.map((value) => value / norm(vector));
    const image = multiply(multiply(unit, transpose(scaled, r, rank), 1, rank, r), scaled, 1, r, rank);
    vector = image.map((value, i) => share * value + b * eigenvalues[i] * unit[i]);
    length = norm(vector);
  }
  return (2 * q) / (2 * length);
}

/** Everything the page of wide networks shows. */
export function wide(state) {
  const data = populationData(state);
  const problem = interpolation(data);
  const random = new Random(state.wide_seed, 22);
  const depth = state.wide_depth;
  const start = drawStart(problem, {
    width: state.wide_width, depth, alpha: state.alpha, beta: state.beta, random,
  });
  start.outside = outsidePart(problem, start.r, state.alpha, new Random(state.wide_seed, 23));
  const learning_rate = state.wide_rate * stableLimit(problem, start, depth);
  const record_every = Math.max(1, Math.floor(state.wide_steps / RECORDS));
  const run = trainReduced(problem, start, { learning_rate, max_steps: state.wide_steps, depth, record_every });
  return { ...run, learning_rate, zeroLoss: problem.targetMoment / data.q, ...riskOf(problem, data, run) };
}

/** N = α·(Gaussian r×d without its part on the data). */
function outsidePart(problem, r, alpha, random) {
  const { d, rank, eigenvectors: Q } = problem;
  const N = random.normals(r * d);
  for (let i = 0; i < r; i++) {
    const row = N.subarray(i * d, i * d + d);
    for (let j = 0; j < rank; j++) {
      const u = Q.subarray(j * d, j * d + d);
      const along = dot(row, u);
      for (let a = 0; a < d; a++) row[a] -= along * u[a];
    }
    for (let a = 0; a < d; a++) row[a] *= alpha;
  }
  return N;
}

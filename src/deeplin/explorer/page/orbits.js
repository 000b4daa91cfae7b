// Above the critical rate: the orbits of balanced modes, and what a whole network does there.
//
// The loss is ½‖Θ − S‖_F² (white inputs, S diagonal), as in the literature on orbits; for the mean
// squared error without ½ and Σ̂ = I every rate is half as large. L equal weights x of a mode with
// target σ take the step x ← x + η(σ − x^L)x^{L−1}.
import { descend } from "./descent.js";
import { LinearModel } from "./network.js";
import { fromMoments } from "./problem.js";
import { Random } from "./random.js";

const RATES = 141;
const FIRST = 0.95; // of the critical rate
const SPACING = 0.008; // of the critical rate
const SETTLING = 1000; // steps of a mode before its orbit is looked at
const NETWORK_SETTLING = 4000; // a network out of balance takes longer
const SHOWN = 48; // steps of an orbit that are kept
const START = 0.01; // how far from balanced the network starts
const BOUND = 1e6; // a mode beyond this has diverged

/** The rate above which the rest of a mode is unstable, 2/(Lσ^{2−2/L}). */
export const modeThreshold = (target, depth) => 2 / (depth * target ** (2 - 2 / depth));

/** {low, high, multiplier, balance} of the orbit of period two, or null where the mode settles. */
export function balancedOrbit(target, depth, rate) {
  const L = depth;
  const scaled = rate * target ** (2 - 2 / L);
  if (scaled <= (2 / L) * (1 + 1e-14)) return null;
  const share = (u) => (1 + Math.exp((L - 1) * u)) / (1 + Math.exp((2 * L - 1) * u)); // x^L/σ
  const scaledRate = (u) => {
    const rest = (Math.expm1(L * u) * Math.exp((L - 1) * u)) / (1 + Math.exp((2 * L - 1) * u));
    return Math.expm1(u) / (rest * share(u) ** (1 - 2 / L));
  };
  const u = bisect((value) => scaledRate(value) - scaled, 1e-9, 20);
  const low = (target * share(u)) ** (1 / L);
  const a = Math.exp(u);
  const slope = (x) => 1 + rate * ((L - 1) * target * x ** (L - 2) - (2 * L - 1) * x ** (2 * L - 2));
  return { low, high: a * low, multiplier: slope(low) * slope(a * low), balance: (2 - a) * (2 - 1 / a) };
}

/** The rate at which the orbit of period two becomes one of period four: its multiplier is −1. */
export function doublingRate(target, depth) {
  const threshold = modeThreshold(target, depth);
  return bisect((rate) => -1 - balancedOrbit(target, depth, rate).multiplier, threshold * (1 + 1e-6), 3 * threshold);
}

/** Root of an increasing function. */
function bisect(f, low, high) {
  let [a, b] = [low, high];
  for (let i = 0; i < 200 && b - a > 1e-15 * b; i++) {
    const middle = (a + b) / 2;
    if (f(middle) < 0) a = middle;
    else b = middle;
  }
  return (a + b) / 2;
}

/** The products x^L of one mode over `SHOWN` steps after it has settled; null where it diverges. */
export function modeIterates(target, depth, rate) {
  let x = 1.01 * target ** (1 / depth);
  const products = [];
  for (let step = 0; step < SETTLING + SHOWN; step++) {
    if (!(Math.abs(x) < BOUND)) return null;
    let power = 1; // x^{L−1}
    for (let k = 1; k < depth; k++) power *= x;
    if (step >= SETTLING) products.push(power * x);
    x += rate * (target - power * x) * power;
  }
  return products;
}

/** The least period ≤ `most` of a list of iterates, or null. */
function periodOf(values, most = 16) {
  const size = Math.max(...values.map(Math.abs));
  for (let period = 1; period <= most; period++) {
    if (values.every((value, i) => i < period || Math.abs(value - values[i - period]) <= 1e-6 * size)) return period;
  }
  return null;
}

const DEAD = 1e-6; // of the target: a mode that ends below this has run into the saddle at zero

/** What the last products of a mode do: {kind: "diverges" | "dies" | "settles" | "period" | "none", period}. */
export function orbitKind(products, target) {
  if (!products) return { kind: "diverges", period: null };
  if (products.every((value) => Math.abs(value) < DEAD * target)) return { kind: "dies", period: null };
  const period = periodOf(products);
  return { kind: period === 1 ? "settles" : period ? "period" : "none", period };
}

/** The same in words. */
export function orbitText(products, target) {
  const { kind, period } = orbitKind(products, target);
  return { diverges: "the mode alone diverges", dies: "the mode dies at zero", settles: "the mode settles", period: `the mode has period ${period}`, none: "the mode has no period up to 16" }[kind];
}

/** The network of ½‖W_L…W_1 − diag(targets)‖², slightly out of balance: {model, weights}. */
function networkOf(targets, depth) {
  const q = targets.length;
  const [covariance, cross] = [new Float64Array(q * q), new Float64Array(q * q)];
  targets.forEach((target, i) => {
    covariance[i * (q + 1)] = 0.5;
    cross[i * (q + 1)] = target / 2;
  });
  const moment = targets.reduce((sum, target) => sum + target ** 2 / 2, 0);
  const model = new LinearModel(fromMoments(covariance, cross, moment, q, q, q), Array(depth + 1).fill(q));
  const weights = new Random(1, 3).normals(model.size).map((value) => START * value);
  for (let k = 0; k < depth; k++) targets.forEach((target, i) => { weights[model.offsets[k] + i * (q + 1)] += target ** (1 / depth); });
  return { model, weights };
}

/** The diagonal of the product, the modes in the basis of the targets, over the last steps; null where it diverges. */
export function networkIterates(targets, depth, rate) {
  const { model, weights } = networkOf(targets, depth);
  const q = targets.length;
  const steps = NETWORK_SETTLING + SHOWN;
  const values = [];
  const { status } = descend(model, weights, { learning_rate: rate, steps: steps - 1, record_every: 1 }, (step) => {
    if (step >= NETWORK_SETTLING) values.push(targets.map((_, i) => model.theta[i * (q + 1)]));
  });
  return status === "diverged" ? null : values;
}

/** The rates of the diagram, as multiples of the critical rate of the largest target. */
export function ratesOf({ orbit_depth, sigma_1, sigma_2, sigma_3 }) {
  const critical = modeThreshold(Math.max(sigma_1, sigma_2, sigma_3), orbit_depth);
  return Float64Array.from({ length: RATES }, (_, i) => critical * (FIRST + SPACING * i));
}

/** What one rate does to each mode alone and to the network: [{mode, network}] for a part of the rates. */
export function orbitsAt({ orbit_depth, sigma_1, sigma_2, sigma_3 }, rates) {
  const targets = [sigma_1, sigma_2, sigma_3].sort((a, b) => b - a);
  return Array.from(rates, (rate) => ({
    rate,
    mode: modeIterates(targets[0], orbit_depth, rate),
    network: networkIterates(targets, orbit_depth, rate),
  }));
}

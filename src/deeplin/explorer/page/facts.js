// What runs did, measured from their records: nothing is said about a run that is not computed here.
import { orbitText } from "./orbits.js";
import { format } from "./scales.js";

const NEAR = 0.1; // how far from 2/η, relatively, still counts as the edge
const CHANGED = 1.3; // factor between start and end that counts as growing or falling
const ROSE = 1.1; // factor above the start that counts as a jump of the risk
const ROUNDING = 1e-9; // of its value: a smaller change of the risk is rounding

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.floor(sorted.length / 2)]) / 2;
}

/** Whether the risk rose from one value to the next by more than rounding. */
export const rises = (before, now) => now > before * (1 + ROUNDING);

/** What the risk does in the second half of a run: "swings" (it also rises), "falls", or "rests" (neither, beyond rounding). */
export function lateMotion({ gap, risk }) {
  const values = gap?.length ? gap : risk;
  const late = values.slice(Math.floor(values.length / 2));
  if (late.some((value, i) => i > 0 && rises(late[i - 1], value))) return "swings";
  return rises(late.at(-1), late[0]) ? "falls" : "rests";
}

/** The facts of every run of a training. */
export const factsOfRuns = ({ runs, threshold, steps, linear }) => runs.map((run) => factsOf(run, threshold, steps, linear));

/** The numbers of one run that the sentences below are about; ratios of sharpness are to 2/η. */
function factsOf(run, threshold, steps, linear) {
  const excess = run.gap?.length ? run.gap : run.risk;
  const { sharpness } = run;
  const late = steps.findIndex((step) => 3 * step >= 2 * steps[sharpness.length - 1]); // the last third of the steps
  const facts = {
    status: run.status,
    rise: Math.max(...excess) / excess[0],
    fall: excess.at(-1) / excess[0],
    growth: sharpness.at(-1) / sharpness[0],
    start: sharpness[0] / threshold,
    highest: Math.max(...sharpness) / threshold,
    edge: mean(sharpness.slice(late)) / threshold,
    final: sharpness.at(-1),
  };
  const lost = run.status === "diverged";
  return {
    ...facts, lost,
    settled: run.status === "converged",
    dead: !linear && !lost && facts.final === 0, // no unit is active on any row: every derivative is zero
    catapult: !lost && facts.rise > ROSE && facts.fall < 0.5 && facts.start > 1 && facts.edge < 1,
    atEdge: !lost && Math.abs(facts.edge - 1) <= NEAR && facts.highest > 0.97,
    above: !lost && facts.edge > 1 + NEAR,
    sharpening: !lost && facts.growth > CHANGED,
    flattening: !lost && facts.growth < 1 / CHANGED,
  };
}

/** "a–b" of a number over runs. */
export function range(values, digits = 3) {
  const [low, high] = [format(Math.min(...values), digits), format(Math.max(...values), digits)];
  return low === high ? low : `${low}–${high}`;
}

const all = (facts, test) => facts.length > 0 && facts.every(test);
const of = (facts, name) => range(facts.map((fact) => fact[name]));

/** What a guide may claim of a training: {holds, text}; `before` are the facts of the step before. */
const TRAINING_CLAIMS = {
  sharpens: (facts) => ({
    holds: all(facts, (f) => f.growth > 2 && f.highest < 1 && f.settled),
    text: `the sharpness grew ${of(facts, "growth")} times, to at most ${format(Math.max(...facts.map((f) => f.highest)))} · 2/η`,
  }),
  held_down: (facts, { before, threshold }) => ({
    holds: all(facts, (f) => !f.lost && f.edge < 1 + NEAR) && Math.max(...facts.map((f) => f.final)) < 0.95 * Math.max(...(before ?? []).map((f) => f.final)),
    text: `the last third has a mean of ${of(facts, "edge")} · 2/η = ${range(facts.map((f) => f.edge * threshold))}` + (before ? `; before it ended at ${of(before, "final")}` : ""),
  }),
  at_edge: (facts) => ({ holds: all(facts, (f) => f.atEdge), text: `the mean of the last third is ${of(facts, "edge")} · 2/η` }),
  catapult: (facts) => ({
    holds: all(facts, (f) => f.catapult),
    text: `the risk rose to ${of(facts, "rise")} times its start and fell to ${of(facts, "fall")} of it; the sharpness went from ${of(facts, "start")} to ${of(facts, "edge")} · 2/η`,
  }),
  falls: (facts) => ({ holds: all(facts, (f) => !f.lost && f.rise === 1), text: `the highest risk is ${of(facts, "rise")} times that of the start` }),
  settles: (facts, { times }) => ({ holds: all(facts, (f) => f.settled) && times < 1, text: `${count(facts, "settled")} runs settled at ${format(times)} times the critical rate` }),
  swings: (facts, { times }) => ({ holds: all(facts, (f) => !f.settled && !f.lost) && times > 1, text: `${count(facts, "settled")} runs settled and ${count(facts, "lost")} diverged at ${format(times)} times the critical rate` }),
  unsettled: (facts, { times }) => ({ holds: all(facts, (f) => !f.settled) && times > 1, text: `${count(facts, "settled")} runs settled at ${format(times)} times the critical rate` }),
  diverges: (facts, { times }) => ({ holds: facts.some((f) => f.lost), text: `${count(facts, "lost")} runs diverged at ${format(times)} times the critical rate` }),
  balanced: (facts, { theory }) => ({
    holds: all(facts, (f) => f.settled && Math.abs(f.final / theory.balanced - 1) < 0.01),
    text: `the sharpness ended at ${range(facts.map((f) => f.final / theory.balanced), 4)} · S_bal`,
  }),
  apart: (facts, { theory }) => ({
    holds: all(facts, (f) => f.settled && f.final > 1.05 * theory.balanced) && spread(facts) > 1.2,
    text: `the sharpness ended at ${range(facts.map((f) => f.final / theory.balanced))} · S_bal`,
  }),
  residual: (facts, { theory, moved }) => ({
    holds: all(facts, (f) => f.settled && f.rise === 1 && f.flattening && f.final < 2 * theory.exact) && moved < 0.25,
    text: `the sharpness fell to ${of(facts, "growth")} of its start, ${range(facts.map((f) => f.final / theory.exact))} · S_min; the weights of the first run moved by ${Math.round(100 * moved)} % of their norm`,
  }),
  sharper: (facts, { before }) => ({
    holds: !!before && all(facts, (f) => !f.lost) && Math.min(...facts.map((f) => f.final)) > Math.max(...before.map((f) => f.final)),
    text: `the sharpness ended at ${of(facts, "final")}` + (before ? `; before at ${of(before, "final")}` : ""),
  }),
};

const count = (facts, name) => `${facts.filter((fact) => fact[name]).length} of ${facts.length}`;
const spread = (facts) => Math.max(...facts.map((f) => f.final)) / Math.min(...facts.map((f) => f.final));

const NEAR_INTERPOLANT = 1e-4; // of ‖Θ_min‖²
/** ‖Θ_⊥‖²/‖Θ_min‖²: how far from Θ_min an interpolating network is. */
export const outsideShare = (result) => (result.perpendicularNorm / result.interpolantNorm) ** 2;
export const atInterpolant = (result) => outsideShare(result) < NEAR_INTERPOLANT;

const wideText = (r) => `excess risk ${format(r.risk)}: ${format(r.risk / r.interpolantRisk)} times that of the interpolant of least norm, ${format(r.risk / r.zeroRisk)} times that of predicting zero`;
const awayText = (r) => `‖Θ_⊥‖² is ${format(outsideShare(r))} of ‖Θ_min‖²`;
const WIDE_CLAIMS = {
  benign: (r) => ({ holds: r.status === "converged" && r.risk < 1.1 * r.interpolantRisk && r.risk < 0.5 * r.zeroRisk, text: wideText(r) }),
  harmful: (r) => ({ holds: r.status === "converged" && r.risk > r.zeroRisk, text: wideText(r) }),
  away: (r) => ({ holds: r.status === "converged" && !atInterpolant(r), text: awayText(r) }),
  arrives: (r) => ({ holds: r.status === "converged" && atInterpolant(r), text: awayText(r) }),
};

const periodText = (r) => `${orbitText(r.chosen.mode, r.targets[0])} at ${format(r.chosen.rate / r.critical, 4)} times the critical rate`;
const ORBIT_CLAIMS = {
  period_two: (r) => ({ holds: r.period === 2, text: periodText(r) }),
  period_four: (r) => ({ holds: r.period === 4, text: periodText(r) }),
  network_diverges: (r) => ({
    holds: r.chosen.mode !== null && r.chosen.network === null,
    text: `${periodText(r)}; the network ${r.chosen.network ? "stays bounded" : "diverges"}`,
  }),
};

const DOUBLE_DESCENT_CLAIMS = {
  peaks: (r) => ({
    holds: r.first.risk < 0.8 * r.mean[0] && Math.abs(r.peak.dimension / r.n - 1) <= 0.1 && r.peak.risk > 5 * r.first.risk && r.end < 1.2 * r.first.risk,
    text: `the mean of ${r.draws.length} draws falls to ${format(r.first.risk / r.mean[0])} of its first value at ${r.first.dimension} inputs, peaks at ${r.peak.dimension} inputs for ${r.n} samples, with ${format(r.peak.risk / r.end)} times the risk at ${r.d} inputs`,
  }),
};

/** {holds, text} of a claim about what a page shows. */
export function checkClaim(name, state, result, before) {
  if (state.tab === "wide") return WIDE_CLAIMS[name]?.(result);
  if (state.tab === "orbits") return ORBIT_CLAIMS[name]?.(result);
  if (state.tab === "double_descent") return DOUBLE_DESCENT_CLAIMS[name]?.(result);
  if (state.tab !== "training" || !TRAINING_CLAIMS[name]) return undefined;
  const facts = factsOfRuns(result);
  const theory = result.theory ?? {};
  return TRAINING_CLAIMS[name](facts, { theory, before, threshold: result.threshold, times: state.learning_rate / theory.critical, moved: movedShare(result.layers.weights) });
}

/** What the next step of a guide may compare with. */
export function summaryOf(state, result) {
  return state.tab === "training" ? factsOfRuns(result) : null;
}

/** ‖W − W(0)‖/‖W(0)‖ at the end of the first run. */
function movedShare(weights) {
  const [first, last] = [weights[0], weights.at(-1)];
  let [moved, size] = [0, 0];
  for (let i = 0; i < first.length; i++) {
    moved += (last[i] - first[i]) ** 2;
    size += first[i] ** 2;
  }
  return Math.sqrt(moved / size);
}

// What a page shows, in a sentence computed from its numbers.
import { atInterpolant, factsOfRuns, lateMotion, median, outsideShare, range } from "./facts.js";
import { format } from "./scales.js";

const LEARNED = 0.5; // share of the risk at the start below which a network with an activation has learned something

/** {level, headline, text} of a training. */
export function describe(state, result) {
  const { runs, theory, linear } = result;
  const facts = factsOfRuns(result);
  const lost = runs.filter((run) => run.status === "diverged");
  const done = linear ? (fact) => fact.settled : (fact) => fact.fall < LEARNED;
  const settled = lost.length === 0 && facts.every((fact) => done(fact) && !fact.above);
  return {
    level: lost.length === runs.length ? "bad" : settled ? "good" : "warn",
    headline: [outcome(runs, lost, facts, linear, state), ...regimes(facts, edgeName(state))].join(" "),
    text: [rateText(state, result, linear), endText(state, result, facts)].filter(Boolean).join(" "),
    critical: theory?.critical ?? null,
  };
}

/** Sentences on what most runs did, each with its numbers. */
function regimes(facts, edge) {
  const alive = facts.filter((fact) => !fact.lost);
  const most = (name) => alive.filter((fact) => fact[name]).length * 2 > facts.length;
  const told = (name) => {
    const those = alive.filter((fact) => fact[name]);
    return { those, share: those.length === facts.length ? "" : ` (${those.length} of ${facts.length} runs)` };
  };
  const say = (name, sentence) => {
    const { those, share } = told(name);
    return `${sentence(those)}${share}.`;
  };
  const numbers = (those, name) => range(those.map((fact) => fact[name]));
  const out = [];
  if (most("catapult")) out.push(say("catapult", (those) => `Catapult: the risk rises to ${numbers(those, "rise")} times its start and comes down, the sharpness from ${numbers(those, "start")} to ${numbers(those, "edge")} · ${edge}`));
  if (most("atEdge")) out.push(say("atEdge", () => `Edge of stability: the sharpness hovers at ${edge}`));
  else if (most("above")) out.push(say("above", (those) => `The sharpness stays large: the mean of the last third of the steps is ${numbers(those, "edge")} · ${edge}`));
  else if (most("sharpening")) out.push(say("sharpening", (those) => `Progressive sharpening: the sharpness ends at ${numbers(those, "growth")} times its start`));
  else if (most("flattening")) out.push(say("flattening", (those) => `The sharpness falls to ${numbers(those, "growth")} of its start`));
  return out;
}

export const edgeName = ({ momentum }) => (momentum ? "(2+2β)/η" : "2/η");
export const criticalName = (state) => edgeName(state).replace("η", "S_min");

const MOTIONS = { falls: "still falling: not trained yet", swings: "swinging", rests: "resting on a plateau" };

function outcome(runs, lost, facts, linear, state) {
  const all = runs.length;
  if (lost.length) {
    const first = Math.min(...lost.map((run) => run.steps));
    const who = all === 1 ? "The run" : lost.length === all ? "All runs" : `${lost.length} of ${all} runs`;
    return `${who} diverged, the first at step ${first}.`;
  }
  if (!linear) return `Training stayed finite; the risk ended at ${range(facts.map((fact) => fact.fall))} times its start.${deadText(facts)}`;
  const rest = runs.filter((run) => run.status !== "converged");
  if (!rest.length) return all === 1 ? "Converged." : `All ${all} runs converged.`;
  const motions = rest.map(lateMotion);
  const kinds = Object.keys(MOTIONS).filter((kind) => motions.includes(kind));
  const count = (kind) => motions.filter((each) => each === kind).length;
  const why = kinds.length === 1 ? MOTIONS[kinds[0]] : kinds.map((kind) => `${count(kind)} ${MOTIONS[kind].split(":")[0]}`).join(", ");
  return `${all === 1 ? "The run" : `${rest.length} of ${all} runs`} did not converge in ${format(state.steps, 6)} steps (${why}).`;
}

/** A dead network: no unit of some layer is active on any row, so no derivative is left. */
function deadText(facts) {
  const dead = facts.filter((fact) => fact.dead).length;
  if (!dead) return "";
  const who = facts.length === 1 ? "The network is" : dead === facts.length ? `All ${dead} networks are` : `${dead} of ${facts.length} networks ${dead === 1 ? "is" : "are"}`;
  return ` ${who} dead: the sharpness is 0 and no gradient is left, so ${dead === 1 ? "it predicts" : "they predict"} 0 for every row.`;
}

function rateText(state, { theory, separable, targetDeviation }, linear) {
  if (!linear) return "The theory lines are about linear networks and are left out.";
  const rate = `η = ${format(state.learning_rate)}`;
  if (separable) return `${rate}; a linear map separates the classes, so the loss has no minimum and no critical rate (X-16).`;
  if (!theory?.critical) return `${rate}; no critical rate is known for this combination.`;
  const times = state.learning_rate / theory.critical;
  const critical = `the critical rate ${criticalName(state)} = ${format(theory.critical)}${scalingText(state, targetDeviation, theory.critical)}`;
  if (times > 1) return `${rate} is ${format(times)} times ${critical}: no minimizer is stable.`;
  return `${rate} is ${Math.round(100 * times)} % of ${critical}.`;
}

/** Which scaling of a file's columns a rate belongs to, and the rate for its own units. */
function scalingText(state, targetDeviation, critical) {
  if (!targetDeviation || state.loss !== "squared") return targetDeviation ? " (inputs standardized)" : "";
  const standard = "inputs and target standardized, as `deeplin diagnose --no-bias`";
  return ` (${standard}; ${format(critical * targetDeviation ** (2 / state.depth - 2))} for the target in its own units)`;
}

function endText(state, { threshold, theory }, facts) {
  const alive = facts.filter((fact) => !fact.lost);
  if (!alive.length) return "";
  const ended = alive.every((fact) => fact.settled); // the last step of a run that swings says little
  const middle = median(alive.map((fact) => (ended ? fact.final : fact.edge * threshold)));
  const least = ended && theory?.exact ? ` = ${format(middle / theory.exact)} · S_min` : "";
  const name = ended ? "Final sharpness" : "Mean sharpness of the last third of the steps";
  const of = facts.length > 1 ? `, median of ${alive.length} run${alive.length > 1 ? "s" : ""}` : "";
  return `${name}${of}: ${format(middle)} = ${format(middle / threshold)} · ${edgeName(state)}${least}.`;
}

/** {level, headline, text} of a wide network. */
export function describeWide(state, result) {
  const rate = `η = ${format(result.learning_rate, 2)}`;
  if (result.status === "diverged") {
    return {
      level: "bad", headline: `Diverged at step ${result.steps} with ${rate}.`,
      text: "Choose a smaller share of the stable limit.",
    };
  }
  const fitted = result.status === "converged"
    ? `Interpolates after ${format(result.steps)} steps`
    : `Loss ${format(result.loss, 2)} after ${format(result.steps)} steps`;
  const zero = result.risk / result.zeroRisk;
  const worse = zero > 1 ? `Predicting zero is better by a factor of ${format(zero)}` : `${format(1 / zero)} times better than predicting zero`;
  return {
    level: result.status === "converged" && zero < 1 ? "good" : "warn",
    headline: `${fitted} (${rate}, on the mean over outputs); ${endOfWide(result)}.`,
    text:
      `Excess risk ${format(result.risk)}, ${format(result.risk / result.interpolantRisk)} times that of the ` +
      `interpolant. ${worse}. A network of ${state.wide_depth} layers of width ${state.wide_width.toLocaleString("en-US")} ` +
      `simulated exactly by one of width ${result.r}.`,
  };
}

/**
 * Where a wide network ends: an interpolating one differs from the minimum-norm interpolant by Θ_⊥, which stays
 * zero where the first layer starts at zero outside the data, and else changes until the upper layers rest.
 */
function endOfWide(result) {
  const share = `‖Θ_⊥‖² is ${format(outsideShare(result))} of ‖Θ_min‖²`;
  const done = result.status === "converged";
  if (result.perpendicularNorm === 0) return `${done ? "ends" : "would end"} at the minimum-norm interpolant (‖Θ_⊥‖ = 0)`;
  return done ? `ends ${atInterpolant(result) ? "at" : "away from"} the minimum-norm interpolant (${share})` : `so far ${share}`;
}

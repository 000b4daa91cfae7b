// What a training did, in words that agree with its picture.
import { format } from "./scales.js";

const NEAR = [0.85, 1.15]; // sharpness over its threshold that counts as being at the edge
const REGIMES = {
  diverged: "Diverged.",
  edge: "Edge of stability: the sharpness hovers at EDGE.",
  catapult: "Catapult: the start is sharper than EDGE, the end is flatter.",
  sharpening: "Progressive sharpening, below EDGE.",
  calm: "The sharpness stays below EDGE: descent follows gradient flow.",
  crossing: "The sharpness crosses EDGE and ends below it.",
  swinging: "The sharpness swings across EDGE to the end.",
  above: "Still sharper than EDGE at the end: not settled.",
};

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** The kind of one run, from its sharpness along the way (a key of REGIMES). */
export function regime(sharpness, threshold, diverged) {
  if (diverged || sharpness.length === 0) return "diverged";
  const ratio = sharpness.map((value) => value / threshold);
  const tail = ratio.slice(-Math.max(1, Math.floor(ratio.length / 4)));
  const [middle, top, most] = [median(tail), Math.max(...tail), Math.max(...ratio)];
  if (middle >= NEAR[0] && middle <= NEAR[1] && most > 0.97) return "edge";
  if (middle > 1) return "above";
  if (top > 1) return "swinging";
  if (ratio[0] > 1) return "catapult";
  if (most > 1) return "crossing";
  return ratio.at(-1) > 1.3 * Math.min(...ratio) ? "sharpening" : "calm";
}

/** {level, headline, text} of a training. */
export function describe(state, result) {
  const { runs, threshold, theory, linear } = result;
  const lost = runs.filter((run) => run.status === "diverged");
  const kinds = runs.map((run) => regime(run.sharpness, threshold, run.status === "diverged"));
  const counts = new Map();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const [kind, count] = [...counts].sort((a, b) => b[1] - a[1])[0];
  const edge = edgeName(state);
  const share = count === runs.length ? "" : ` (${count} of ${runs.length} runs)`;
  let headline = outcome(runs, lost, linear, state);
  if (kind !== "diverged") headline += ` ${REGIMES[kind].replace("EDGE", edge).replace(/\.$/, "")}${share}.`;
  const settled = lost.length === 0 && kind !== "above" && kind !== "swinging" &&
    (!linear || noisy(state) || runs.every((run) => run.status === "converged"));
  const level = lost.length === runs.length ? "bad" : settled ? "good" : "warn";
  const text = [rateWords(state, theory, linear), endWords(state, result, lost)].filter(Boolean).join(" ");
  return { level, headline, text, kind };
}

const noisy = (state) => state.batch_size > 0 || state.weight_decay > 0;

export function edgeName({ momentum, nesterov }) {
  if (!momentum) return "2/η";
  return nesterov ? "(2+2β)/((1+2β)η)" : "(2+2β)/η";
}

function outcome(runs, lost, linear, state) {
  const all = runs.length;
  if (lost.length) {
    const first = Math.min(...lost.map((run) => run.steps));
    const who = all === 1 ? "The run" : lost.length === all ? "All runs" : `${lost.length} of ${all} runs`;
    return `${who} diverged, the first at step ${first}.`;
  }
  if (!linear || noisy(state)) return "Training stayed finite.";
  const reached = runs.filter((run) => run.status === "converged").length;
  if (reached === all) return all === 1 ? "Converged." : `All ${all} runs converged.`;
  return `${all === 1 ? "The run" : `${all - reached} of ${all} runs`} had not converged after the last step.`;
}

function rateWords(state, theory, linear) {
  if (!linear) return "The theory lines are about linear networks and are left out.";
  const rate = `η = ${format(state.learning_rate)}`;
  if (!theory?.critical) return `${rate}; no critical rate is known for this combination.`;
  const name = theory.decayed ? `${edgeName(state).replace("η", "S_λ")} for S_λ, the sharpness of the decayed minimum,` : criticalName(state);
  const times = state.learning_rate / theory.critical;
  const batch = state.batch_size > 0 ? " (of the full batch)" : "";
  if (times > 1) {
    return `${rate} is ${format(times)} times the critical rate ${name} = ${format(theory.critical)}${batch}: no minimizer is stable.`;
  }
  return `${rate} is ${Math.round(100 * times)} % of the critical rate ${name} = ${format(theory.critical)}${batch}.`;
}

function criticalName(state) {
  return edgeName(state).replace("η", "S_min");
}

function endWords(state, { runs, threshold, theory }, lost) {
  if (lost.length === runs.length) return "";
  const ends = runs.filter((run) => run.status !== "diverged").map((run) => run.sharpness.at(-1));
  const middle = median(ends);
  const least = theory?.exact && !state.weight_decay ? ` = ${format(middle / theory.exact)} · S_min` : "";
  return `Final sharpness ${format(middle)} = ${format(middle / threshold)} · ${edgeName(state)}${least}.`;
}

const NEAR_INTERPOLANT = 1e-4; // squared distance to Θ_min, relative to its square

/** {level, headline, text} of a wide network. */
export function describeWide(state, result) {
  const rate = `η = ${format(result.learning_rate, 2)}`;
  if (result.status === "diverged") {
    return {
      level: "bad", headline: `Diverged at step ${result.steps} with ${rate}.`,
      text: "Choose a smaller share of the stable limit.",
    };
  }
  const near = result.distance < NEAR_INTERPOLANT * result.interpolantNorm ** 2;
  const fitted = result.status === "converged"
    ? `Interpolates after ${format(result.steps)} steps`
    : `Loss ${format(result.loss, 2)} after ${format(result.steps)} steps`;
  return {
    level: result.status === "converged" ? "good" : "warn",
    headline: `${fitted} (${rate}); ends ${near ? "at" : "away from"} the minimum-norm interpolant.`,
    text:
      `Excess risk ${format(result.risk)}, ${format(result.risk / result.interpolantRisk)} times that of the ` +
      `interpolant; a network of ${state.wide_depth} layers of width ${state.wide_width.toLocaleString("en-US")} ` +
      `simulated exactly by one of width ${result.r}.`,
  };
}

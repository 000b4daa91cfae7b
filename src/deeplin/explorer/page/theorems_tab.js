// The theorems page: every statement of the papers on the present run, judged by the library.
import { byId, make } from "./dom.js";
import { dot } from "./linear_algebra.js";
import { format } from "./scales.js";
import { certify } from "./server.js";
import { certificatesOfPresets, settings, statements } from "./settings.js";
import { readoutOf, weightsOf, widthsOf } from "./start.js";
import { TRAINING, defaults } from "./state.js";

const MARKS = { holds: "✓", violated: "✗", measured: "≈", "hypotheses not met": "–", "not applicable": "·" };
const LEVELS = { holds: "good", violated: "bad", measured: "dim", "hypotheses not met": "warn", "not applicable": "dim" };
const ORDER = ["violated", "holds", "measured", "hypotheses not met", "not applicable"];

export class TheoremsTab {
  constructor() {
    this.rows = null;
  }

  get figures() {
    return [];
  }

  /** The certificate of a state: from the server, or the one kept for a preset; null if neither. */
  async compute(state, problem) {
    if (settings.server) return certify(request(state, problem));
    const found = Object.entries(settings.presets).find(([, preset]) => sameTraining(preset.state, state));
    return (found && (await certificatesOfPresets())[found[0]]?.[state.theorems_of]) ?? null;
  }

  show(state, rows) {
    this.rows = rows;
    const place = byId("certificate");
    if (!rows) {
      place.replaceChildren();
      const kept = settings.packed
        ? "This page is a file: it holds the certificates of the presets, computed when it was exported. Choose a preset;"
        : "This page is a file without certificates.";
      return {
        level: "warn", headline: "No certificate for this state.",
        text: `${kept} \`deeplin explore\` certifies any run.`,
      };
    }
    const sorted = [...rows].sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));
    const head = make("tr", {}, ...["", "Statement", "left ≤ right", "Margin"].map((name) => make("th", { scope: "col" }, name)));
    place.replaceChildren(make("table", { className: "certificate" }, head, ...sorted.map(line)));
    const counts = ORDER.map((verdict) => [verdict, rows.filter((row) => row.verdict === verdict).length]).filter(([, count]) => count);
    const words = counts.map(([verdict, count]) => `${count} ${verdict === "holds" ? "hold" : verdict}`).join(", ");
    const of = state.theorems_of === "flow" ? "gradient flow" : "gradient descent";
    const source = settings.server ? "" : " Computed by the library when this file was exported.";
    return {
      level: counts[0][0] === "violated" ? "bad" : "good",
      headline: `${rows.length} statements on the first run of ${of}:`, text: `${words}.${source}`,
    };
  }

  csv() {
    const names = ["id", "part", "verdict", "left", "right", "margin", "tolerance", "hypotheses"];
    return [names, ...(this.rows ?? []).map((row) => names.map((name) => row[name] ?? ""))];
  }
}

function line(row) {
  const known = statements[row.id] ?? { title: "", formula: "" };
  const formula = make("div", { className: "formula" });
  formula.innerHTML = known.formula; // MathML the library wrote when the page was built
  const cell = make("td", {}, make("b", {}, row.id), ` ${known.title}${row.part ? ` (${row.part})` : ""}`, formula, make("small", {}, row.verdict));
  if (row.hypotheses) cell.append(make("br"), make("small", {}, row.hypotheses));
  const rounding = row.margin !== undefined && Math.abs(row.margin) <= row.tolerance;
  const [left, right] = rounding && Math.max(Math.abs(row.left), Math.abs(row.right)) <= row.tolerance ? [0, 0] : [row.left, row.right];
  const sides = row.left === undefined ? "" : `${format(left, 4)} ${rounding ? "=" : "≤"} ${format(right, 4)}`;
  const margin = row.margin === undefined ? "" : rounding ? `0 (within ±${format(row.tolerance, 1)}, rounding)` : format(row.margin, 4);
  return make("tr", { className: LEVELS[row.verdict] ?? "dim" },
    make("td", { title: row.verdict }, MARKS[row.verdict] ?? ""), cell, make("td", {}, sides),
    make("td", {}, margin));
}

function sameTraining(preset, state) {
  const whole = { ...defaults(), ...preset };
  return (preset.tab ?? "training") === "training" && TRAINING.every((name) => name === "seeds" || whole[name] === state[name]);
}

/** What the server needs to train the first run of a state again. */
function request(state, problem) {
  const widths = widthsOf(state, problem);
  const flat = weightsOf(state, problem);
  const rows = (values, n, m) => Array.from({ length: n }, (_, i) => Array.from(values.subarray(i * m, i * m + m)));
  let at = 0;
  const weights = widths.slice(1).map((m, k) => {
    const layer = rows(flat.subarray(at, at + m * widths[k]), m, widths[k]);
    at += m * widths[k];
    return layer;
  });
  const readout = readoutOf(state, problem);
  const data = problem.X
    ? { X: rows(problem.X, problem.n, problem.d), y: rows(problem.Y, problem.n, problem.q) }
    : { moments: momentsOf(problem) };
  return {
    ...data, weights, readout: readout && Array.from(readout),
    activation: ["gelu", "relu"].includes(state.architecture) ? state.architecture : "linear",
    dynamics: state.theorems_of, learning_rate: state.learning_rate, steps: state.steps, momentum: state.momentum,
  };
}

function momentsOf({ d, covariance, optimum, targetMoment, n }) {
  const rows = Array.from({ length: d }, (_, i) => Array.from(covariance.subarray(i * d, i * d + d)));
  return { covariance: rows, cross: rows.map((row) => dot(row, optimum)), target_moment: targetMoment, samples: n };
}

// The page of orbits: what happens above the critical rate, to one mode and to a network.
import { make } from "./dom.js";
import { Figure } from "./figure.js";
import { balancedOrbit, doublingRate, modeThreshold, orbitKind, orbitText, orbitsAt } from "./orbits.js";
import { format } from "./scales.js";

const NETWORK = { name: "largest mode of the network", color: "blue", dots: 1.6 };
const MODE = { name: "largest mode alone", color: "green", dots: 1.2 };
const FORMULA = { name: "orbit of period two (X-12)", color: "green", dash: [6, 4] };
const PRODUCT = "product of the weights";
const LOST = { name: "network diverged", color: "red", band: true };

export class OrbitsTab {
  constructor(parent, tooltip, open) {
    const grid = make("div", { className: "grid single" });
    parent.append(grid);
    this.diagram = new Figure(grid, "orbits", "Bifurcation diagram", tooltip);
    this.steps = new Figure(grid, "orbit_steps", "The last steps at the rate shown", tooltip);
    this.diagram.chart.onopen = (rate) => open({ orbit_rate: Number(rate.toPrecision(4)) });
    this.rows = [];
  }

  get figures() {
    return [this.diagram, this.steps];
  }

  /** Show the rates computed so far: [{rate, mode, network}]; with `complete`, return the verdict. */
  show(state, rows, complete) {
    const targets = [state.sigma_1, state.sigma_2, state.sigma_3].sort((a, b) => b - a);
    const [largest, depth] = [targets[0], state.orbit_depth];
    const critical = modeThreshold(largest, depth);
    const known = this.chosen?.rate === state.orbit_rate && this.known === JSON.stringify(targets.concat(depth));
    if (!known) this.chosen = orbitsAt(state, [state.orbit_rate])[0];
    this.known = JSON.stringify(targets.concat(depth));
    this.rows = rows.filter(Boolean).sort((a, b) => a.rate - b.rate);
    this.result = {
      rows: this.rows, targets, critical, doubling: doublingRate(largest, depth), chosen: this.chosen,
      period: orbitKind(this.chosen.mode, largest).period, ...divergence(this.rows),
    };
    this._diagram(state, largest, depth);
    this._steps(state);
    return complete ? this._verdict(depth) : null;
  }

  _diagram(state, largest, depth) {
    const { rows, critical, doubling } = this.result;
    const dots = (pick) => {
      const [x, values] = [[], []];
      for (const row of rows) for (const value of pick(row) ?? []) { x.push(row.rate); values.push(value); }
      return { x, values };
    };
    const orbit = rows.map(({ rate }) => [rate, balancedOrbit(largest, depth, rate)]).filter(([, found]) => found);
    const halves = ["low", "high"].map((end) => ({ ...FORMULA, name: "", x: orbit.map(([rate]) => rate), values: orbit.map(([, found]) => found[end] ** depth) }));
    const width = rows.length > 1 ? rows[1].rate - rows[0].rate : 0;
    this.diagram.show(
      {
        x: { values: rows.map((row) => row.rate), label: "η for the loss ½‖Θ − S‖² (half of it without the ½)", log: false },
        y: { log: false, label: PRODUCT },
        curves: [{ ...MODE, ...dots((row) => row.mode) }, ...halves, { ...NETWORK, ...dots((row) => row.network?.map((values) => values[0])) }],
        columns: rows.filter((row) => !row.network).map((row) => ({ from: row.rate - width / 2, to: row.rate + width / 2, color: "red" })),
        verticals: [
          { name: "critical rate", value: critical, color: "green" }, { name: "first doubling (X-37)", value: doubling, color: "green", dash: [2, 3] },
          { name: "rate shown", value: state.orbit_rate, color: "text" },
        ],
      },
      {
        legend: [NETWORK, MODE, FORMULA, LOST, { name: "critical rate", color: "green" }, { name: "first doubling (X-37)", color: "green", dash: [2, 3] }, { name: "rate shown", color: "text" }],
        words: `critical rate ${format(critical, 6)}, first doubling at ${format(doubling, 6)}`,
      },
    );
  }

  _steps(state) {
    const { chosen, targets } = this.result;
    const values = Array.from({ length: (chosen.mode ?? chosen.network ?? []).length }, (_, i) => i);
    const curves = [];
    if (chosen.mode) curves.push({ ...MODE, dots: 0, values: chosen.mode });
    if (chosen.network) targets.forEach((_, k) => curves.push({ ...NETWORK, dots: 0, name: `network, mode ${k + 1}`, values: chosen.network.map((row) => row[k]) }));
    const title = `The last steps at η = ${format(state.orbit_rate, 4)}`;
    const empty = curves.length ? null : "Both the mode and the network diverge at this rate: there is no orbit to show.";
    this.steps.show(
      { x: { values, label: "steps", log: false }, y: { log: false, label: PRODUCT }, curves, levels: targets.map((value) => ({ name: "target", value, color: "gray", dash: [2, 3] })), empty },
      { title, legend: [{ ...MODE, dots: 0 }, { name: chosen.network ? "network, its modes" : "network: diverged", color: chosen.network ? "blue" : "red" }, { name: "targets", color: "gray", dash: [2, 3] }] },
    );
  }

  _verdict(depth) {
    const { critical, doubling, chosen, targets } = this.result;
    const what = orbitText(chosen.mode, targets[0]);
    return {
      level: "good", critical,
      headline: `Critical rate ${format(critical, 6)}; the orbit of period two doubles at ${format(doubling, 6)}.`,
      text: `${this._grid()} At η = ${format(chosen.rate, 4)} ${what} and the network ${chosen.network ? "stays bounded" : "diverges"}. Rates are for the loss ½‖Θ − S‖², depth ${depth}.`,
    };
  }

  /** What the network does over the rates of the grid. */
  _grid() {
    const { rows, critical, diverged, lost } = this.result;
    if (!lost.length) return "On this grid the network does not diverge.";
    const all = `On this grid the network diverges at ${lost.length} of ${rows.length} rates, the smallest ${format(lost[0], 3)} (${format(lost[0] / critical)} times the critical rate)`;
    if (!diverged) return `${all}; the mode alone diverges there too.`;
    return `${all}, and at every rate from ${format(diverged[0], 3)} to ${format(diverged[1], 3)} (${format(diverged[0] / critical)} to ${format(diverged[1] / critical)} times the critical rate), where the mode alone stays bounded.`;
  }

  csv() {
    const rows = [["learning_rate", "step", "mode_product", "network_mode_1", "network_mode_2", "network_mode_3"]];
    for (const { rate, mode, network } of this.rows) {
      for (let i = 0; i < (mode ?? network ?? []).length; i++) rows.push([rate, i, mode?.[i] ?? "", ...(network?.[i] ?? ["", "", ""])]);
    }
    return rows;
  }
}

/** {lost, diverged}: the rates at which the network diverges; the longest stretch of them where the mode alone does not, [from, to] or null. */
function divergence(rows) {
  let [best, from] = [null, null];
  rows.forEach(({ rate, mode, network }, i) => {
    if (network || !mode) { from = null; return; }
    from ??= i;
    if (!best || i - from > best[1] - best[0]) best = [from, i];
  });
  return { lost: rows.filter((row) => !row.network).map(({ rate }) => rate), diverged: best && best.map((i) => rows[i].rate) };
}

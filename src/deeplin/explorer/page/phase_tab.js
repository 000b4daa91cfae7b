// The page of the phase diagram: a heat map whose cells open runs, by click or keys.
import { heat } from "./colors.js";
import { byId, make } from "./dom.js";
import { Figure } from "./figure.js";
import { HeatMap } from "./heat_map.js";
import { format } from "./scales.js";
import { stabilityThreshold } from "./theory.js";
import { criticalName, edgeName } from "./verdict.js";

const DISTANCE = "log₁₀ of the squared distance ‖Θ − Θ*‖² at the end";
const FLAT = { diverged: "red", unfinished: "unfinished" }; // colors that stand for no number
const NAMES = { settled: "settled", unfinished: "not trained yet (falls, or rests on a plateau)", unsettled: "does not settle (swings)", diverged: "diverged" };

export class PhaseTab {
  constructor(parent, tooltip, open) {
    const grid = make("div", { className: "grid single" });
    parent.prepend(grid);
    this.figure = new Figure(grid, "phase", DISTANCE, tooltip, HeatMap);
    this.open = open;
    this.map = this.figure.chart;
    this.map.onopen = (cell) => this._open(cell);
    this.map.onmove = ([i, j]) => this._choose([this.cell[0] + i, this.cell[1] + j]);
    byId("open-cell").addEventListener("click", () => this._open(this.cell));
  }

  get figures() {
    return [this.figure];
  }

  /** Show the columns computed so far (undefined where there is none yet). */
  show(state, grid, columns) {
    Object.assign(this, { state, grid, columns });
    const nearest = (values, wanted) => values.reduce((best, value, i) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);
    this.cell = [
      nearest(grid.columns, state[state.phase_over]),
      nearest(Array.from(grid.rates, Math.log), Math.log(state.learning_rate)),
    ];
    this._draw();
    return columns.every(Boolean) ? this._verdict() : null;
  }

  _values() {
    const { state, grid, columns } = this;
    return grid.columns.map((_, i) => Array.from(grid.rates, (rate, j) => {
      const column = columns[i];
      if (!column) return undefined;
      const status = column.status[j];
      if (FLAT[status]) return FLAT[status];
      if (state.phase_shows === "distance") return Math.log10(Math.max(column.distance[j], 1e-16));
      return column.sharpness[j] / stabilityThreshold({ ...state, learning_rate: rate });
    }));
  }

  _draw() {
    const { state, grid } = this;
    const sharpness = state.phase_shows === "sharpness";
    const title = sharpness ? `Final sharpness over ${edgeName(state)} (1: the edge)` : grid.measured === "risk" ? "log₁₀ of the final risk" : DISTANCE;
    const across = state.phase_over === "depth" ? "depth L" : "initial scale";
    this.figure.show(
      {
        columns: grid.columns, rates: Array.from(grid.rates), critical: grid.critical, values: this._values(),
        labels: { across }, cell: this.cell, describe: (i, j) => this._rows(i, j),
      },
      {
        title, words: `${grid.columns.length} by ${grid.rates.length} runs over ${across} and learning rate`,
        legend: [
          ...(grid.critical[0] ? [{ name: `critical rate ${criticalName(state)}`, color: "green" }] : []),
          ...(sharpness || grid.measured === "risk" ? [] : [{ name: "close to Θ*", color: heat(0), solid: true }, { name: "far from it (swings)", color: heat(1), solid: true }]),
          { name: NAMES.unfinished, color: "unfinished", solid: true }, { name: NAMES.diverged, color: "red", solid: true },
        ],
      },
    );
    const text = this._rows(...this.cell).map(([name, value]) => `${name} ${value}`).join(", ");
    byId("cell-note").textContent = `Chosen cell: ${text}.`;
  }

  _rows(i, j) {
    const { grid, columns, state } = this;
    const rows = [
      [state.phase_over === "depth" ? "depth" : "initial scale", format(grid.columns[i])],
      ["η", format(grid.rates[j])],
    ];
    const column = columns[i];
    if (!column) return [...rows, ["", "computing"]];
    rows.push(["", NAMES[column.status[j]]]);
    if (column.status[j] === "diverged") return rows;
    return [...rows, ["final sharpness", format(column.sharpness[j])], [`final ${grid.measured}`, format(column.distance[j])]];
  }

  _choose([i, j]) {
    if (!this.grid) return;
    const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.cell = [inside(i, this.grid.columns.length), inside(j, this.grid.rates.length)];
    this._draw();
  }

  _open([i, j]) {
    const value = Number(this.grid.columns[i].toPrecision(4));
    this.open({ tab: "training", learning_rate: Number(this.grid.rates[j].toPrecision(4)), [this.state.phase_over]: value });
  }

  _verdict() {
    const { state, grid, columns } = this;
    const all = columns.flatMap((column) => column.status);
    const share = (status) => `${Math.round((100 * all.filter((each) => each === status).length) / all.length)} %`;
    let text = "";
    if (grid.critical[0]) {
      let [above, settled] = [0, 0];
      columns.forEach((column, i) => grid.rates.forEach((rate, j) => {
        if (rate <= grid.critical[i]) return;
        above++;
        if (column.status[j] === "settled") settled++;
      }));
      text = `The green line is the critical rate ${criticalName(state)}: ${above ? `${settled} of ${above} runs above it settled` : "no rate of this grid is above it"}. `;
    }
    return {
      level: "good", critical: grid.critical[0],
      headline: `${all.length} runs: ${share("settled")} settled, ${share("unfinished")} not trained yet, ${share("unsettled")} do not settle, ${share("diverged")} diverged.`,
      text: `${text}Click a cell to open its run.`,
    };
  }

  csv() {
    const { grid, columns, state } = this;
    const rows = [[state.phase_over, "learning_rate", grid.measured, "sharpness", "status"]];
    grid.columns.forEach((value, i) => grid.rates.forEach((rate, j) => {
      const { distance, sharpness, status } = columns[i];
      rows.push([value, rate, distance[j], sharpness[j], status[j]]);
    }));
    return rows;
  }
}

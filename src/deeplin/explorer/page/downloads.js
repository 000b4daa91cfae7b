// The numbers of a page as a table, and its settings in words.
import { save } from "./dom.js";
import { INPUTS } from "./state.js";

const SHOWN = {
  training: ["descent", "network", "data"], phase: ["phase", "descent", "network", "data"], orbits: ["orbits"],
  wide: ["wide", "population"], double_descent: ["population"],
};

/** The settings a page depends on, as one text. */
export function settingsText(state) {
  const groups = SHOWN[state.tab];
  const names = Object.keys(INPUTS).filter((name) => groups.includes(INPUTS[name].group));
  return names.map((name) => {
    const { label, options } = INPUTS[name];
    return `${label.replace(/ \(.*/, "")}: ${options ? options[state[name]] : state[name]}`;
  }).join("  ·  ");
}

export function saveCsv(rows, state) {
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  save(`deeplin-${state.tab}.csv`, rows.map((row) => row.map(cell).join(",")).join("\n") + "\n", "text/csv");
}

// One control for each input: a slider with a field for exact values, a menu, or a box to tick.
import { make } from "./dom.js";
import { INPUTS, InputError, check } from "./state.js";

const NOTCHES = 200;
const DIGITS = 3;

const leftEnd = ({ low, high, zero }) => {
  const [a, b] = [Math.log10(low), Math.log10(high)];
  return zero ? a - (b - a) / NOTCHES : a;
};

/** The value a slider position stands for: logarithmic ones carry log10, their left end may be 0. */
function valueAt(input, position) {
  if (!input.log) return input.kind === "whole" ? Math.round(position) : Number(position.toPrecision(6));
  if (input.zero && position < Math.log10(input.low) - 1e-9) return 0;
  const rounded = Number((10 ** position).toPrecision(DIGITS));
  const value = input.kind === "whole" ? Math.round(rounded) : rounded;
  return Math.min(Math.max(value, input.low), input.high);
}

function positionOf(input, value) {
  if (!input.log) return value;
  return value === 0 ? leftEnd(input) : Math.log10(value);
}

export class Controls {
  /** `changed(name, value)` hears of every move; `complain(sentence)` of values that do not fit. */
  constructor(changed, complain) {
    this.changed = changed;
    this.complain = complain;
    this.setters = new Map();
  }

  /** The control of an input, ready to be put into the page. */
  build(name) {
    const input = INPUTS[name];
    const control = { choice: () => this._menu(name, input), flag: () => this._box(name, input) }[input.kind];
    return control ? control() : this._slider(name, input);
  }

  /** Put every control where the state is. */
  show(state) {
    for (const [name, set] of this.setters) set(state[name]);
  }

  _slider(name, input) {
    const id = `input-${name}`;
    const [low, high] = input.log ? [leftEnd(input), Math.log10(input.high)] : [input.low, input.high];
    const step = input.kind === "whole" && !input.log ? 1 : (high - low) / NOTCHES;
    const range = make("input", { type: "range", name, id, min: low, max: high, step });
    const field = make("input", {
      type: "text", inputMode: "decimal", className: "exact", autocomplete: "off",
      "aria-label": `${input.label}, exact value`, id: `exact-${name}`,
    });
    const label = make("label", { for: id }, input.label);
    range.addEventListener("input", () => this.changed(name, valueAt(input, range.valueAsNumber)));
    field.addEventListener("change", () => this._typed(name, field));
    let last = null;
    this.setters.set(name, (value) => {
      field.value = String(value);
      range.setAttribute("aria-valuetext", String(value));
      if (value === last) return;
      last = value;
      if (valueAt(input, range.valueAsNumber) !== value) range.value = positionOf(input, value);
      const share = (positionOf(input, value) - low) / (high - low);
      range.style.setProperty("--share", `${100 * share}%`);
    });
    return make("div", { className: "control", id: `control-${name}` }, make("div", { className: "names" }, label, field), range);
  }

  _typed(name, field) {
    try {
      this.changed(name, check(name, field.value.replace(",", ".").replace("−", "-")));
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.complain(error.message);
    }
  }

  _menu(name, input) {
    const id = `input-${name}`;
    const options = Object.entries(input.options).map(([value, text]) => make("option", { value }, text));
    const menu = make("select", { name, id }, ...options);
    menu.addEventListener("change", () => this.changed(name, menu.value));
    this.setters.set(name, (value) => { menu.value = value; });
    return make("div", { className: "control", id: `control-${name}` }, make("label", { for: id }, input.label), menu);
  }

  _box(name, input) {
    const id = `input-${name}`;
    const box = make("input", { type: "checkbox", name, id });
    box.addEventListener("change", () => this.changed(name, box.checked));
    this.setters.set(name, (value) => { box.checked = value; });
    return make("div", { className: "control box", id: `control-${name}` }, box, make("label", { for: id }, input.label));
  }
}

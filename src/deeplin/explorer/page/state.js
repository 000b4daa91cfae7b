// Everything a visitor can choose, checked against its bound, and as a link.
import { settings } from "./settings.js";

const LONGEST_LINK = 4000;
export const INPUTS = settings.inputs;
for (const [name, { title }] of Object.entries(settings.presets)) INPUTS.story.options[name] = title;
export const DATA = namesOf("data");

export class InputError extends Error {}

function namesOf(group) {
  return Object.keys(INPUTS).filter((name) => INPUTS[name].group === group);
}

export function defaults() {
  return Object.fromEntries(Object.entries(INPUTS).map(([name, input]) => [name, input.default]));
}

/** The value of an input, or an InputError that says what to pass. */
export function check(name, value) {
  if (!Object.hasOwn(INPUTS, name)) throw new InputError(`There is no input “${String(name).slice(0, 40)}”.`);
  const input = INPUTS[name];
  return CHECKS[input.kind](input, value);
}

const shown = (value) => String(value).slice(0, 60);

const CHECKS = {
  whole(input, value) {
    const wanted = `a whole number from ${input.low} to ${input.high}`;
    const found = number(input, value, wanted);
    if (!Number.isInteger(found) || found < input.low || found > input.high) {
      throw new InputError(`${input.label} is ${shown(value)}; pass ${wanted}.`);
    }
    return found;
  },
  real(input, value) {
    const wanted = `a number from ${input.low} to ${input.high}${input.zero ? ", or 0" : ""}`;
    const found = number(input, value, wanted);
    const inside = found >= input.low && found <= input.high;
    if (!inside && !(input.zero && found === 0)) {
      throw new InputError(`${input.label} is ${shown(value)}; pass ${wanted}.`);
    }
    return found;
  },
  choice(input, value) {
    if (typeof value !== "string" || !Object.hasOwn(input.options, value)) {
      throw new InputError(`${input.label} is “${shown(value)}”; pass one of ${Object.keys(input.options).join(", ")}.`);
    }
    return value;
  },
  flag(input, value) {
    if (value === true || value === "yes") return true;
    if (value === false || value === "no") return false;
    throw new InputError(`${input.label} is “${shown(value)}”; pass yes or no.`);
  },
};

function number(input, value, wanted) {
  const text = typeof value === "string" ? value.trim() : value;
  const found = typeof text === "string" && /^[-+0-9.eE]+$/.test(text) ? Number(text) : text;
  if (typeof found !== "number" || !Number.isFinite(found)) {
    throw new InputError(`${input.label} is ${shown(value)}; pass ${wanted}.`);
  }
  return found;
}

/** The state with some values replaced and checked. */
export function change(state, values) {
  const next = { ...state };
  for (const [name, value] of Object.entries(values)) next[name] = check(name, value);
  if (next.scale === 0 && next.architecture !== "residual") {
    throw new InputError(
      "Initial scale is 0, where every gradient of this network vanishes; pass at least 0.01, or choose the residual network.",
    );
  }
  if (next.loss === "logistic" && ["gelu", "relu"].includes(next.architecture)) {
    throw new InputError("The logistic loss is for linear networks here; choose a linear or a residual one, or the mean squared error.");
  }
  if (next.loss === "logistic" && next.outputs > 1) {
    throw new InputError(`The logistic loss has one output and Outputs q is ${next.outputs}; set it to 1, or choose the mean squared error.`);
  }
  return next;
}

/** The state of a preset, with its guide. */
export function presetState(name) {
  return change(defaults(), { ...settings.presets[name].state, story: name });
}

/** The query that restores a state: whatever differs from the default. */
export function link(state) {
  const query = new URLSearchParams();
  for (const name of Object.keys(INPUTS)) {
    const value = state[name];
    if (value !== INPUTS[name].default) query.set(name, value === true ? "yes" : value === false ? "no" : value);
  }
  return query.toString();
}

/** The state of a link; every value is checked, unknown and repeated names are refused. */
export function fromLink(query) {
  const text = query.replace(/^[?#]/, "");
  if (text.length > LONGEST_LINK) {
    throw new InputError(`The link has ${text.length} characters; at most ${LONGEST_LINK} are read.`);
  }
  const values = Object.create(null);
  for (const [name, value] of new URLSearchParams(text)) {
    if (name in values) throw new InputError(`The link gives ${name.slice(0, 40)} twice.`);
    values[name] = value;
  }
  return change(defaults(), values);
}

// The page: a checked state becomes pictures, words and a link.
import * as api from "./api.js";
import { isDark, refreshPalette } from "./colors.js";
import { Controls } from "./controls.js";
import { Tooltip, byId, make } from "./dom.js";
import { saveCsv, settingsText } from "./downloads.js";
import { tooMuchWork, train, workOf } from "./experiment.js";
import { gridOf } from "./phase.js";
import { PhaseTab } from "./phase_tab.js";
import { Player } from "./player.js";
import { Pool } from "./pool.js";
import { DoubleDescentTab } from "./double_descent_tab.js";
import { Guide } from "./guide.js";
import { ratesOf } from "./orbits.js";
import { OrbitsTab } from "./orbits_tab.js";
import { synthetic } from "./problem.js";
import { format } from "./scales.js";
import { settings } from "./settings.js";
import { withLoss } from "./start.js";
import { DATA, INPUTS, InputError, change, defaults, fromLink, link, presetState } from "./state.js";
import { TrainingTab } from "./training_tab.js";
import { readFile } from "./upload.js";
import { WideTab } from "./wide_tab.js";

const GROUPS = {
  phase: "Phase diagram", orbits: "Orbits", descent: "Descent", network: "Network", data: "Data",
  axes: "Axes", wide: "Wide network", population: "Population and samples",
};
const TRAINED = ["rate", "descent", "network", "data"];
/** Which groups of inputs a page has. */
const GROUPS_OF = {
  training: [...TRAINED, "axes"], phase: ["phase", ...TRAINED], orbits: ["orbits"], wide: ["wide", "population"],
  double_descent: ["population"],
};
const WORK = {
  training: "_training", phase: "_phase", orbits: "_orbits", wide: "_wide", double_descent: "_doubleDescent",
};
const OPENING = "sharpening";
const CHUNK = 6; // rates of the bifurcation diagram in one job
const AT_ONCE = 3e7; // multiplications that fit into a frame; more of them go to a worker

class Page {
  constructor() {
    this.tooltip = new Tooltip(byId("tooltip"));
    this.pools = { train: new Pool(1), phase: new Pool(), orbits: new Pool(), wide: new Pool(1), doubleDescent: new Pool(1) };
    this.upload = null;
    this.data = { key: null, problem: null };
    this.turn = 0;
    this.verdict = null;
    this.drawn = null;
    this.waiters = [];
    this.orbits = { key: null, rows: [] };
    this.guide = new Guide((values) => this.open(values));
    this.controls = new Controls((name, value) => this.open({ [name]: value }), (text) => this.complain(text));
    this._buildInputs();
    this._buildTabs();
    this._buildPresets();
    this.tabs = {
      training: new TrainingTab(byId("view-training"), this.tooltip),
      phase: new PhaseTab(byId("view-phase"), this.tooltip, (values) => this.open(values)),
      orbits: new OrbitsTab(byId("view-orbits"), this.tooltip, (values) => this.open(values)),
      wide: new WideTab(byId("view-wide"), this.tooltip),
      double_descent: new DoubleDescentTab(byId("view-double_descent"), this.tooltip),
    };
    this.player = new Player((frame) => {
      const words = this.tabs.training.at(frame);
      if (this.counting) globalThis.deeplin.pictures++;
      return words;
    });
    this._buildActions();
    this.state = this._fromAddress();
  }

  // --- what a visitor does ------------------------------------------------------------------------

  /** Go to the state with these values replaced, or say why not. */
  open(values) {
    try {
      this.go(change(this.state, values));
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.complain(error.message);
      this.controls.show(this.state);
    }
  }

  go(state) {
    const tab = this.state?.tab;
    this.state = state;
    this.say("");
    if (state.tab !== tab) this._showTab();
    this.controls.show(state);
    this._adapt();
    const told = storyOf(state);
    for (const button of byId("presets").children) {
      const chosen = button.dataset.preset === told;
      if (chosen && told !== this.guide.name) byId("presets").scrollLeft = button.offsetLeft - byId("presets").offsetLeft;
      button.setAttribute("aria-pressed", String(chosen));
    }
    this.guide.tell(state.story, told !== "");
    this._request();
  }

  /** Open a preset; resolves when it is drawn. */
  load(name) {
    if (!Object.hasOwn(settings.presets, name)) throw new TypeError(`There is no preset “${name}”; pass one of ${Object.keys(settings.presets).join(", ")}.`);
    this.go(presetState(name));
    return new Promise((resolve, reject) => this.waiters.push({ turn: this.turn, resolve, reject }));
  }

  /** What is shown now: {settings, critical, runs, verdict, story, guide}. */
  current() {
    const { drawn, verdict } = this;
    const preset = settings.presets[drawn && storyOf(drawn)];
    return {
      settings: { ...drawn }, critical: verdict?.critical ?? null, runs: drawn ? runsOf(drawn.tab, this.tabs[drawn.tab].result) : [],
      verdict: verdict ? `${verdict.headline} ${verdict.text}` : "",
      story: preset ? preset.steps.map((step) => step.see ?? step.move).join(" ") : "", guide: this.guide.progress,
    };
  }

  complain(sentence) {
    this.say(sentence, "bad");
  }

  say(sentence, level = "") {
    const place = byId("message");
    place.hidden = !sentence;
    place.className = level;
    place.textContent = sentence;
  }

  // --- from state to picture ----------------------------------------------------------------------

  /** Draw in the next frame; moves that come before it are drawn once. */
  _request() {
    this.turn++;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const { turn } = this;
      this._draw().catch((error) => {
        if (!(error instanceof InputError)) throw error;
        if (turn !== this.turn) return; // a later move has made it pointless
        for (const { reject } of this.waiters.splice(0)) reject(error);
        this.complain(error.message);
        this._say({ level: "warn", headline: "Nothing was computed.", text: "" });
      });
    });
  }

  async _draw() {
    const { state, turn } = this;
    const verdict = await this[WORK[state.tab]](state, turn);
    if (!verdict || turn !== this.turn) return;
    this._say(verdict);
    this._address(state);
    byId("printed-settings").textContent = settingsText(state);
    this.drawn = state;
    if (storyOf(state)) this.guide.notice(state, this.tabs[state.tab].result, `${JSON.stringify(measured(state))} ${this.upload?.note ?? ""}`);
    globalThis.deeplin.pictures++;
    for (const { resolve } of this.waiters.splice(0)) resolve();
  }

  _problem(state) {
    if (state.data === "file") {
      if (!this.upload) throw new InputError("No file has been read yet: choose a CSV file, or synthetic data.");
      return this._withLoss(state, this.upload.problem, this.upload.note);
    }
    const key = JSON.stringify(DATA.map((name) => state[name]));
    if (this.data.key !== key) this.data = { key, problem: synthetic(state) };
    return this._withLoss(state, this.data.problem, key);
  }

  /** The problem with the loss of the state; the last one that had to be minimized is kept. */
  _withLoss(state, problem, key) {
    if (state.loss === "squared") return problem;
    if (this.classes?.key !== key || this.classes.of !== problem) this.classes = { key, of: problem, problem: withLoss(problem, state) };
    if (!this.classes.problem) throw new InputError("The target does not have two distinct values; the logistic loss needs two classes. Choose the mean squared error.");
    return this.classes.problem;
  }

  async _training(state, turn) {
    const problem = this._problem(state);
    const result = await this._train(state, problem);
    if (!result || turn !== this.turn) return null;
    const verdict = this.tabs.training.show(state, result);
    this._mark(result.theory);
    this.counting = false;
    this.player.reset(result.steps.length);
    this.counting = true;
    return verdict;
  }

  /** The training of a state: here when it fits into a frame, else on a worker. */
  _train(state, problem) {
    const refusal = tooMuchWork(state, problem, state.seeds);
    if (refusal) throw new InputError(refusal);
    if (workOf(state, problem) <= AT_ONCE) return train(state, problem);
    this._busy();
    return this.pools.train.run([{ name: "train", args: [state, problem] }]).then((results) => results?.[0]);
  }

  async _phase(state, turn) {
    const problem = this._problem(state);
    const grid = gridOf(state, problem);
    const columns = Array(grid.columns.length).fill(null);
    const runs = grid.columns.length * grid.rates.length;
    const refusal = tooMuchWork({ ...state, depth: state.phase_over === "depth" ? 12 : state.depth }, problem, runs);
    if (refusal) throw new InputError(refusal);
    this._busy();
    const jobs = grid.columns.map((value) => ({ name: "columnOf", args: [state, problem, value, grid.rates] }));
    // Deep columns take longest: begin with them, so that the workers end together.
    const order = jobs.map((_, i) => i).reverse();
    const results = await this.pools.phase.run(order.map((i) => jobs[i]), (k, column) => {
      columns[order[k]] = column;
      if (turn === this.turn) this.tabs.phase.show(state, grid, columns);
    });
    return results && turn === this.turn ? this.tabs.phase.show(state, grid, columns) : null;
  }

  async _wide(state, turn) {
    if (state.alpha === 0 && state.beta === 0) throw new InputError("Every gradient vanishes at this start (α = 0 with β = 0); make one of them positive.");
    this._fewSamples(state);
    const reduced = Math.min(state.wide_width, state.wide_samples + state.wide_outputs);
    const work = state.wide_steps * state.wide_depth * reduced ** 2 * state.wide_outputs * 3;
    if (work > 6e10) throw new InputError("This picture needs too many steps of too large a network; choose fewer steps, samples or layers.");
    this._busy();
    const results = await this.pools.wide.run([{ name: "wide", args: [state] }]);
    return results && turn === this.turn ? this.tabs.wide.show(state, results[0]) : null;
  }

  async _orbits(state, turn) {
    const key = JSON.stringify([state.orbit_depth, state.sigma_1, state.sigma_2, state.sigma_3]);
    const tab = this.tabs.orbits;
    if (this.orbits.key !== key) {
      this._busy();
      const rates = ratesOf(state);
      const jobs = Array.from({ length: Math.ceil(rates.length / CHUNK) }, (_, i) => ({ name: "orbitsAt", args: [state, rates.slice(i * CHUNK, (i + 1) * CHUNK)] }));
      const rows = [];
      const found = await this.pools.orbits.run(jobs, (_, part) => {
        rows.push(...part);
        if (turn === this.turn) tab.show(state, rows, false);
      });
      if (!found) return null;
      this.orbits = { key, rows };
    }
    return turn === this.turn ? tab.show(state, this.orbits.rows, true) : null;
  }

  async _doubleDescent(state, turn) {
    this._fewSamples(state);
    this._busy();
    const found = await this.pools.doubleDescent.run([{ name: "doubleDescent", args: [state] }]);
    return found && turn === this.turn ? this.tabs.double_descent.show(state, found[0]) : null;
  }

  _fewSamples(state) {
    if (state.wide_samples < state.wide_dimension) return;
    throw new InputError(`There are ${state.wide_samples} samples for ${state.wide_dimension} inputs; overfitting is about fewer samples than inputs.`);
  }

  /** Say that something is being computed, once it takes longer than a blink. */
  _busy() {
    const { turn } = this;
    const before = globalThis.deeplin.pictures;
    setTimeout(() => {
      if (turn === this.turn && before === globalThis.deeplin.pictures) byId("verdict").dataset.busy = "yes";
    }, 250);
  }

  _say(verdict) {
    this.verdict = verdict;
    const place = byId("verdict");
    delete place.dataset.busy;
    place.className = verdict.level;
    place.replaceChildren(make("b", {}, verdict.headline), ` ${verdict.text}`);
  }

  /** The critical rate under its slider. */
  _mark(theory) {
    const place = byId("critical");
    const { low, high } = INPUTS.learning_rate;
    const rate = theory?.critical;
    place.replaceChildren();
    if (!rate || rate < low || rate > high) return;
    const share = Math.log(rate / low) / Math.log(high / low);
    const mark = make("span", {}, `critical ${format(rate)}`);
    mark.className = share > 0.6 ? "before" : "";
    mark.style.left = `${(100 * share).toFixed(1)}%`;
    place.append(mark);
  }

  // --- the address --------------------------------------------------------------------------------

  _fromAddress(text = location.hash.length > 1 ? location.hash : location.search) {
    try {
      return text.length > 1 ? fromLink(text) : presetState(OPENING);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.refused = `This link could not be read: ${error.message}`;
      return defaults();
    }
  }

  _address(state) {
    const text = link(state);
    if (text === this.lastLink) return;
    this.lastLink = text;
    clearTimeout(this.writing);
    // Browsers allow some hundred changes of the address in half a minute: write when it rests.
    this.writing = setTimeout(() => this._writeAddress(), 150);
  }

  _writeAddress() {
    clearTimeout(this.writing);
    const text = link(this.state);
    const plain = location.protocol === "file:" ? location.search : "";
    if (text || location.hash || location.search) history.replaceState(null, "", `${location.pathname}${plain}#${text}`);
  }

  // --- building -----------------------------------------------------------------------------------

  _buildInputs() {
    for (const [group, title] of Object.entries(GROUPS)) {
      const names = Object.keys(INPUTS).filter((name) => INPUTS[name].group === group);
      const box = make("details", { open: true }, make("summary", {}, title));
      box.dataset.group = group;
      for (const name of names) {
        const control = this.controls.build(name);
        if (name === "learning_rate") byId("rate").append(control, make("div", { id: "critical" }));
        else box.append(control);
      }
      if (group === "data") box.append(this._fileInput());
      byId("inputs").append(box);
    }
  }

  _fileInput() {
    const file = make("input", { type: "file", id: "file", accept: ".csv,.tsv,.txt,text/csv" });
    file.addEventListener("change", () => this._read(file));
    return make("label", { id: "file-label", for: "file" }, "CSV file, target in the last column", file);
  }

  async _read(file) {
    const chosen = file.files[0];
    if (!chosen) return;
    try {
      const upload = await readFile(chosen);
      this.upload = upload;
      this.open({ data: "file" });
      this.say(upload.note);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.complain(error.message);
    } finally {
      file.value = "";
    }
  }

  _buildTabs() {
    const tabs = Object.entries(INPUTS.tab.options).map(([name, title]) => {
      const tab = make("button", { type: "button", id: `tab-${name}`, role: "tab", "aria-controls": `view-${name}` }, title);
      tab.dataset.tab = name;
      tab.addEventListener("click", () => this.open({ tab: name }));
      return tab;
    });
    byId("tabs").append(...tabs);
    byId("tabs").addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const place = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (place === undefined) return;
      event.preventDefault(); // Home and End would scroll the page
      const next = tabs[(place + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  }

  _showTab() {
    byId("page").dataset.tab = this.state.tab;
    for (const box of document.querySelectorAll("[data-group]")) box.hidden = !GROUPS_OF[this.state.tab].includes(box.dataset.group);
    for (const tab of byId("tabs").children) {
      const chosen = tab.dataset.tab === this.state.tab;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.tooltip.hide();
    const place = byId("verdict"); // the words of the page before are not about this one
    place.className = "";
    place.replaceChildren(make("b", {}, "Computing …"));
  }

  _buildPresets() {
    for (const [name, preset] of Object.entries(settings.presets)) {
      const button = make("button", { type: "button", "aria-pressed": "false" }, preset.title);
      button.dataset.preset = name;
      button.addEventListener("click", () => this.load(name).catch(() => {})); // what went wrong has been said
      byId("presets").append(button);
    }
  }

  /** Hide inputs that have no meaning for the present choice. */
  _adapt() {
    const { state } = this;
    const shown = {
      width: state.architecture !== "residual",
      initialization: state.architecture === "linear",
      seeds: state.tab !== "phase",
      spikes: state.spectrum === "spike", epsilon: state.spectrum === "spike", exponent: state.spectrum === "power",
      outputs: state.data === "synthetic" && state.loss === "squared",
      ...Object.fromEntries(["samples", "dimension", "condition_number", "noise", "data_seed"].map((name) => [name, state.data === "synthetic"])),
    };
    for (const [name, visible] of Object.entries(shown)) byId(`control-${name}`).hidden = !visible;
  }

  _buildActions() {
    byId("save").addEventListener("click", () => { if (this.verdict) saveCsv(this.tabs[this.state.tab].csv(), this.state); });
    byId("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      this._recolor();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._recolor());
    new ResizeObserver(() => this._redraw()).observe(byId("page"));
    addEventListener("hashchange", (event) => this._followed(new URL(event.newURL).hash)); // the address may have been rewritten since
  }

  /** A link followed inside the page (typed, or the back button). */
  _followed(hash) {
    if (hash.slice(1) === this.lastLink) return;
    this.refused = "";
    this.go(this._fromAddress(hash));
    if (this.refused) this.complain(this.refused);
  }

  _redraw() {
    for (const figure of this.tabs[this.state.tab].figures) figure.chart.draw();
  }

  _recolor() {
    refreshPalette();
    for (const tab of Object.values(this.tabs)) for (const figure of tab.figures) figure.recolor();
    this._request();
  }
}

/** The story a state tells: a story stays on the tab it is about. */
function storyOf({ story, tab }) {
  return story && (settings.presets[story].state.tab ?? INPUTS.tab.default) === tab ? story : "";
}

/** The settings that what is measured depends on: all but the axes and the story. */
function measured(state) {
  const shown = (name) => INPUTS[name].group === "axes" || name === "story";
  return Object.entries(state).filter(([name]) => !shown(name));
}

/** The runs a page shows, in the library's terms. */
function runsOf(tab, result) {
  if (tab === "training") return result.runs.map(({ risk, gap, sharpness, distance, status }) => ({ step: result.steps.slice(0, risk.length), risk, gap, sharpness, distance, status }));
  if (tab === "orbits") {
    const { mode, network } = result.chosen;
    const statusOf = (products) => (products ? "bounded" : "diverged");
    const onGrid = (name) => result.rows.map((row) => ({ learning_rate: row.rate, status: statusOf(row[name]) }));
    return [["mode", mode], ["network", network?.map((row) => row[0])]].map(([name, product]) => ({ name, product: product ?? [], status: statusOf(product), grid: onGrid(name) }));
  }
  if (tab === "double_descent") return result.draws.map((risks) => ({ dimension: result.dimensions, excess_risk: Array.from(risks), zero_risk: result.zero }));
  if (tab !== "wide") return [];
  const { records, status, risk, zeroRisk, interpolantRisk, interpolantNorm, bias, noise, xi, cross } = result;
  return [{
    risk: records.loss, sharpness: [], distance: records.distance, perpendicular: records.perpendicular, status,
    excess_risk: risk, zero_risk: zeroRisk, minimum_norm_risk: interpolantRisk, minimum_norm: interpolantNorm, bias, noise, xi, cross,
  }];
}

export function start() {
  globalThis.deeplin = { ...api, pictures: 0, presets: Object.keys(settings.presets) };
  const page = new Page();
  globalThis.deeplin.load = (name) => page.load(name);
  globalThis.deeplin.current = () => page.current();
  /** What the training page shows now: the inputs and the numbers behind the curves. */
  globalThis.deeplin.shown = () => ({ state: page.state, result: page.tabs.training.result });
  page.counting = false;
  const state = page.state;
  page.state = null;
  page.go(state);
  if (page.refused) page.complain(page.refused);
}

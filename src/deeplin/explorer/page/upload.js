// A visitor's table: read here when it is small, by the local server when it is not.
import { norm } from "./linear_algebra.js";
import { fromData, fromMoments, scaled } from "./problem.js";
import { readTable } from "./server.js";
import { settings } from "./settings.js";
import { InputError } from "./state.js";

export const MOST_BYTES = 2_000_000;
const MOST_INPUTS = 50;
const MOST_ROWS = 20_000;
const MISSING = new Set(["", "na", "nan", "null", "none", "?"]);

/** {problems: {standardized, own}, note} of a file: inputs standardized, the target too or only centered. */
export async function readFile(file) {
  if (file.size <= MOST_BYTES) return fromText(file.name, await file.text());
  if (!settings.server) {
    throw new InputError(
      `${file.name} is larger than ${MOST_BYTES / 1e6} MB; start \`deeplin explore\`, which reads larger files, or use \`deeplin diagnose\`.`,
    );
  }
  const found = await readTable(file);
  const { covariance, cross, target_moment, samples, inputs, target } = found;
  const problem = fromMoments(Float64Array.from(covariance.flat()), Float64Array.from(cross), target_moment, samples, inputs, 1);
  return finish(problem, file.name, samples, inputs, target, "; read by the local server");
}

/** The same of the text of a CSV file: a line of names, inputs first, the target last. */
export function fromText(name, text) {
  let { header, rows } = parse(name, text);
  const counted = header.length > 2 && countsRows(rows.map((row) => row[0])) ? header[0] : null;
  if (counted !== null) [header, rows] = [header.slice(1), rows.map((row) => row.slice(1))];
  const d = header.length - 1;
  if (d > MOST_INPUTS || rows.length > MOST_ROWS) {
    throw new InputError(`${name} has ${rows.length} rows and ${d} inputs; at most ${MOST_ROWS} and ${MOST_INPUTS} fit here. Use \`deeplin diagnose\` for larger ones.`);
  }
  if (rows.length < 2) throw new InputError(`${name} has ${rows.length} complete row(s); pass at least 2.`);
  const columns = header.map((_, j) => standardized(rows.map((row) => row[j]), j === d));
  const dead = columns.findIndex((column, j) => j < d && column === null);
  if (dead >= 0) throw new InputError(`Column “${header[dead]}” of ${name} has one value only; remove it.`);
  if (columns[d] === null) throw new InputError(`The target “${header[d]}” of ${name} has one value only; there is nothing to learn.`);
  const n = rows.length;
  const X = new Float64Array(n * d);
  for (let i = 0; i < n; i++) for (let j = 0; j < d; j++) X[i * d + j] = columns[j][i];
  return finish(fromData(X, Float64Array.from(columns[d]), n, d, 1), name, n, d, header[d], counted === null ? "" : `; “${counted}” numbers the rows and was left out`);
}

function finish(problem, name, n, d, target, how) {
  const deviation = Math.sqrt(problem.targetMoment); // the target is centered
  if (!(norm(problem.optimum) > 1e-12 * deviation)) throw new InputError(`The target “${target}” of ${name} does not depend on the inputs linearly; there is nothing to learn.`);
  return {
    problems: {
      standardized: { ...scaled(problem, deviation), targetDeviation: deviation },
      own: { ...problem, targetDeviation: 1 },
    },
    note: `${name}: ${n} rows, ${d} inputs, target “${target}”; inputs standardized${how}.`,
  };
}

/** Whether a column holds 0 … n−1 or 1 … n in some order; the library leaves such a first column out too. */
function countsRows(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length >= 10 && [0, 1].includes(sorted[0]) && sorted.every((value, i) => value === sorted[0] + i);
}

/** A column without its mean, inputs also divided by their deviation; null where it is constant. */
function standardized(values, target) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  if (!(deviation > 1e-12 * Math.max(Math.abs(mean), 1e-300))) return null;
  return values.map((value) => (value - mean) / (target ? 1 : deviation));
}

/** Header and rows of numbers; rows with a missing value are left out. */
function parse(name, text) {
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\n|\r/).filter((line) => line.trim() !== "");
  if (lines.length < 2) throw new InputError(`${name} has ${lines.length} line(s); pass a CSV file with a line of names and rows of numbers.`);
  const separator = separatorOf(lines[0]);
  const header = split(lines[0], separator);
  if (header.length < 2) {
    throw new InputError(`${name} has ${header.length} column(s); pass a CSV file with a line of names, inputs first and the target last.`);
  }
  if (header.every((cell) => numberOf(cell, separator) !== null)) {
    throw new InputError(`${name} begins with numbers; its first line must name the columns.`);
  }
  const rows = [];
  lines.slice(1).forEach((line, i) => {
    const cells = split(line, separator);
    if (cells.length !== header.length) {
      throw new InputError(`Line ${i + 2} of ${name} has ${cells.length} cells and the first line ${header.length}.`);
    }
    if (cells.some((cell) => MISSING.has(cell.toLowerCase()))) return;
    rows.push(cells.map((cell, j) => {
      const value = numberOf(cell, separator);
      if (value === null) throw new InputError(`Line ${i + 2} of ${name} has “${cell.slice(0, 30)}” in column “${header[j].slice(0, 30)}”; pass numbers.`);
      return value;
    }));
  });
  return { header, rows };
}

function separatorOf(line) {
  const counts = [";", "\t", ","].map((mark) => [mark, line.split(mark).length]);
  return counts.reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
}

/** Cells of a line; quoted ones may hold the separator, "" inside them is a quote. */
function split(line, separator) {
  const cells = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const mark = line[i];
    if (quoted && mark === '"' && line[i + 1] === '"') { cell += mark; i++; }
    else if (mark === '"') quoted = !quoted;
    else if (mark === separator && !quoted) { cells.push(cell.trim()); cell = ""; }
    else cell += mark;
  }
  return [...cells, cell.trim()];
}

/** A number as people write it (decimal commas where the separator is another mark), or null. */
function numberOf(cell, separator) {
  const text = separator === "," ? cell : cell.replace(",", ".");
  if (!/^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text)) return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

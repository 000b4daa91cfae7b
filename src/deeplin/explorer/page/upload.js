// A visitor's table, read in the page.
import { norm } from "./linear_algebra.js";
import { fromData, scaled } from "./problem.js";
import { InputError } from "./state.js";

const MOST_BYTES = 2_000_000;
const MOST_INPUTS = 50;
const MOST_ROWS = 20_000;
const MISSING = new Set(["", "na", "nan", "null", "none", "?"]);

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

/** {problem, note} of a file: inputs and target standardized. */
export async function readFile(file) {
  if (file.size <= MOST_BYTES) return fromText(file.name, await file.text());
  throw new InputError(`${file.name} is larger than ${MOST_BYTES / 1e6} MB; use \`deeplin diagnose\`, which reads larger files.`);
}

/** The same of the text of a CSV file: a line of names, inputs first, the target last. */
function fromText(name, text) {
  let { header, rows, notes } = parse(name, text);
  const counted = header.length > 2 && countsRows(rows.map((row) => row[0])) ? header[0] : null;
  if (counted !== null) {
    [header, rows] = without(header, rows, [0]);
    notes.push(`“${counted}” numbers the rows and was left out`);
  }
  if (header.length - 1 > MOST_INPUTS || rows.length > MOST_ROWS) {
    throw new InputError(`${name} has ${rows.length} rows and ${header.length - 1} inputs; at most ${MOST_ROWS} and ${MOST_INPUTS} fit here. Use \`deeplin diagnose\` for larger ones.`);
  }
  if (rows.length < 2) throw new InputError(`${name} has ${count(rows.length, "complete row")}; pass at least 2.`);
  const constant = header.map((_, j) => j).filter((j) => j < header.length - 1 && standardized(rows.map((row) => row[j])) === null);
  if (constant.length) notes.push(`removed because constant: ${quoted(header, constant)}`);
  if (constant.length === header.length - 1) throw new InputError(`Every input of ${name} has one value only (${quoted(header, constant)}); there is nothing to learn from.`);
  [header, rows] = without(header, rows, constant);
  const d = header.length - 1;
  const columns = header.map((_, j) => standardized(rows.map((row) => row[j]), j === d));
  if (columns[d] === null) throw new InputError(`The target “${header[d]}” of ${name} has one value only; there is nothing to learn.`);
  const n = rows.length;
  const X = new Float64Array(n * d);
  for (let i = 0; i < n; i++) for (let j = 0; j < d; j++) X[i * d + j] = columns[j][i];
  return finish(fromData(X, Float64Array.from(columns[d]), n, d, 1), name, n, d, header[d], notes.map((note) => `; ${note}`).join(""));
}

const quoted = (header, columns) => columns.map((j) => `“${header[j].slice(0, 30)}”`).join(", ");

/** Header and rows without some columns. */
function without(header, rows, columns) {
  const kept = (row) => row.filter((_, j) => !columns.includes(j));
  return [kept(header), rows.map(kept)];
}

function finish(problem, name, n, d, target, how) {
  const deviation = Math.sqrt(problem.targetMoment); // the target is centered
  if (!(norm(problem.optimum) > 1e-12 * deviation)) throw new InputError(`The target “${target}” of ${name} does not depend on the inputs linearly; there is nothing to learn.`);
  return {
    problem: { ...scaled(problem, deviation), targetDeviation: deviation },
    note: `${name}: ${n} rows, ${d} inputs, target “${target}”; inputs standardized${how}.`,
  };
}

/** Which rows were left out because a value is missing: no note, or one. */
function droppedNotes(lines) {
  if (!lines.length) return [];
  const named = lines.slice(0, 5).join(", ") + (lines.length > 5 ? ", …" : "");
  return [`${count(lines.length, "row")} with missing values left out (line${lines.length === 1 ? "" : "s"} ${named})`];
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

/** {header, rows, notes}: rows of numbers, and what was left out: inputs of text, lines with a missing value. */
function parse(name, content) {
  const lines = content.replace(/^\uFEFF/, "").split(/\r\n|\n|\r/).filter((line) => line.trim() !== "");
  if (lines.length < 2) throw new InputError(`${name} has ${count(lines.length, "line")}; pass a CSV file with a line of names and rows of numbers.`);
  const separator = separatorOf(lines[0]);
  const header = split(lines[0], separator);
  if (header.length < 2) {
    throw new InputError(`${name} has ${count(header.length, "column")}; pass a CSV file with a line of names, inputs first and the target last.`);
  }
  if (header.every((cell) => numberOf(cell, separator) !== null)) {
    throw new InputError(`${name} begins with numbers; its first line must name the columns.`);
  }
  const [rows, dropped] = [[], []];
  const table = lines.slice(1).map((line) => split(line, separator));
  const words = (j) => table.every((cells) => numberOf(cells[j] ?? "", separator) === null);
  const text = header.map((_, j) => j).filter((j) => j < header.length - 1 && table.length && words(j));
  if (text.length === header.length - 1) throw new InputError(`No input of ${name} is made of numbers; pass numbers, or use \`deeplin diagnose --encode\`.`);
  table.forEach((cells, i) => {
    if (cells.length !== header.length) {
      throw new InputError(`Line ${i + 2} of ${name} has ${cells.length} cells and the first line ${header.length}.`);
    }
    if (cells.some((cell, j) => !text.includes(j) && MISSING.has(cell.toLowerCase()))) return void dropped.push(i + 2);
    rows.push(cells.map((cell, j) => {
      if (text.includes(j)) return null;
      const value = numberOf(cell, separator);
      if (value === null) throw new InputError(`Line ${i + 2} of ${name} has “${cell.slice(0, 30)}” in column “${header[j].slice(0, 30)}”; pass numbers.`);
      return value;
    }));
  });
  const notes = droppedNotes(dropped);
  if (text.length) notes.push(`left out because not made of numbers: ${quoted(header, text)}`);
  const [names, numbers] = without(header, rows, text);
  return { header: names, rows: numbers, notes };
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

// Axes: from numbers to pixels, ticks, and numbers as people write them.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function superscript(exponent) {
  const digits = String(Math.abs(exponent)).replace(/\d/g, (digit) => SUPERSCRIPTS[digit]);
  return (exponent < 0 ? "⁻" : "") + digits;
}

/** A number with `digits` significant digits, powers of ten as such. */
export function format(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const short = String(Number(mantissa)).replace("-", "−");
    const power = `10${superscript(Number(exponent))}`;
    return short === "1" ? power : `${short}·${power}`;
  }
  if (Number.isInteger(value)) return String(value).replace(/\B(?=(\d{3})+$)/g, ",").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

/** Ends of an axis for these values: padded, and never empty. */
export function extent(values, logarithmic, pad = 0.04) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value) || (logarithmic && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return logarithmic ? [0.1, 10] : [0, 1];
  if (logarithmic) {
    const room = Math.max((high / low) ** pad, 1.02);
    return [low / room, high * room];
  }
  const room = (high - low) * pad || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** {at(value) → pixel, value(pixel), ticks: [{value, label}]} between two ends. */
export function scale([low, high], [from, to], logarithmic) {
  const forward = logarithmic ? Math.log10 : (x) => x;
  const [a, b] = [forward(low), forward(high)];
  const factor = (to - from) / (b - a);
  return {
    logarithmic,
    at: (value) => from + (forward(value) - a) * factor,
    value: (pixel) => {
      const inside = a + (pixel - from) / factor;
      return logarithmic ? 10 ** inside : inside;
    },
    ticks: logarithmic ? logTicks(low, high, Math.abs(to - from)) : linearTicks(low, high, Math.abs(to - from)),
  };
}

function linearTicks(low, high, pixels) {
  const wanted = Math.max(2, pixels / 55);
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) {
    const value = Number((i * step).toPrecision(12));
    ticks.push({ value, label: format(value, 4) });
  }
  return ticks;
}

function logTicks(low, high, pixels) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) {
    const inside = [1, 2, 5, 10, 20, 50].map((m) => m * 10 ** (first - 1)).filter((v) => v >= low && v <= high);
    const values = inside.length >= 2 ? inside : null;
    return values ? values.map((value) => ({ value, label: format(value) })) : linearTicks(low, high, pixels);
  }
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, pixels / 30)));
  const ticks = [];
  for (let e = last; e >= first; e -= every) {
    const plain = e >= -1 && e <= 3;
    ticks.push({ value: 10 ** e, label: plain ? String(10 ** e) : `10${superscript(e)}` });
  }
  return ticks;
}

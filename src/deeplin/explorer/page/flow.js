// Gradient flow Ẇ = −∇R(W) − 2λW by the Runge-Kutta pair of Dormand and Prince, orders 5 and 4.

const A = [
  [],
  [1 / 5],
  [3 / 40, 9 / 40],
  [44 / 45, -56 / 15, 32 / 9],
  [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
  [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
];
const ERROR = [
  71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40,
];
const SETTLED = 1e-26; // of the initial gap: nothing moves any more that a picture could show

/**
 * Follow the flow through `times` (increasing, from 0) and call `observe(index, weights)` at each,
 * with the model loaded. Returns {status, time, evaluations}; "stopped" when the steps ran out.
 */
export function flow(model, start, times, options, observe) {
  const { rtol = 1e-7, atol = 1e-10, most = 20_000, weight_decay = 0 } = options;
  const size = model.size;
  const y = Float64Array.from(start);
  const next = new Float64Array(size);
  const K = A.map(() => new Float64Array(size));
  const slope = (at, out) => {
    model.load(at);
    model.gradient(out);
    for (let i = 0; i < size; i++) out[i] = -out[i] - 2 * weight_decay * at[i];
  };
  slope(y, K[0]);
  const gap = model.linear ? model.gap : 0;
  let h = firstStep(y, K[0]);
  let t = 0;
  let evaluations = 1;
  let record = 0;
  for (let step = 0; step < most; step++) {
    while (record < times.length && t >= times[record]) {
      model.load(y);
      observe(record++, y);
    }
    if (record === times.length) return { status: "done", time: t, evaluations };
    const left = times[record] - t;
    const last = h >= left * (1 - 1e-12);
    const size_ = last ? left : h;
    const error = attempt(y, next, K, size_, slope, { rtol, atol });
    evaluations += 6;
    if (error <= 1) {
      t = last ? times[record] : t + size_;
      y.set(next);
      [K[0], K[6]] = [K[6], K[0]];
      if (gap > 0 && !weight_decay && model.gap < SETTLED * gap) {
        for (; record < times.length; record++) observe(record, y);
        return { status: "done", time: t, evaluations };
      }
    }
    const factor = 0.9 * Math.max(error, 1e-10) ** -0.2;
    const grown = size_ * Math.min(5, Math.max(0.2, factor));
    h = error <= 1 && last ? Math.max(h, grown) : grown;
    if (!(h > 1e-14 * Math.max(t, 1e-300))) break;
  }
  return { status: "stopped", time: t, evaluations };
}

function firstStep(y, slope) {
  let largest = 0;
  let size = 0;
  for (let i = 0; i < y.length; i++) {
    largest = Math.max(largest, Math.abs(slope[i]));
    size = Math.max(size, Math.abs(y[i]));
  }
  return largest > 0 ? (0.01 * (size + 1e-3)) / largest : 1;
}

/** One step of size h into `next`; the error over its tolerance (root mean square). */
function attempt(y, next, K, h, slope, { rtol, atol }) {
  const size = y.length;
  for (let s = 1; s < 7; s++) {
    const row = A[s];
    for (let i = 0; i < size; i++) {
      let sum = 0;
      for (let j = 0; j < s; j++) sum += row[j] * K[j][i];
      next[i] = y[i] + h * sum;
    }
    slope(next, K[s]); // the last stage is the new point: its slope serves the next step
  }
  let total = 0;
  for (let i = 0; i < size; i++) {
    let error = 0;
    for (let s = 0; s < 7; s++) error += ERROR[s] * K[s][i];
    const room = atol + rtol * Math.max(Math.abs(y[i]), Math.abs(next[i]));
    total += ((h * error) / room) ** 2;
  }
  const error = Math.sqrt(total / size);
  return Number.isFinite(error) ? error : 1e10;
}

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
// Difference of the two orders: the weights of the error.
const [E0, E2, E3, E4, E5, E6] = [71 / 57600, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];
/**
 * Follow the flow through `times` (increasing, from 0) and call `observe(index, weights, time)` at
 * each, with the model loaded; with `each`, at every step that the solver takes up to the last of
 * them. It ends early where the gap is below `settled` times its initial value: `observe` then sees
 * the rest of the times at once. Returns {status, time, evaluations}; "stopped" when the steps ran
 * out.
 */
export function flow(model, start, times, options, observe) {
  const { rtol = 1e-7, atol = 1e-10, most = 20_000, weight_decay = 0, settled = 1e-26, each = false } = options;
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
  const floor = model.linear && !weight_decay ? settled * model.gap : -1;
  const end = times[times.length - 1];
  let h = firstStep(y, K[0]);
  let [t, evaluations, record] = [0, 1, 0];
  if (each) observe(record++, y, 0);
  for (let step = 0; step < most; step++) {
    while (!each && record < times.length && t >= times[record]) {
      model.load(y);
      observe(record, y, times[record]);
      record++;
    }
    if (t >= end) return { status: "done", time: t, evaluations };
    const left = (each ? end : times[record]) - t;
    const last = h >= left * (1 - 1e-12);
    const length = last ? left : h;
    const error = attempt(y, next, K, length, slope, { rtol, atol });
    evaluations += 6;
    if (error <= 1) {
      t = last ? (each ? end : times[record]) : t + length;
      y.set(next);
      [K[0], K[6]] = [K[6], K[0]];
      if (each) observe(record++, y, t);
      if (model.gap < floor) {
        for (; !each && record < times.length; record++) observe(record, y, times[record]);
        return { status: "done", time: t, evaluations };
      }
    }
    const factor = 0.9 * Math.max(error, 1e-10) ** -0.2;
    const grown = length * Math.min(5, Math.max(0.2, factor));
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
    next.set(y);
    for (let j = 0; j < s; j++) {
      const factor = h * A[s][j];
      const stage = K[j];
      if (factor !== 0) for (let i = 0; i < size; i++) next[i] += factor * stage[i];
    }
    slope(next, K[s]); // the last stage is the new point: its slope serves the next step
  }
  const [K0, , K2, K3, K4, K5, K6] = K;
  let total = 0;
  for (let i = 0; i < size; i++) {
    const error = E0 * K0[i] + E2 * K2[i] + E3 * K3[i] + E4 * K4[i] + E5 * K5[i] + E6 * K6[i];
    const room = atol + rtol * Math.max(Math.abs(y[i]), Math.abs(next[i]));
    total += ((h * error) / room) ** 2;
  }
  const error = Math.sqrt(total / size);
  return Number.isFinite(error) ? error : 1e10;
}

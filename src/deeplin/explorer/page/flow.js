// Gradient flow Ẇ = −∇R(W) by the Runge-Kutta pair of Dormand and Prince, orders 5 and 4.

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
 * Follow the flow to time `end` and call `observe(weights, time)` at the start and at every step that
 * the solver takes, with the model loaded. It ends early where the gap is below `settled` times its
 * initial value. Returns {status, time}; "stopped" when the steps ran out.
 */
export function flow(model, start, end, { rtol, atol, most, settled }, observe) {
  const size = model.size;
  const y = Float64Array.from(start);
  const next = new Float64Array(size);
  const K = A.map(() => new Float64Array(size));
  const slope = (at, out) => {
    model.load(at);
    model.gradient(out);
    for (let i = 0; i < size; i++) out[i] = -out[i];
  };
  slope(y, K[0]);
  const floor = model.linear ? settled * model.gap : -1;
  let h = firstStep(y, K[0]);
  let t = 0;
  observe(y, t);
  for (let step = 0; step < most && t < end; step++) {
    const last = h >= (end - t) * (1 - 1e-12);
    const length = last ? end - t : h;
    const error = attempt(y, next, K, length, slope, { rtol, atol });
    if (error <= 1) {
      t = last ? end : t + length;
      y.set(next);
      [K[0], K[6]] = [K[6], K[0]];
      observe(y, t);
      if (model.gap < floor) return { status: "done", time: t };
    }
    h = length * Math.min(5, Math.max(0.2, 0.9 * Math.max(error, 1e-10) ** -0.2));
    if (!(h > 1e-14 * Math.max(t, 1e-300))) break;
  }
  return { status: t < end ? "stopped" : "done", time: t };
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

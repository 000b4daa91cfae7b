// Gradient descent, with heavy-ball momentum.

const BLOW_UP = 1e10;
const CONVERGED = 1e-8; // R − R_min over its value at the start, as in the library

/**
 * V ← βV − η∇R(W), W ← W + V. `weights` are changed in place;
 * `observe(step, weights)` is called at steps 0, k, 2k, … and the last one (or at those of
 * `record_at`, increasing from 0), with the model loaded.
 * A run ends early where `stop()` holds. Returns {status, steps}: diverged where the risk is not finite or 1e10 times that of the start.
 */
export function descend(model, weights, options, observe) {
  const {
    learning_rate, steps, record_every = steps, momentum = 0, stop = null, record_at = null,
  } = options;
  const slope = new Float64Array(model.size);
  const velocity = momentum ? new Float64Array(model.size) : null;
  model.load(weights);
  const start = model.linear ? model.gap : model.risk;
  const ceiling = BLOW_UP * Math.max(model.risk, model.problem.targetMoment);
  let next = 0;
  for (let step = 0; ; step++) {
    const recorded = step === steps || (record_at ? step === record_at[next] : step % record_every === 0);
    if (recorded) next++;
    if (step > 0) model.load(weights);
    const alive = model.risk <= ceiling;
    if (!alive) return { status: "diverged", steps: step };
    if (recorded) observe(step, weights);
    if (step === steps) break;
    if (stop?.()) return { status: "converged", steps: step };
    model.gradient(slope);
    move(weights, slope, velocity, learning_rate, momentum);
  }
  const done = model.linear && model.gap <= CONVERGED * start;
  return { status: done ? "converged" : "stopped", steps };
}

function move(weights, slope, velocity, rate, momentum) {
  const size = weights.length;
  if (!velocity) {
    for (let i = 0; i < size; i++) weights[i] -= rate * slope[i];
    return;
  }
  for (let i = 0; i < size; i++) {
    velocity[i] = momentum * velocity[i] - rate * slope[i];
    weights[i] += velocity[i];
  }
}

// The other side of the pool: one job after another.
import { doubleDescent } from "./double_descent.js";
import { train } from "./experiment.js";
import { orbitsAt } from "./orbits.js";
import { columnOf } from "./phase.js";
import { wide } from "./wide.js";

const JOBS = { train, columnOf, wide, orbitsAt, doubleDescent };

export function start() {
  globalThis.onmessage = ({ data: { name, args } }) => {
    try {
      globalThis.postMessage({ result: JOBS[name](...args) });
    } catch (error) {
      globalThis.postMessage({ error: String(error?.message ?? error) });
    }
  };
}

// The other side of the pool: one job after another.
import { train } from "./experiment.js";
import { columnOf } from "./phase.js";
import { wide } from "./wide.js";

const JOBS = { train, columnOf, wide };

export function start() {
  globalThis.onmessage = ({ data: { name, args } }) => {
    try {
      globalThis.postMessage({ result: JOBS[name](...args) });
    } catch (error) {
      globalThis.postMessage({ error: String(error?.message ?? error) });
    }
  };
}

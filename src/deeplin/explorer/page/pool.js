// Workers for what takes longer than a frame. They run the same modules as the page.

const COUNT = Math.max(1, Math.min(4, globalThis.navigator?.hardwareConcurrency ?? 2));
const PATIENCE = 1000; // milliseconds an outdated job may keep its worker

/** The page is one file: a worker is its module text with another entry. */
function spawn() {
  const source = document.getElementById("modules").textContent;
  const url = URL.createObjectURL(new Blob([`globalThis.entry = "worker.js";\n${source}`], { type: "text/javascript" }));
  const worker = new Worker(url); // a classic one: module workers do not start from a file
  worker.addEventListener("message", () => URL.revokeObjectURL(url), { once: true });
  return worker;
}

/** Runs jobs [{name, args}] on workers; a later call makes the earlier one end unseen. */
export class Pool {
  constructor(count = COUNT) {
    this.count = count;
    this.workers = [];
    this.turn = 0;
    this.started = 0;
  }

  /** Resolves to all results in order, or to null when a later call came; `each(index, result)`. */
  run(jobs, each = () => {}) {
    const turn = ++this.turn;
    if (this.busy && performance.now() - this.started > PATIENCE) this._restart();
    return new Promise((resolve, reject) => {
      const wait = this.busy ?? Promise.resolve();
      const work = wait.then(() => (turn === this.turn ? this._all(jobs, each, turn) : null));
      const done = work.then(resolve, reject);
      this.busy = done.finally(() => {
        if (turn === this.turn) this.busy = null;
      });
    });
  }

  async _all(jobs, each, turn) {
    this.started = performance.now();
    const results = Array(jobs.length);
    let next = 0;
    const drain = async (worker) => {
      while (next < jobs.length && turn === this.turn) {
        const index = next++;
        results[index] = await ask(worker, jobs[index]);
        if (turn === this.turn) each(index, results[index]);
      }
    };
    const wanted = Math.min(this.count, jobs.length);
    while (this.workers.length < wanted) this.workers.push(spawn());
    try {
      await Promise.all(this.workers.slice(0, wanted).map(drain));
    } catch (error) {
      if (turn !== this.turn || error === ENDED) return null;
      throw error;
    }
    return turn === this.turn ? results : null;
  }

  _restart() {
    for (const worker of this.workers) {
      worker.terminate();
      worker.ended?.();
    }
    this.workers = [];
    this.busy = null;
  }
}

const ENDED = new Error("the worker was ended");

function ask(worker, job) {
  return new Promise((resolve, reject) => {
    worker.ended = () => reject(ENDED);
    worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.result));
    worker.onerror = (event) => reject(new Error(event.message || "a worker failed"));
    worker.postMessage(job);
  });
}

// The two questions a page asks the local server, when there is one.
import { settings, statements } from "./settings.js";
import { InputError } from "./state.js";

async function ask(path, body) {
  const reply = await fetch(path, {
    method: "POST", body, headers: { "X-Deeplin-Token": settings.server.token, "Content-Type": "application/octet-stream" },
  }).catch(() => {
    throw new InputError("The local server does not answer; start `deeplin explore` again.");
  });
  const answer = await reply.json().catch(() => ({ error: `The server answered ${reply.status}.` }));
  if (!reply.ok) throw new InputError(answer.error);
  return answer;
}

/** Rows of the certificate of a run. */
export async function certify(request) {
  const { rows, statements: known } = await ask("certify", JSON.stringify(request));
  Object.assign(statements, known);
  return rows;
}

/** Moments of a table too large for the page: {covariance, cross, target_moment, samples, …}. */
export function readTable(file) {
  return ask(`table?name=${encodeURIComponent(file.name.slice(-60))}`, file);
}

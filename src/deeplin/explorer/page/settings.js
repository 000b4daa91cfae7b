// What the page was built with: inputs, presets, certificates of presets and, when served, the token.

const block = globalThis.document?.getElementById("settings");
export const settings = block ? JSON.parse(block.textContent) : { inputs: {}, presets: {}, server: null };
/** Title and formula of statements, by their id. */
export const statements = {};
let certificates = null;

/** The certificates that an exported file holds, {preset: {descent, flow}}; their statements become known. */
export async function certificatesOfPresets() {
  if (certificates || !settings.packed) return certificates ?? {};
  const bytes = Uint8Array.from(atob(settings.packed), (mark) => mark.charCodeAt(0));
  const unpacked = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  Object.assign(statements, unpacked.statements);
  certificates = unpacked.certificates;
  return certificates;
}

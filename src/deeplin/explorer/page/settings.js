// What the page was built with: inputs, presets, certificates and, when served, the token.

const block = globalThis.document?.getElementById("settings");
export const settings = block ? JSON.parse(block.textContent) : { inputs: {}, presets: {}, certificates: {}, server: null };

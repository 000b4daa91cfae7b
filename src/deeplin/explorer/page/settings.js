// What the page was built with: inputs and presets.

const block = globalThis.document?.getElementById("settings");
export const settings = block ? JSON.parse(block.textContent) : { inputs: {}, presets: {} };

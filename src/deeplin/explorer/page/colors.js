// Colors that color-blind people can tell apart (after Okabe and Ito), for paper and for the dark.
//
// One meaning each, as in the figures of the library: blue is a trained network, green what theory knows
// without training, purple the limit of stability 2/η, red what diverged, gray a reference (gradient flow,
// predicting zero), orange what the start leaves behind. In heat
// maps yellow is settled and dark far from it; what is not trained yet is gray.

const LIGHT = {
  blue: "#0072b2", orange: "#d98200", green: "#00805c", red: "#d55e00", purple: "#a8458a", gray: "#7d858e", unfinished: "#cfd5db", part: "#8fa3b8",
  paper: "#ffffff", text: "#1d2126", soft: "#5c6570", line: "#e1e4e8", frame: "#b9c0c8",
};
const DARK = {
  blue: "#56b4e9", orange: "#f0b23a", green: "#2fc79a", red: "#ff8a50", purple: "#e59cc8", gray: "#a3abb5", unfinished: "#59626c", part: "#7f93a8",
  paper: "#16191d", text: "#e8eaed", soft: "#a3abb5", line: "#2c323a", frame: "#4b545e",
};
const HEAT = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const LAYERS_LIGHT = ["#5b02a3", "#9a179b", "#cb4679", "#e56b5d", "#e8892f", "#d39c00"];
const LAYERS_DARK = ["#9a7bff", "#c86fe0", "#ee7fb0", "#ff9d80", "#ffb95a", "#ffe14d"];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

let dark = null;

/** Look again which colors are wanted. */
export function refreshPalette() {
  dark = isDark();
}

export function palette() {
  if (dark === null) refreshPalette();
  return dark ? DARK : LIGHT;
}

/** The color at `share` (0 to 1) of a ramp. */
function ramp(colors, share) {
  const place = Math.min(Math.max(share, 0), 1) * (colors.length - 1);
  const k = Math.min(Math.floor(place), colors.length - 2);
  const parts = [0, 1, 2].map((i) => {
    const [a, b] = [colors[k], colors[k + 1]].map((color) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16));
    return Math.round(a + (b - a) * (place - k));
  });
  return `rgb(${parts.join(",")})`;
}

/** From settled (yellow) to far from it (dark). */
export const heat = (share) => ramp(HEAT, 1 - share);

/** From the first layer (violet) to the last (yellow), readable on the present paper. */
export function layerColor(k, count) {
  return ramp(palette() === DARK ? LAYERS_DARK : LAYERS_LIGHT, count > 1 ? k / (count - 1) : 0);
}

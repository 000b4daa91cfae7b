// Papers and pages of the documentation that the guides name.

const REFERENCES = {
  marion: ["P. Marion and L. Chizat (2024), Deep linear networks for regression are implicitly regularized towards flat minima", "https://arxiv.org/abs/2405.13456"],
  chatterji: ["N. S. Chatterji and P. M. Long (2023), Deep linear networks can benignly overfit when shallow ones do", "https://arxiv.org/abs/2209.09315"],
  cohen: ["J. Cohen et al. (2021), Gradient descent on neural networks typically occurs at the edge of stability", "https://arxiv.org/abs/2103.00065"],
  lewkowycz: ["A. Lewkowycz et al. (2020), The large learning rate phase of deep learning: the catapult mechanism", "https://arxiv.org/abs/2003.02218"],
  ghosh: ["A. Ghosh et al. (2025), Learning dynamics of deep linear networks beyond the edge of stability", "https://arxiv.org/abs/2502.20531"],
  hastie: ["T. Hastie, A. Montanari, S. Rosset and R. Tibshirani (2022), Surprises in high-dimensional ridgeless least squares interpolation", "https://arxiv.org/abs/1903.08560"],
  wu: ["J. Wu et al. (2024), Large stepsize gradient descent for logistic loss", "https://arxiv.org/abs/2402.15926"],
  sharpness: ["Sharpness and the learning rate", "concepts/sharpness.html"],
  edge: ["The edge of stability in ten lines", "concepts/edge-of-stability.html"],
  flat: ["Flat minima", "concepts/flat-minima.html"],
  initializations: ["The two initializations", "concepts/initializations.html"],
  benign: ["Benign overfitting", "concepts/benign-overfitting.html"],
  exact: ["Exact results with proofs", "exact-results.html"],
  errata: ["Errata", "errata.html"],
};
const IN_DOCUMENTATION = globalThis.location?.pathname.endsWith("/explorer-page.html");

/** {text, link} of a reference; pages of the documentation have a link only where the page is part of it. */
export function reference(name) {
  const [text, address] = REFERENCES[name];
  if (address.startsWith("https:")) return { text, link: address };
  return { text: `Documentation: ${text}`, link: IN_DOCUMENTATION ? address : null };
}

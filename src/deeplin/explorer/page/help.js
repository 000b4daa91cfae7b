// What each picture shows and why it matters, in two or three sentences.

export const HELP = {
  sharpness:
    "The sharpness is the largest eigenvalue of the Hessian: how strongly the loss curves in its steepest direction. A step of size η can settle only where it is at most 2/η (purple; with momentum (2+2β)/η). Green is S_min, the least sharpness any minimizer has for these data and this depth; dotted is S_bal, where training from a vanishing start ends; shaded are the bounds of S_min in the paper (FM-T2).",
  gap:
    "How far the risk is above the smallest possible one. A straight line on the logarithmic axis is exponential convergence; a jump up that comes down again is a catapult. The thick curve is the first run, thin ones are the others; the dashed curve is gradient flow from the start of the first run, the limit of very small steps. Dotted is what predicting zero costs; the best linear map is 0 here.",
  distance:
    "Squared distance from the map the network computes to the least-squares solution of minimal norm. It tells whether the right function was found, whatever the weights look like.",
  singular:
    "The largest singular value of each layer of the first run, from the first layer (violet) to the last (yellow). From a small start they become equal: gradient flow keeps Wₖ₊₁ᵀWₖ₊₁ − WₖWₖᵀ constant.",
  norms:
    "The Frobenius norm of each layer of the first run. Where it is close to the largest singular value in the plot beside it, the layer has rank one.",
  alignment:
    "How well the main output direction of a layer fits the main input direction of the next, ⟨vₖ₊₁, uₖ⟩²: 1 is perfect. Small starts end aligned, so that the whole network acts along one path.",
  network:
    "The layers of the first run at the playhead. Bars are singular values, largest first; the link between two layers is the thicker the better they are aligned. One bar in each layer means rank one.",
  phase:
    "One training for each cell, all from the same seed. Yellow cells settled, dark ones swing without settling, gray ones are not trained yet (their risk still falls, or rests on a plateau), red ones diverged. The green line is the critical learning rate, 2/S_min without momentum, computed from the data alone: above it no minimizer is stable. Click a cell to open its run.",
  wide_loss:
    "Mean squared error on the training data. The network has more units than samples, so it can reach zero: it interpolates, noise included.",
  wide_distance:
    "Squared distance to the interpolant of least norm, and the squared norm of Θ_⊥, the part of the trained map outside the span of the data. It is what the first layer had there at the start, carried through the upper layers. The distance cannot fall below it.",
  wide_spectrum:
    "Eigenvalues of the population and the effective rank of the tail from each j on: the sum of its eigenvalues over the largest of them. Overfitting is benign where the tail is long and flat: beyond k (dashed) it has more room than there are samples.",
  wide_parts:
    "The exact excess risk of the trained network beside that of the minimum-norm interpolant, with what predicting zero costs, and what it is made of: bias, fitted noise, the part due to Θ_⊥, and their cross terms (with what is not fitted yet). The parts add up to the risk.",
  orbits:
    "For each learning rate, where the largest mode of a balanced network goes after a thousand steps (green dots) and where a network that starts slightly out of balance goes (blue dots). One dot: it settles. Two: an orbit of period two, whose values have a formula (dashed). Red: the network diverges. Dotted green: the rate at which the orbit of period two doubles (X-37). Click to choose a rate.",
  orbit_steps:
    "The last steps at the chosen rate: the product of the largest mode alone, and the modes of the network. Dotted lines are the targets. Modes whose own critical rate is higher stay at their targets.",
  double_descent:
    "The exact excess risk of the least-squares solution of minimal norm on the first d′ inputs, for five draws of the samples and in expectation (exact below n, the limit of large n above). At d′ = n the fit goes through every sample with nothing to spare and noise is amplified; beyond, interpolation becomes smoother. Dotted is what predicting zero costs.",
};

"""Critical learning rates: the largest rates at which training can converge, by optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from deeplin.dynamics.optimizer import check_momentum, stability_limit
from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.problems import Problem, require_problem
from deeplin.theory.architecture import architecture
from deeplin.theory.minimizers import geometric_mean, layer_rates, minimal_sharpness
from deeplin.theory.stochastic import minimal_stochastic_sharpness
from deeplin.theory.weight_decay import DecayedMinimum, decayed_minimum


def critical_learning_rate(
    problem: Problem,
    depth: int | Iterable[int],
    readout: ArrayLike | None = None,
    *,
    width: int | None = None,
    biases: bool = False,
    scale: float = 1.0,
    momentum: float = 0.0,
    nesterov: bool = False,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    sam_radius: float = 0.0,
    paths: ArrayLike = 1,
) -> Any:
    """Return the learning rate above which no global minimizer is stable.

    Above it, gradient descent converges to a global minimizer from almost no start.

    For every convex loss of the problem (X-14, X-17):

    | optimizer or network | critical rate | result |
    |---|---|---|
    | gradient descent | 2/S_min | X-2, X-7 |
    | heavy ball β | (2+2β)/S_min | |
    | Nesterov β | (2+2β)/((1+2β)S_min) | |
    | smallest hidden width r | 2/S_min of the best product of rank r | X-34 |
    | autoencoder of any width | 1/(LΛ) | X-34 |
    | LoRA, W_0 + γBA | 2/(γS_min) of L = 2 with the targets Y − XW_0ᵀ | X-34 |
    | biases, squared loss, centered inputs | 2/S_min with biases | X-38 |
    | weight decay λ | 2 (with momentum as above) over S_λ | X-9 |
    | batches of B rows, R_min = 0, one output | 2/S_min(B) | X-10 |
    | layer-wise rates | bounds their *geometric mean* | X-11 |
    | SAM, θ ← θ − η∇R(θ + ρ∇R(θ)) | 2 (with momentum as above) over S_min(1 + ρS_min) | X-23 |
    | m parallel paths | 2/S_min of `parallel_sharpness`; m^{1−2/L} times that of one | X-22 |
    | Adam, RMSProp | see `adam_critical_learning_rate` | X-24 |

    The risk is a sum over outputs; `torch.nn.MSELoss` also averages over them, so rates for it are
    q times as large. The rate concerns global minimizers, and the neighborhood of one: a start far
    away can diverge below it.

    Args:
        problem: the data and the loss.
        depth: L, or several depths.
        readout: p, the fixed last vector of a network with one output.
        width: the smallest hidden width, where it is below the rank of Θ*.
        biases: whether every layer has a bias.
        scale: γ of a network γ·W_L…W_1, such as α/r in LoRA: a rate η then acts as γ^{2/L}η.
        momentum: β.
        nesterov: whether the momentum is Nesterov's.
        batch_size: B; with momentum only `stochastic_sharpness` at a given minimizer is known, and
            with weight decay descent at a constant rate does not converge.
        weight_decay: λ of R + λΣ‖W_k‖_F².
        sam_radius: ρ.
        paths: the number of parallel paths, or the norms ‖p_h‖ of their read-outs.

    Returns:
        A float, or an array with one rate for each depth.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    rate = dl.critical_learning_rate(problem, depth=10, momentum=0.9)
    assert dl.critical_learning_rate(problem, depth=10, batch_size=10) < rate
    assert dl.critical_learning_rate(problem, depth=range(2, 5)).shape == (3,)
    autoencoder = dl.Problem.from_data(X, X)
    rate = dl.critical_learning_rate(autoencoder, depth=2, width=3)
    assert np.isclose(rate, 1 / (2 * autoencoder.largest_eigenvalue))
    ```
    """
    require_problem(problem)
    if isinstance(depth, Iterable) and not isinstance(depth, str):
        options = {name: value for name, value in locals().items() if name not in ("depth",)}
        return np.array([critical_learning_rate(depth=L, **options) for L in depth])
    beta = check_momentum(momentum)
    decay = positive_number("weight_decay", weight_decay, zero_allowed=True)
    radius = positive_number("sam_radius", sam_radius, zero_allowed=True)
    L = whole_number("depth", depth)
    factor = positive_number("scale", scale) ** (2 / L)
    several = np.ndim(paths) > 0 or paths != 1
    if several:
        _require_known_for_paths(decay, batch_size, readout, paths)
    batches = None if batch_size == problem.samples else batch_size
    narrow = width is not None and width < problem.outputs
    if (narrow or biases) and (several or batches is not None or decay > 0):
        raise InputError(
            f"the critical rate of a network {'with biases' if biases else f'of width {width}'} is "
            "known for the full batch, one path and no weight decay. Pass batch_size=None, paths=1 "
            "and weight_decay=0, or leave out width and biases."
        )
    if batches is not None:
        _require_plain(beta, decay, radius)
        found = minimal_stochastic_sharpness(problem, L, batches, readout)
        return found.critical_learning_rate / factor
    if decay > 0:
        minimum = decayed_minimum(problem, L, decay / factor, readout)
        _require_certified(minimum)
        curvature = minimum.sharpness
    elif several:
        norm = architecture(problem, L, readout, "the critical learning rate").norm
        curvature = parallel_sharpness(problem, L, norm * path_norms(paths))
    else:
        curvature = minimal_sharpness(problem, L, readout, width=width, biases=biases).exact
    limit = stability_limit(beta, nesterov=nesterov)
    return limit / effective_sharpness(factor * curvature, radius)


def layerwise_sharpness(
    problem: Problem,
    rates: ArrayLike,
    readout: ArrayLike | None = None,
    *,
    width: int | None = None,
) -> float:
    """Return the least λ_max of the Hessian preconditioned by η_1 … η_L, over minimizers (X-11).

    It is (η_1⋯η_L)^{1/L} S_min: descent with these rates can converge exactly if it is at most 2
    (2+2β with momentum), so only the geometric mean of the rates matters. The network that attains
    it is `minimal_sharpness(problem, L).attaining(rates=rates)`.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    one, other = (dl.theory.layerwise_sharpness(problem, rates) for rates in ([4, 1], [1, 4]))
    assert np.isclose(one, other)
    ```
    """
    given = layer_rates(rates)
    minimal = minimal_sharpness(problem, len(given), readout, width=width)
    return geometric_mean(given) * minimal.exact


def _require_certified(minimum: DecayedMinimum) -> None:
    if not minimum.certified:
        raise InputError(
            f"weight_decay = {minimum.weight_decay:g} is so strong that the best network of depth "
            f"{minimum.depth} found for these targets is not certain to be the best there is: for "
            "several targets on inputs that are not white no closed form is known. Pass a smaller "
            "weight_decay, one column of Y, or use theory.decayed_minimum(problem, depth, "
            "weight_decay).critical_learning_rate(), the rate of the minimum found."
        )


def _require_known_for_paths(
    decay: float, batch_size: int | None, readout: ArrayLike | None, paths: ArrayLike
) -> None:
    if decay > 0 or batch_size is not None:
        raise InputError(
            "the critical rate of parallel paths is known for the full batch without weight "
            "decay; pass batch_size=None and weight_decay=0, or paths=1."
        )
    if readout is not None and np.ndim(paths) > 0:
        raise InputError("paths holds the norms of the read-outs; pass readout=None with it.")


def _require_plain(momentum: float, decay: float, radius: float) -> None:
    if radius > 0:
        raise InputError(
            f"mini-batch descent with sam_radius = {radius:g} is not covered; pass sam_radius=0 "
            "or batch_size=None."
        )
    if decay > 0:
        raise InputError(
            f"mini-batch descent with weight_decay = {decay:g} does not settle at a constant rate: "
            "its minimizer does not interpolate the data. Pass weight_decay=0 or batch_size=None."
        )
    if momentum > 0:
        raise InputError(
            f"the flattest minimizer for mini-batches with momentum = {momentum:g} is not known; "
            "pass momentum=0, or a minimizer of your choice to "
            "theory.stochastic_sharpness(problem, network, batch_size, momentum=...)."
        )


def parallel_sharpness(problem: Problem, depth: int, paths: ArrayLike) -> float:
    """Return S_min of networks with parallel paths of L layers each, any data (X-22).

    One output, any convex loss: S_min of one path with ‖p‖² = (Σ_h‖p_h‖^{−2/(L−2)})^{−(L−2)}, the
    smallest ‖p_h‖ for L = 2. Several outputs and squared loss: m^{2/L−1} times that of one path.
    For L = 2 more paths do not reduce the sharpness, for any loss.

    Args:
        problem: the data and the loss.
        depth: L, the depth of every path.
        paths: the number of paths, all with ‖p_h‖ = 1, or the norms ‖p_h‖.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    one, four = (dl.theory.parallel_sharpness(problem, 4, m) for m in (1, 4))
    assert np.isclose(four, one / 2)
    ```
    """
    L, norms = whole_number("depth", depth), path_norms(paths)
    if problem.outputs == 1:
        return minimal_sharpness(problem, L, [effective_norm(norms, L)]).exact
    if np.any(norms != 1):
        raise InputError(
            f"the paths have read-outs of norms {norms.tolist()}; networks with several outputs "
            "have none. Pass the number of paths."
        )
    if L > 2:
        problem.require_squared_loss("the sharpness of parallel paths with several outputs")
    return len(norms) ** (2 / L - 1) * minimal_sharpness(problem, L).exact


def path_norms(paths: ArrayLike) -> Float[np.ndarray, " m"]:
    """Return ‖p_h‖ of each path; ones where only the number of paths is given."""
    if np.ndim(paths) == 0:
        return np.ones(whole_number("paths", paths))
    norms = finite_array("paths", paths, (1,))
    if norms.min() < 0 or norms.max() == 0:
        raise InputError(
            f"paths is {norms.tolist()}; pass their number, or one norm ‖p_h‖ of at least 0 for "
            "each of them, not all 0."
        )
    return norms


def effective_norm(norms: Float[np.ndarray, " m"], depth: int) -> float:
    """Return ‖p‖ of a single path with the same S_min; paths with p_h = 0 do not count."""
    used = norms[norms > 0]
    if depth == 1:
        return float(np.linalg.norm(used))  # the paths add up to one layer
    if depth == 2:
        return float(used.min())
    power = 2 / (depth - 2)
    return float(np.exp(-float(logsumexp(-power * np.log(used))) / power))  # pyright: ignore


def effective_sharpness(sharpness: float, radius: float) -> float:
    """Return S(1 + ρS), which replaces S for SAM, θ ← θ − η∇R(θ + ρ∇R(θ)).

    At a minimizer its Jacobian is I − ηA(I + ρA) with A = ∇²R ⪰ 0, and λ(1 + ρλ) increases. (With
    the perturbation divided by its norm the map is not differentiable at a minimizer and converges
    at no rate: along one quadratic mode it ends in a cycle of two points.)
    """
    return sharpness * (1 + radius * sharpness)


def sam_sharpness_limit(learning_rate: float, sam_radius: float) -> float:
    """Return the largest sharpness at which SAM is stable: 4/(η(1 + √(1 + 8ρ/η))) (X-23).

    The root of ηS(1 + ρS) = 2, without cancellation; 2/η for ρ = 0.

    ```python
    from deeplin.theory.bounds import sam_sharpness_limit
    assert sam_sharpness_limit(0.1, 0.0) == 20 and sam_sharpness_limit(0.1, 0.05) < 20
    ```
    """
    eta = positive_number("learning_rate", learning_rate)
    rho = positive_number("sam_radius", sam_radius, zero_allowed=True)
    return float(4 / (eta * (1 + np.sqrt(1 + 8 * rho / eta))))


def adam_critical_learning_rate(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    beta1: float = 0.9,
    epsilon: float = 1e-8,
) -> float:
    """Return ε(2+2β₁)/((1−β₁)S_min), above which Adam converges to no minimizer (X-24).

    At a minimizer m and √ν are of first order in the deviation, so m/(√ν + ε) = m/ε up to second
    order: the late steps are those of heavy-ball descent with averaged gradients at rate η/ε, and
    β₂ does not enter. `beta1=0` is RMSProp. With the usual ε = 1e-8 all usual rates are above it:
    Adam repeatedly approaches a minimizer and leaves it again. The result holds for any convex loss
    and almost every start, with ε outside the root.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.adam_critical_learning_rate(problem, depth=3) < 1e-6
    ```
    """
    beta = positive_number("beta1", beta1, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"beta1 is {beta:g}; pass a number from 0 to below 1.")
    small = positive_number("epsilon", epsilon)
    exact = minimal_sharpness(problem, depth, readout).exact
    return small * (2 + 2 * beta) / ((1 - beta) * exact)


def logistic_descent(
    inputs: np.ndarray, labels: np.ndarray, rates: Sequence[float], steps: int
) -> np.ndarray:
    """Return the final logistic loss of descent from zero, for each learning rate.

    The loss is (1/n)Σ log(1 + exp(−y_i x_iᵀw)).

    Rates are multiples of 2/smoothness, smoothness = λ_max(XᵀX/n)/4: above 1 the convex theory
    gives no guarantee, yet on separable data the loss goes to zero for every rate (Talk-log).

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(20, 3))
    loss = dl.theory.logistic_descent(X, np.sign(X[:, 0]), rates=(1.0, 30.0), steps=500)
    assert (loss < np.log(2)).all()
    ```
    """
    X = finite_array("inputs", inputs, (2,))
    y = finite_array("labels", labels, (1,))
    signed = X * y[:, None]
    smoothness = np.linalg.norm(X, 2) ** 2 / (4 * len(X))
    eta = 2 * np.asarray(rates, dtype=np.float64) / smoothness
    w = np.zeros((X.shape[1], len(eta)))
    for _ in range(whole_number("steps", steps)):
        margin = signed @ w
        # 1/(1 + e^m) without overflow for large margins
        w += eta * (signed.T @ np.exp(-np.logaddexp(0, margin))) / len(X)
    return np.mean(np.logaddexp(0, -(signed @ w)), axis=0)

"""Initializations of both papers, and initializations by name.

Each random initialization accepts a batch of keys (and of scales) and then returns a batch of
networks. Every draw depends only on its own key, so results do not depend on how runs are grouped.
Weights are float64; `dtype="float32"` rounds the same draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpy.typing import ArrayLike

from deeplin.errors import (
    InputError,
    finite_array,
    positive_number,
    shown,
    whole_number,
)
from deeplin.networks.network import Network
from deeplin.problems import Problem

__all__ = [
    "gaussian",
    "identity_middle",
    "modified_identity",
    "pytorch",
    "rank_one",
    "residual",
    "start_by_name",
    "unit_readout",
    "zero_layer",
]

Drawn = TypeVar("Drawn", Network, Array)
PRECISIONS = (np.dtype("float64"), np.dtype("float32"))
STARTS = ("gaussian", "zero_layer", "residual", "identity")
FRAMEWORK_STARTS = ("torch", "xavier", "he", "orthogonal")
"""Starts of PyTorch (`nn.Linear` and `nn.init`), whose size does not depend on the problem."""
SCALES = {"residual": 0.25, "identity": 0.01}
"""Scales that do not depend on the problem; the others follow the size of the solution."""


def gaussian(
    key: Array,
    widths: Iterable[int],
    scale: ArrayLike,
    *,
    activation: str = "linear",
    dtype: Any = None,
) -> Network:
    """Draw layers of widths d_0, …, d_L with i.i.d. N(0, scale²) entries (FM-1).

    ```python
    import deeplin as dl, jax
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5,) * 10 + (1,), scale=0.35)
    ```
    """
    shapes = _shapes(widths)

    def draw(key, scale):
        keys = _split(key, len(shapes))
        return tuple(
            scale * standard_normal(k, shape) for k, shape in zip(keys, shapes, strict=True)
        )

    return _in_precision(dtype, Network(_draw(draw, key, scale), activation=activation))


def zero_layer(
    key: Array, widths: Iterable[int], scale: ArrayLike, *, layer: int = 1, dtype: Any = None
) -> Network:
    """Draw Gaussian layers, one of them (counted from 1) zero; meets FM-A1 at small scales."""
    net = gaussian(key, widths, scale, dtype=dtype)
    if not 1 <= whole_number("layer", layer) <= net.depth:
        raise InputError(f"layer is {layer}; pass a layer from 1 to {net.depth}.")
    weights = list(net.weights)
    weights[layer - 1] = jnp.zeros_like(weights[layer - 1])
    return Network(weights)


def residual(
    key: Array,
    width: int,
    depth: int,
    scale: ArrayLike,
    readout: ArrayLike | None = None,
    *,
    dtype: Any = None,
) -> Network:
    """Draw W_k = I + (s/√(Ld)) N_k with a fixed read-out p (FM, residual initialization).

    Without `readout` the network is the multivariate one of FM-T5, x ↦ W_L…W_1x.
    """
    d, L = whole_number("width", width), whole_number("depth", depth)

    def draw(key, scale):
        noise = standard_normal(key, (L * d, d)) * (scale / math.sqrt(L * d))
        eye, layers = np.eye(d, dtype=noise.dtype), range(0, L * d, d)
        return tuple(eye + noise[..., k : k + d, :] for k in layers)

    return _in_precision(
        dtype, Network(_draw(draw, key, scale, zero_allowed=True), readout=readout)
    )


def unit_readout(key: Array, width: int, *, dtype: Any = None) -> Array:
    """Draw a uniformly random unit vector, the fixed read-out p of FM-4, or one for each key."""
    _key_dimensions(key)
    vector = standard_normal(key, (whole_number("width", width),))
    return _in_precision(dtype, vector / jnp.linalg.norm(vector, axis=-1, keepdims=True))


def rank_one(
    direction: ArrayLike,
    depth: int,
    *,
    widths=None,
    readout: ArrayLike | None = None,
    dtype: Any = None,
) -> Network:
    """Return balanced aligned rank-one weights with product `direction`, FM's limit as ε → 0 (X-3).

    All layers have the same norm (‖w‖/‖p‖)^{1/L}; W_1 = σ u_1 ŵᵀ, W_k = σ u_k u_{k−1}ᵀ.
    """
    w = jnp.asarray(direction, float)
    L = whole_number("depth", depth)
    readout = None if readout is None else jnp.asarray(readout)
    last = 1 if readout is None else len(readout)
    widths = (len(w),) * L + (last,) if widths is None else tuple(widths)
    if len(widths) != L + 1 or widths[0] != len(w) or widths[-1] != last:
        raise InputError(
            f"widths are {widths}; pass {L + 1} of them from {len(w)} inputs to {last} output(s)."
        )
    norm = jnp.linalg.norm(w)
    if not isinstance(norm, Tracer) and norm == 0:
        raise InputError("direction is zero; pass a vector with a direction.")
    output = jnp.ones(1) if readout is None else readout / jnp.linalg.norm(readout)
    target = norm if readout is None else norm / jnp.linalg.norm(readout)
    units = [w / norm, *(jnp.eye(m)[0] for m in widths[1:-1]), output]
    sigma = target ** (1 / L)
    layers = [sigma * jnp.outer(units[k], units[k - 1]) for k in range(1, L + 1)]
    return _in_precision(dtype, Network(layers, readout=readout))


def identity_middle(
    key: Array,
    inputs: int,
    width: int,
    outputs: int,
    depth: int,
    alpha: ArrayLike,
    beta: ArrayLike,
    *,
    dtype: Any = None,
) -> Network:
    """Draw W_1 ~ N(0, α²) and W_L ~ N(0, β²) entrywise, with identities in between (BO-D2.3)."""
    d, m, q = (
        whole_number(name, value)
        for name, value in (("inputs", inputs), ("width", width), ("outputs", outputs))
    )
    L = whole_number("depth", depth, minimum=2)
    a = positive_number("alpha", alpha, zero_allowed=True)
    b = positive_number("beta", beta, zero_allowed=True)

    def draw(key, _):
        keys = _split(key, 2)
        first, last = a * standard_normal(keys[0], (m, d)), b * standard_normal(keys[1], (q, m))
        middle = np.broadcast_to(np.eye(m, dtype=first.dtype), (*first.shape[:-2], m, m))
        return (first, *[middle] * (L - 2), last)

    return _in_precision(dtype, Network(_draw(draw, key, 1.0)))


def modified_identity(inputs: int, outputs: int, depth: int, *, dtype: Any = None) -> Network:
    """Return BO-mod-id: W_1 copies the input, W_L reads the last q of d+q units (Zou et al.)."""
    d, q = whole_number("inputs", inputs), whole_number("outputs", outputs)
    L = whole_number("depth", depth, minimum=2)
    m = d + q
    eye = jnp.eye(m)
    return _in_precision(dtype, Network([eye[:, :d], *([eye] * (L - 2)), eye[d:]]))


def start_by_name(
    name: str,
    problem: Problem,
    key: Array,
    *,
    depth: int,
    width: int | None = None,
    scale: ArrayLike | None = None,
    readout: ArrayLike | None = None,
    activation: str = "linear",
) -> Network:
    """Draw the start `name` for this problem; a batch of keys (and of scales) gives a batch.

    - `gaussian`: entries N(0, scale²), by default half of ‖W*‖^{1/L}/√width;
    - `zero_layer`: the same with a first layer of zeros (meets FM-A1);
    - `residual`: identity plus noise of this scale (default 0.25) and a read-out of norm one,
      random unless it is given;
    - `identity`: BO-D2.3 with α = scale (default 0.01) and β = 1;
    - `torch`, `xavier`, `he`, `orthogonal`: as `pytorch` draws them, times `scale`, without biases.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.start_by_name("gaussian", problem, jax.random.key(0), depth=3)
    assert net.widths == (5, 5, 5, 1)
    ```
    """
    d, q, L = problem.dimension, problem.outputs, whole_number("depth", depth)
    m = whole_number("width", default_width(problem) if width is None else width)
    if name in FRAMEWORK_STARTS:
        factor = 1.0 if scale is None else positive_number("scale", scale)
        widths = (d, *[m] * (L - 1), q)
        network = pytorch(key, widths, name, biases=False, activation=activation)
        return jax.tree.map(lambda leaf: factor * leaf, network)
    if name not in STARTS:
        known = ", ".join((*STARTS, *FRAMEWORK_STARTS))
        raise InputError(f"initialization is {name!r}; pass one of {known}.")
    if scale is None and name not in SCALES:
        problem.require_signal("a scale that fits the solution")
        scale = 0.5 * problem.optimum_norm ** (1 / L) / np.sqrt(m)
    scale = SCALES[name] if scale is None else scale
    widths = (d, *[m] * (L - 1), q)
    if name == "gaussian":
        return gaussian(key, widths, scale, activation=activation)
    if activation != "linear":
        raise InputError(f"activation is {activation!r}; pass initialization='gaussian' for it.")
    if name == "zero_layer":
        return zero_layer(key, widths, scale)
    if name == "identity":
        return identity_middle(key, d, m, q, L, alpha=scale, beta=1.0)
    problem.require_single_target("the residual network")
    if readout is None:
        key, own = _split(key, 2)
        readout = unit_readout(own, d)
    return residual(key, d, L, scale, readout)


def pytorch(
    key: Array,
    widths: Iterable[int],
    kind: str = "torch",
    *,
    biases: bool = True,
    activation: str = "linear",
    dtype: Any = None,
) -> Network:
    """Draw a network as a user of PyTorch does: `nn.Linear` layers, with their biases.

    With fan-in i and fan-out o the weights are, by `kind`: `torch` U(±1/√i), the default of
    `nn.Linear`; `xavier` U(±√(6/(i+o))); `he` N(0, 2/i); `orthogonal` a uniformly random
    (semi-)orthogonal matrix. Biases are U(±1/√i) in each case, because the functions of `nn.init`
    are applied to the weights alone.

    Args:
        key: A key, or a batch of keys for a batch of networks.
        widths: d_0, …, d_L.
        kind: `torch`, `xavier`, `he` or `orthogonal`.
        biases: Whether the layers have biases.
        activation: Activation between the layers.
        dtype: `"float32"` or `"float64"`.

    ```python
    import deeplin as dl, jax
    net = dl.initialize.pytorch(jax.random.key(0), widths=(5, 8, 1), kind="xavier")
    assert [bias.shape for bias in net.biases] == [(8,), (1,)]
    ```
    """
    shapes, single = _shapes(widths), _key_dimensions(key) == key.ndim
    words = np.asarray(jax.random.key_data(key))
    drawn = []
    for own in words[None] if single else words:
        rng = np.random.default_rng(own.ravel())
        weights = framework_layers(kind, rng, (shapes[0][1], *[o for o, _ in shapes]))
        bounds = [1 / math.sqrt(i) for _, i in shapes]
        offsets = [rng.uniform(-b, b, size=o) for b, (o, _) in zip(bounds, shapes, strict=True)]
        drawn.append((weights, offsets if biases else [None] * len(shapes)))
    weights, offsets = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
    if single:
        weights, offsets = jax.tree.map(lambda leaf: leaf[0], (weights, offsets))
    return _in_precision(dtype, Network(weights, offsets, activation=activation))


def framework_layers(
    name: str, rng: np.random.Generator, widths: Iterable[int]
) -> list[np.ndarray]:
    """Draw the weights of `pytorch`, for widths d_0, …, d_L."""
    if name not in FRAMEWORK_STARTS:
        raise InputError(f"name is {name!r}; pass one of {', '.join(FRAMEWORK_STARTS)}.")
    layers = []
    for o, i in _shapes(widths):
        if name == "he":
            layers.append(rng.normal(size=(o, i)) * math.sqrt(2 / i))
        elif name == "orthogonal":
            q, r = np.linalg.qr(rng.normal(size=(max(o, i), min(o, i))))
            q = q * np.sign(np.diag(r))  # otherwise the draw is not uniform
            layers.append(q if o >= i else q.T)
        else:
            bound = 1 / math.sqrt(i) if name == "torch" else math.sqrt(6 / (i + o))
            layers.append(rng.uniform(-bound, bound, size=(o, i)))
    return layers


def default_width(problem: Problem) -> int:
    """Return a hidden width of at most 32 that is not below what the solution may need."""
    return max(min(problem.dimension, 32), min(problem.dimension, problem.outputs))


def standard_normal(key: Array, shape: tuple[int, ...]) -> Array | np.ndarray:
    """Draw i.i.d. N(0, 1) entries, the same as `jax.random.normal`, for a key or each of a batch.

    Entry i depends only on the key and on i, so that a draw is a prefix of any longer one. Only a
    few lengths are compiled for all shapes, which otherwise takes a second for a new network.
    Results are sliced and reshaped in NumPy, which compiles nothing, unless JAX is tracing.
    """
    size = math.prod(shape)
    length = next((n for n in (64, 256, 1024, 4096, 16384) if n >= size), size)
    drawn: Any = _for_each(key, lambda key: jax.random.normal(key, (length,)))
    drawn = drawn if isinstance(drawn, Tracer) else np.asarray(drawn)
    return drawn[..., :size].reshape(*drawn.shape[:-1], *shape)


def _in_precision(dtype: Any, arrays: Drawn) -> Drawn:
    """Return a network or an array in float32 or float64; as it is for None."""
    if dtype is None:
        return arrays
    if dtype not in PRECISIONS:
        raise InputError(f"dtype is {shown(dtype)}; pass 'float64' or 'float32'.")
    return jax.tree.map(lambda leaf: leaf.astype(dtype), arrays)


def _split(key: Array, count: int) -> list[Array]:
    """Return the keys of `jax.random.split`, of which number i is also `fold_in(key, i)`.

    This needs one program for all counts. It holds for JAX's default generator only.
    """
    if jax.config.jax_threefry_partitionable and _is_threefry(key):  # pyright: ignore[reportAttributeAccessIssue]
        return [_for_each(key, lambda key, i=i: jax.random.fold_in(key, i)) for i in range(count)]
    keys = _for_each(key, lambda key: jax.random.split(key, count))
    return list(jnp.moveaxis(keys, key.ndim - _key_dimensions(key), 0))


def _for_each(key: Array, function: Callable[[Array], Array]) -> Array:
    """Return `function(key)`, or its results for each key of a batch.

    Under `vmap` the draws of generators other than threefry depend on the first key of the batch,
    so these are called for one key after the other.
    """
    if key.ndim == _key_dimensions(key):
        return function(key)
    return jax.vmap(function)(key) if _is_threefry(key) else jax.lax.map(function, key)


def _is_threefry(key: Array) -> bool:
    """Return whether this is a key of JAX's default generator."""
    return str(key.dtype) in ("key<fry>", "uint32")


def _shapes(widths: Iterable[int]) -> list[tuple[int, int]]:
    if not isinstance(widths, Iterable):
        raise InputError(f"widths is {shown(widths)}; pass d_0, …, d_L, such as (5, 5, 1).")
    sizes = tuple(widths)
    if len(sizes) < 2:
        raise InputError(
            f"widths are {sizes} (depth {len(sizes) - 1}); pass d_0, …, d_L with L ≥ 1."
        )
    sizes = tuple(whole_number("each width", size) for size in sizes)
    return [(sizes[k + 1], sizes[k]) for k in range(len(sizes) - 1)]


def _key_dimensions(key: Array) -> int:
    """Return the number of axes of a single key of this kind."""
    if not isinstance(key, Array):
        raise InputError(f"key is {shown(key)}; pass jax.random.key(seed).")
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim <= 1:
        return 0
    if key.dtype == jnp.uint32 and key.ndim in (1, 2) and key.shape[-1] == 2:
        return 1
    raise InputError(
        f"key has shape {key.shape} and type {key.dtype}; pass jax.random.key(seed), or "
        "jax.random.split(key, count) for a batch."
    )


def _draw(draw, key: Array, scale: ArrayLike, *, zero_allowed: bool = False) -> tuple[Array, ...]:
    """Return the layers of `draw(key, scale)` for a key, or for a batch of keys and scales.

    A batch of scales has the axes of the layers, so that it multiplies them.
    """
    if not isinstance(scale, Tracer):
        for value in np.ravel(finite_array("scale", scale, (0, 1))):
            positive_number("scale", value, zero_allowed=zero_allowed)
    single = _key_dimensions(key)
    arrays: Any = jnp if isinstance(scale, Tracer) else np  # NumPy compiles nothing
    scales: Array = arrays.asarray(scale, dtype=jax.dtypes.canonicalize_dtype(float))
    if key.ndim == single and scales.ndim == 0:
        return draw(key, scales)
    if key.ndim == single:
        raise InputError(
            f"scale has shape {scales.shape} but there is one key; pass one key for each scale: "
            "jax.random.split(key, len(scale))."
        )
    if scales.ndim and scales.shape != key.shape[:1]:
        raise InputError(
            f"scale has shape {scales.shape} for {key.shape[0]} keys; pass one scale for each key."
        )
    return draw(key, scales[:, None, None] if scales.ndim else scales)

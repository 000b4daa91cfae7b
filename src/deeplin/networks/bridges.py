"""Networks built elsewhere: PyTorch's `Sequential`, or the arrays of any other library.

PyTorch is never imported here: its layers are recognised by what they carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplin.checks import InputError, finite_array, shown
from deeplin.networks.network import Network


def from_arrays(
    weights: Iterable[Any], readout: Any = None, *, inputs_first: bool = False
) -> Network:
    """A linear network from any arrays: NumPy, JAX, PyTorch, nested lists.

    W_k has one row for each output. Libraries that keep kernels the other way round, (inputs,
    outputs), as Flax and Keras do, need `inputs_first=True`.

    ```python
    import deeplin as dl
    from deeplin.networks.bridges import from_arrays

    kernels = [[[1.0, 0.5]], [[2.0], [1.0]]]          # one input, two hidden units, one output
    network = from_arrays(kernels, inputs_first=True)
    assert network.widths == (1, 2, 1)
    ```
    """
    if not isinstance(weights, Iterable) or getattr(weights, "ndim", 1) == 0:
        raise InputError(f"weights is {shown(weights)}; pass one array for each layer, in a list.")
    matrices = [_matrix(f"layer {k}", weight) for k, weight in enumerate(weights, start=1)]
    if inputs_first:
        matrices = [matrix.T for matrix in matrices]
    return Network(matrices, None if readout is None else _plain(readout))


def from_torch(module: Any, readout: Any = None) -> Network:
    """A network from a `torch.nn.Sequential` of bias-free linear layers.

    The layers may follow one another directly (a linear network) or with the same activation
    between every two: `ReLU`, or `GELU(approximate="tanh")`. Nested `Sequential`s and `Identity`
    are looked through; anything else is refused by name.

    ```python
    import deeplin as dl, torch
    network = dl.from_torch(torch.nn.Sequential(
        torch.nn.Linear(5, 8, bias=False), torch.nn.Linear(8, 1, bias=False)))
    ```
    """
    weights: list[np.ndarray] = []
    between: list[str] = []  # the activation before each layer but the first
    pending = "linear"
    for layer in _layers(module):
        name = type(layer).__name__
        if name == "Linear":
            if getattr(layer, "bias", None) is not None:
                raise InputError(
                    f"layer {len(weights) + 1} has a bias; deep linear networks have none. Pass "
                    "Linear(..., bias=False), and centre the data instead."
                )
            if weights:
                between.append(pending)
            weights.append(_matrix(f"layer {len(weights) + 1}", layer.weight))
            pending = "linear"
            continue
        activation = _activation(layer)
        if pending != "linear" or not weights:
            raise InputError(f"{name} does not follow a linear layer; pass one between layers.")
        pending = activation
    if pending != "linear":
        raise InputError("an activation follows the last layer; the output must be linear.")
    if len(set(between)) > 1:
        raise InputError(f"activations differ ({', '.join(between)}); pass one kind everywhere.")
    activation = between[0] if between else "linear"
    return Network(weights, None if readout is None else _plain(readout), activation)


def _layers(module: Any) -> Iterable[Any]:
    """The layers of nested `Sequential`s, in order."""
    name = type(module).__name__
    if name == "Sequential":
        for child in module:  # not children(), which leaves out a layer that comes twice
            yield from _layers(child)
    elif name != "Identity":
        yield module


def _activation(layer: Any) -> str:
    name = type(layer).__name__
    if name == "ReLU":
        return "relu"
    if name == "GELU" and getattr(layer, "approximate", "none") == "tanh":
        return "gelu"
    raise InputError(
        f"{name} is no layer of a network here; pass bias-free Linear layers, with ReLU or "
        'GELU(approximate="tanh") between them if they are not linear.'
    )


def _matrix(name: str, weight: Any) -> np.ndarray:
    """The weight as a checked matrix: float32 stays float32, everything else becomes float64."""
    plain = _plain(weight)
    checked = finite_array(name, plain, (2,))
    return checked.astype(np.float32) if plain.dtype == np.float32 else checked


def _plain(values: Any) -> np.ndarray:
    """NumPy values of an array or of a PyTorch tensor, wherever it lives and whatever tracks it."""
    # NumPy has no bfloat16, in which PyTorch networks are often kept.
    widen = ("double",) if str(getattr(values, "dtype", "")) == "torch.bfloat16" else ()
    try:
        for release in ("detach", "cpu", *widen):
            if hasattr(values, release):
                values = getattr(values, release)()
        return np.asarray(values)
    except (TypeError, NotImplementedError) as error:  # sparse, or without data
        raise InputError(f"an array cannot be read: {error} Pass dense numbers.") from error

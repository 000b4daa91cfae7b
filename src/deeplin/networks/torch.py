"""Networks from other libraries: PyTorch's `Sequential`, or arrays of any library.

PyTorch is not imported here: its layers are recognized by their attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, shown
from deeplin.networks.network import Network

KNOWN = {"ReLU": "relu", "Tanh": "tanh", "GELU none": "gelu_exact", "GELU tanh": "gelu"}
"""Activations of PyTorch, with the value of `approximate`."""
HINTS = {
    "Dropout": "Call module.eval() first: without it the network is a random function",
    "BatchNorm1d": "Fold it into the linear layer before it, or leave it out",
    "LayerNorm": "Leave it out: it divides by the size of its input, which no layer here does",
    "GELU": 'Its approximate is neither "none" nor "tanh"',
}
OTHER_MODULE_HINT = (
    "Of any other module the sharpness comes from deeplin.sharpness(deeplin.TorchLoss(loss, data), "
    "module) (docs/how-to/pytorch.md)"
)


def from_arrays(
    weights: Iterable[Any],
    readout: ArrayLike | None = None,
    *,
    biases: Iterable[Any] | None = None,
    activation: str = "linear",
    inputs_first: bool = False,
) -> Network:
    """Return a network from any arrays: NumPy, JAX, PyTorch, nested lists.

    W_k has one row for each output. Pass `inputs_first=True` for libraries with kernels of shape
    (inputs, outputs), such as Flax and Keras.

    Args:
        weights: One matrix for each layer.
        readout: A fixed last vector p, or None.
        biases: One vector or None for each layer; None for a network without biases.
        activation: Activation between every two layers, one of `deeplin.networks.ACTIVATIONS`.
        inputs_first: Whether the matrices are (inputs, outputs).

    ```python
    import numpy as np
    from deeplin import from_arrays

    kernels = [[[1.0, 0.5]], [[2.0], [1.0]]]          # one input, two hidden units, one output
    network = from_arrays(kernels, inputs_first=True)
    assert network.widths == (1, 2, 1)
    shifted = from_arrays(kernels, biases=[[3.0, 4.0], None], inputs_first=True)
    moved = shifted(np.ones((1, 1))) - network(np.ones((1, 1)))
    assert moved[0, 0] == 2 * 3.0 + 1 * 4.0
    ```
    """
    if not isinstance(weights, Iterable) or getattr(weights, "ndim", 1) == 0:
        raise InputError(f"weights is {shown(weights)}; pass one array for each layer, in a list.")
    matrices = [_array(f"layer {k}", weight, 2) for k, weight in enumerate(weights, start=1)]
    if inputs_first:
        matrices = [matrix.T for matrix in matrices]
    if biases is not None:
        biases = [
            None if bias is None else _array(f"the bias of layer {k}", bias, 1)
            for k, bias in enumerate(biases, start=1)
        ]
    return Network(matrices, biases, None if readout is None else _plain(readout), activation)


def from_torch(module: Any, readout: ArrayLike | None = None) -> Network:
    """Return a network from a `torch.nn.Sequential` of linear layers.

    The layers may follow one another directly (a linear network) or with the same activation
    between every two: `ReLU`, `Tanh`, or `GELU` (exact, or with `approximate="tanh"`). Nested
    `Sequential`s, `Identity`, and `Dropout` in evaluation mode are skipped; any other module raises
    an `InputError` that says what to do instead. Biases are taken as they are. `TorchLoss` measures
    any other module.

    ```python
    import deeplin as dl, torch
    network = dl.from_torch(torch.nn.Sequential(
        torch.nn.Linear(5, 8, bias=False), torch.nn.Linear(8, 1, bias=False)))
    ```
    """
    layers: list[Any] = []
    after: list[str] = []  # the activation after each layer
    for layer in _layers(module):
        name = type(layer).__name__
        if name == "Linear":
            layers.append(layer)
            after.append("linear")
            continue
        activation = _activation(layer)
        if not layers or after[-1] != "linear":
            raise InputError(f"{name} does not follow a linear layer; pass one between layers.")
        after[-1] = activation
    *between, last = after or ["linear"]
    if last != "linear":
        raise InputError("an activation follows the last layer; the output must be linear.")
    if len(set(between)) > 1:
        raise InputError(f"activations differ ({', '.join(between)}); pass one kind everywhere.")
    biases = [getattr(layer, "bias", None) for layer in layers]
    return from_arrays(
        [layer.weight for layer in layers],
        readout,
        biases=biases if any(bias is not None for bias in biases) else None,
        activation=between[0] if between else "linear",
    )


def _layers(module: Any) -> Iterable[Any]:
    """Return the layers of nested `Sequential`s, in order."""
    name = type(module).__name__
    if name == "Sequential":
        for child in module:  # not children(), which skips repeated layers
            yield from _layers(child)
    elif name != "Identity" and not (name == "Dropout" and not getattr(module, "training", True)):
        yield module


def _activation(layer: Any) -> str:
    name = type(layer).__name__
    kind = f"{name} {layer.approximate}" if hasattr(layer, "approximate") else name
    if kind in KNOWN:
        return KNOWN[kind]
    raise InputError(
        f"{name} is not supported as a layer; pass Linear layers, with ReLU, Tanh or GELU "
        f"between them if they are not linear. {HINTS.get(name, OTHER_MODULE_HINT)}."
    )


def _array(name: str, given: Any, dimensions: int) -> np.ndarray:
    """Return a checked matrix or vector: float32 is kept, everything else becomes float64."""
    plain = _plain(given)
    checked = finite_array(name, plain, (dimensions,))
    return checked.astype(np.float32) if plain.dtype == np.float32 else checked


def _plain(values: Any) -> np.ndarray:
    """Return NumPy values of an array or of a PyTorch tensor on any device, detached."""
    # NumPy has no bfloat16, in which PyTorch networks are often kept.
    widen = ("double",) if str(getattr(values, "dtype", "")) == "torch.bfloat16" else ()
    try:
        for release in ("detach", "cpu", *widen):
            if hasattr(values, release):
                values = getattr(values, release)()
        return np.asarray(values)
    except (TypeError, NotImplementedError) as error:  # sparse, or without data
        raise InputError(f"an array cannot be read: {error} Pass dense numbers.") from error

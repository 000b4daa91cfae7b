"""The Hessian of any PyTorch module, by PyTorch's Hessian-vector products.

PyTorch is imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from deeplin.errors import InputError, reason, shown


def _torch() -> Any:
    return import_module("torch")


class TorchLoss:
    """The mean loss of a PyTorch module over data: `dl.sharpness(TorchLoss(loss, data), module)`.

    R = (1/n) Σ_i ℓ(module(x_i), y_i), with batches of `data` weighted by their sizes, so that the
    result does not depend on how the rows are split into batches (unless `training`). The module is
    evaluated on the device where its parameters are; its mode, buffers and `.grad` and the state of
    PyTorch's random number generator are restored afterwards.

    Args:
        loss: `loss(outputs, targets)`, a mean over the rows, such as `torch.nn.CrossEntropyLoss()`;
            one with `reduction="sum"` is summed over the batches instead.
        data: A pair of tensors `(inputs, targets)`, or an iterable of such pairs, such as a
            `DataLoader`, read once for each product. Inputs that are a tuple or a dictionary
            become the arguments of the module.
        training: Whether batch normalization and dropout act as in training (with the same random
            numbers each time); otherwise the module is evaluated as after `module.eval()`.
        include: Names of the parameters over which the Hessian is taken, as patterns
            (`"blocks.*"`, or several); by default all that require gradients.

    Any function from the module to a scalar tensor may be passed instead of a `TorchLoss`; the
    module is then evaluated in its current mode.

    ```python
    import deeplin as dl, torch
    module = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    X = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    loss = dl.TorchLoss(torch.nn.MSELoss(), (X, X[:, :1]))
    found = dl.sharpness(loss, module)
    found.value, found.error, found.converged
    ```
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        data: Any,
        *,
        training: bool = False,
        include: str | Sequence[str] | None = None,
    ):
        torch = _torch()
        if not callable(loss):
            raise InputError(f"loss is {shown(loss)}; pass a function loss(outputs, targets).")
        if isinstance(data, torch.utils.data.Dataset):
            raise InputError("data is a Dataset; pass torch.utils.data.DataLoader(dataset, …).")
        if isinstance(data, (tuple, list)) and len(data) == 2 and torch.is_tensor(data[1]):
            data = [data]
        if not isinstance(data, Iterable) or torch.is_tensor(data):
            raise InputError(
                f"data is {shown(data)}; pass a pair (inputs, targets) of tensors or a DataLoader."
            )
        self.loss, self.training, self.include = loss, training, include
        self.batches = list(data) if isinstance(data, Iterator) else data
        self.summed = getattr(loss, "reduction", "mean") == "sum"

    def __call__(self, module: Any) -> float:
        """Return the loss of a module."""
        return TorchHessian(self, module).value()

    def terms(self, module: Any, device: Any) -> Iterator[tuple[float, Any]]:
        """Yield the number of rows of each batch (1 if losses are summed) and its loss."""
        for batch in self.batches:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise InputError(
                    f"a batch is {shown(batch)}; pass pairs (inputs, targets), or a function of "
                    "the module in place of the TorchLoss."
                )
            inputs, targets = (_on_device(part, device) for part in batch)
            if isinstance(inputs, dict):
                outputs, first = module(**inputs), next(iter(inputs.values()))
            elif isinstance(inputs, (tuple, list)):
                outputs, first = module(*inputs), inputs[0]
            else:
                outputs, first = module(inputs), inputs
            yield 1.0 if self.summed else float(len(first)), self._checked(outputs, targets)

    def _checked(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of a batch, checked to be a mean over its rows."""
        ignored = getattr(self.loss, "ignore_index", None)
        uneven = getattr(self.loss, "weight", None) is not None
        if ignored is not None and not targets.is_floating_point():
            uneven = uneven or bool((targets == ignored).any())
        if uneven and not self.summed:
            raise InputError(
                "with weights of classes or ignored targets the mean over a batch is not one over "
                'its rows; pass the loss with reduction="sum" and divide by your own count.'
            )
        return self.loss(outputs, targets)


def closure_parameters(closure: Callable[[], Any]) -> Any:
    """Return a module with the parameters on which a closure depends, and the modules it calls."""
    torch = _torch()
    children: dict[Any, list[tuple[Any, Any]]] = {}

    def remember(child: Any, _: Any) -> None:
        buffers = child.buffers(recurse=False)
        children.setdefault(child, [(buffer, buffer.detach().clone()) for buffer in buffers])

    hook = torch.nn.modules.module.register_module_forward_pre_hook(remember)
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            value = closure()
    finally:
        hook.remove()
        _restore(pair for pairs in children.values() for pair in pairs)
    if not torch.is_tensor(value) or value.grad_fn is None:
        raise InputError(
            f"the closure returns {shown(value)}; it must return the loss as a PyTorch tensor, "
            "without `.item()` or `.detach()`."
        )
    leaves, seen, pending = [], set(), [value.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if hasattr(node, "variable"):
                leaves.append(node.variable)
            pending += [below for below, _ in node.next_functions]
    module = torch.nn.ModuleList(children)
    named = [(f"parameter {place}", leaf) for place, leaf in enumerate(leaves)]
    module.named_parameters = lambda: named  # leaves may be plain tensors
    return module


def _restore(buffers: Iterable[tuple[Any, Any]]) -> None:
    """Give buffers the values that they had before, such as the averages of batch normalization."""
    torch = _torch()
    with torch.no_grad():
        for buffer, before in buffers:
            if not torch.equal(buffer, before):  # others may be part of a graph
                buffer.copy_(before)


def _on_device(part: Any, device: Any) -> Any:
    """Return tensors and NumPy arrays on a device, including those in nested containers."""
    torch = _torch()
    if isinstance(part, np.ndarray):
        part = torch.as_tensor(part)
    if torch.is_tensor(part):
        return part.to(device)
    if isinstance(part, dict):
        return {name: _on_device(item, device) for name, item in part.items()}
    if isinstance(part, (tuple, list)):
        return [_on_device(item, device) for item in part]
    return part


class TorchHessian(LinearOperator):
    """The Hessian of a loss at a module, over the parameters that require gradients.

    A product differentiates the gradient along the vector, batch by batch, so that memory is that
    of one batch.
    """

    def __init__(
        self,
        loss: TorchLoss | Callable[[Any], Any] | None,
        module: Any,
        include: str | Sequence[str] | None = None,
    ):
        torch = _torch()
        self.loss, self.module = loss, module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise InputError("no parameter of the module requires gradients; pass one with some.")
        include = loss.include if isinstance(loss, TorchLoss) else include
        if include is not None:
            patterns = [include] if isinstance(include, str) else list(include)
            names = ", ".join(name for name, _ in named)
            named = [pair for pair in named if any(fnmatchcase(pair[0], p) for p in patterns)]
            if not named:
                raise InputError(f"include is {include!r}; pass patterns of the names {names}.")
        self.names, self.parameters = zip(*named, strict=True)
        for name, parameter in named:
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                raise InputError(f"{name} has no values yet; call the module once before.")
            if not parameter.is_floating_point():
                raise InputError(f"{name} is {parameter.dtype}; pass a module of real numbers.")
        self.sizes = [parameter.numel() for parameter in self.parameters]
        double = any(parameter.dtype == torch.float64 for parameter in self.parameters)
        super().__init__(np.float64 if double else np.float32, (sum(self.sizes),) * 2)

    def value(self) -> float:
        """Return the value of R."""
        with self._evaluating():
            pairs = [(rows, float(value.detach())) for rows, value in self._terms()]
        return sum(rows * value for rows, value in pairs) / self._share([rows for rows, _ in pairs])

    def _matvec(self, vector: np.ndarray) -> np.ndarray:
        """Return Hv, the mean over all batches."""
        torch = _torch()
        total = [
            torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))
            for p in self.parameters
        ]
        direction = self._split(vector.reshape(-1))
        rows = []
        with self._evaluating():
            for share, value in self._terms():
                rows.append(share)
                for sum_, part in zip(total, self._derivative(value, direction), strict=True):
                    sum_.add_(part, alpha=share)
        flat = [sum_.reshape(-1).cpu().double().numpy() for sum_ in total]
        return np.concatenate(flat) / self._share(rows)

    def _derivative(self, value: Any, direction: list[Any]) -> Iterable[Any]:
        """Return the derivative of the gradient of one batch along a direction."""
        torch = _torch()
        if not value.requires_grad:
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        own = {"allow_unused": True, "materialize_grads": True}
        slopes = torch.autograd.grad(value, self.parameters, create_graph=True, **own)
        moving = [(g, v) for g, v in zip(slopes, direction, strict=True) if g.requires_grad]
        if not moving:
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        outputs, weights = zip(*moving, strict=True)
        return torch.autograd.grad(outputs, self.parameters, weights, **own)

    def _terms(self) -> Iterator[tuple[float, Any]]:
        """Yield the weight and the loss of each batch."""
        torch = _torch()
        device = self.parameters[0].device
        loss = self.loss
        terms = loss.terms(self.module, device) if isinstance(loss, TorchLoss) else self._own()
        for rows, value in terms:
            if not torch.is_tensor(value) or value.numel() != 1 or value.is_complex():
                came = f"a tensor {tuple(value.shape)}" if torch.is_tensor(value) else shown(value)
                raise InputError(
                    f"the loss returns {came}; it must return one real number "
                    '(reduction="mean" or "sum").'
                )
            yield rows, value.reshape(())

    def _own(self) -> Iterator[tuple[float, Any]]:
        assert callable(self.loss)
        yield 1.0, self.loss(self.module)

    def _share(self, rows: list[float]) -> float:
        """Return the divisor of the sum over batches."""
        if not rows:
            raise InputError("data has no batches; pass at least one.")
        return 1.0 if isinstance(self.loss, TorchLoss) and self.loss.summed else sum(rows)

    def _split(self, vectors: np.ndarray) -> list[Any]:
        """Return the parts of flat vectors (last axis) as tensors like the parameters."""
        torch = _torch()
        parts = np.split(vectors, np.cumsum(self.sizes)[:-1], axis=-1)
        axes = vectors.shape[:-1]
        return [
            torch.as_tensor(part).reshape(*axes, *p.shape).to(p.device, p.dtype)
            for p, part in zip(self.parameters, parts, strict=True)
        ]

    def named(self, vectors: np.ndarray) -> dict[str, Any]:
        """Return flat vectors (last axis) as one tensor for each parameter, by name."""
        return dict(zip(self.names, self._split(vectors), strict=True))

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluate the module, then restore it and PyTorch's random number generator."""
        torch = _torch()
        modes = {child: child.training for child in self.module.modules()}
        buffers = [(buffer, buffer.detach().clone()) for buffer in self.module.buffers()]
        devices = range(torch.cuda.device_count())
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.random.fork_rng(devices))
            # other attention kernels have no second derivative
            math = torch.nn.attention.SDPBackend.MATH
            stack.enter_context(torch.nn.attention.sdpa_kernel(math))
            torch.manual_seed(0)
            try:
                if isinstance(self.loss, TorchLoss):
                    self.module.train(self.loss.training)
                yield
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"PyTorch raised {type(error).__name__} where the loss of this module is "
                    f"differentiated: {reason(error)} Pass data that the module takes, and a "
                    "module and a loss that PyTorch can differentiate twice."
                ) from error
            finally:
                for child, mode in modes.items():
                    child.training = mode
                _restore(buffers)

"""Convex losses of one sample, φ(z, y), with two derivatives and the excess over a tangent.

All methods take predictions z (…, n, q) and targets (n, q), as NumPy or JAX arrays, and are written
once for both. Values and excesses have shape (…, n): they are sums over the outputs.
"""

# ruff: noqa: D102 (methods are documented once, in the base class)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from deeplin.errors import InputError, finite_array, positive_number, shown

Derivatives: TypeAlias = tuple[Callable, Callable, Callable]
"""φ, φ' and φ'' as functions of (z, y), elementwise."""


@dataclass(frozen=True)
class ConvexLoss:
    """A loss that is a sum over outputs of φ(z, y); subclasses define φ."""

    def phi(self, z: Any, y: Any) -> Any:
        """Return φ."""
        raise NotImplementedError

    def slope(self, z: Any, y: Any) -> Any:
        """Return φ', (…, n, q)."""
        raise NotImplementedError

    def second(self, z: Any, y: Any) -> Any:
        """Return φ'', (…, n, q)."""
        raise NotImplementedError

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss of each sample."""
        return self.phi(z, y).sum(axis=-1)

    def second_product(self, z: Any, y: Any, direction: Any) -> Any:
        """Return φ''·direction, the second derivative applied to a change of the predictions."""
        return self.second(z, y) * direction

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        """Return φ(z) − φ(start) − φ'(start)(z − start) ≥ 0 of each sample.

        The mean over samples is R − R_min when `start` are the predictions of a minimizer; it
        avoids differences of nearly equal numbers where possible.
        """
        step = z - start
        return (self.phi(z, y) - self.phi(start, y) - self.slope(start, y) * step).sum(axis=-1)

    def blocks(self, z: Any, y: Any) -> Any:
        """Return the matrix of second derivatives of each sample, (n, q, q)."""
        return self.second(z, y)[..., None]

    def first_guess(self, y: np.ndarray) -> np.ndarray:
        """Return predictions near those of a minimizer, from which Newton's method starts."""
        return np.zeros_like(y)

    def preliminary_losses(self, z: np.ndarray, y: np.ndarray) -> list[ConvexLoss]:
        """Return losses to minimize in turn before this one, starting from the predictions z."""
        return []

    def decreasing(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the directions of the predictions in which the loss of a sample never increases.

        Returns (signs, bounded): a change v of the prediction never increases the loss of a sample
        with sign s ≠ 0 if s·v ≥ 0, and that of a `bounded` sample only if v = 0. None: never.
        """
        return None


@dataclass(frozen=True)
class Squared(ConvexLoss):
    """φ = (z − y)²."""

    def phi(self, z: Any, y: Any) -> Any:
        return (z - y) ** 2

    def slope(self, z: Any, y: Any) -> Any:
        return 2 * (z - y)

    def second(self, z: Any, y: Any) -> Any:
        return 2 * z.__array_namespace__().ones_like(z)

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        return ((z - start) ** 2).sum(axis=-1)


@dataclass(frozen=True)
class Logistic(ConvexLoss):
    """φ = log(1 + e^{−yz}), y = ±1."""

    def phi(self, z: Any, y: Any) -> Any:
        return _softplus(-y * z)

    def slope(self, z: Any, y: Any) -> Any:
        return -y * _sigmoid(-y * z)

    def second(self, z: Any, y: Any) -> Any:
        return _sigmoid(z) * _sigmoid(-z)

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        # log(1 + e^{u+δ}) − log(1 + e^u) = log(1 + σ(u)(e^δ − 1))
        u, step = -y * start, y * (start - z)
        arrays, share = z.__array_namespace__(), _sigmoid(u)
        near = arrays.log1p(share * arrays.expm1(arrays.clip(step, -1, 1)))
        far = _softplus(u + step) - _softplus(u)
        return (arrays.where(abs(step) <= 1, near, far) - share * step).sum(axis=-1)

    def decreasing(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return y[:, 0], np.zeros(len(y), bool)


@dataclass(frozen=True)
class Poisson(ConvexLoss):
    """φ = e^z − yz, y = 0, 1, 2, …"""

    def phi(self, z: Any, y: Any) -> Any:
        return z.__array_namespace__().exp(z) - y * z

    def slope(self, z: Any, y: Any) -> Any:
        return z.__array_namespace__().exp(z) - y

    def second(self, z: Any, y: Any) -> Any:
        return z.__array_namespace__().exp(z)

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        arrays, step = z.__array_namespace__(), z - start
        return (arrays.exp(start) * (arrays.expm1(step) - step)).sum(axis=-1)

    def first_guess(self, y: np.ndarray) -> np.ndarray:
        return np.log(y + 0.5)

    def decreasing(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(y[:, 0] > 0, 0.0, -1.0), y[:, 0] > 0


@dataclass(frozen=True)
class Huber(ConvexLoss):
    """φ = r²/2 for |r| ≤ δ, then δ|r| − δ²/2, with r = z − y."""

    delta: float = 1.0

    def phi(self, z: Any, y: Any) -> Any:
        inside = self._clipped(z - y)
        return inside * (z - y - inside / 2)

    def slope(self, z: Any, y: Any) -> Any:
        return self._clipped(z - y)

    def second(self, z: Any, y: Any) -> Any:
        return (abs(z - y) <= self.delta).astype(z.dtype)

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        before, after = self._clipped(start - y), self._clipped(z - y)
        return ((after - before) * (z - y - (after + before) / 2)).sum(axis=-1)

    def first_guess(self, y: np.ndarray) -> np.ndarray:
        return y

    def preliminary_losses(self, z: np.ndarray, y: np.ndarray) -> list[ConvexLoss]:
        residual = float(np.abs(z - y).max())
        count = int(np.ceil(np.log(max(residual / self.delta, 1.0)) / np.log(4)))
        return [Huber(self.delta * 4.0**k) for k in range(count, 0, -1)]

    def _clipped(self, residual: Any) -> Any:
        return residual.__array_namespace__().clip(residual, -self.delta, self.delta)


@dataclass(frozen=True)
class Softmax(ConvexLoss):
    """φ = log Σ_c e^{z_c} − Σ_c y_c z_c, y the indicator of the class."""

    def value(self, z: Any, y: Any) -> Any:
        return _logsumexp(z)[..., 0] - (y * z).sum(axis=-1)

    def slope(self, z: Any, y: Any) -> Any:
        return _shares(z) - y

    def second_product(self, z: Any, y: Any, direction: Any) -> Any:
        p = _shares(z)
        return p * (direction - (p * direction).sum(axis=-1, keepdims=True))

    def blocks(self, z: Any, y: Any) -> Any:
        p = _shares(z)
        return p[..., None] * np.eye(p.shape[-1]) - p[..., None] * p[..., None, :]

    def excess(self, start: Any, z: Any, y: Any) -> Any:
        arrays, p = z.__array_namespace__(), _shares(start)
        step = z - start
        mean = (p * step).sum(axis=-1, keepdims=True)
        small = abs(step - mean).max(axis=-1) <= 1
        inside = arrays.expm1(arrays.clip(step - mean, -1, 1))
        near = arrays.log1p((p * inside).sum(axis=-1))
        return arrays.where(small, near, (_logsumexp(z) - _logsumexp(start) - mean)[..., 0])


@dataclass(frozen=True)
class Custom(ConvexLoss):
    """A user-defined φ with its two derivatives."""

    functions: Derivatives

    def phi(self, z: Any, y: Any) -> Any:
        return self._call(0, z, y)

    def slope(self, z: Any, y: Any) -> Any:
        return self._call(1, z, y)

    def second(self, z: Any, y: Any) -> Any:
        return self._call(2, z, y)

    def _call(self, order: int, z: Any, y: Any) -> Any:
        """Call the function; on NumPy arrays its result is one, too, also if it uses jax.numpy."""
        found = self.functions[order](z, y)
        return np.asarray(found, np.float64) if isinstance(z, np.ndarray) else found


NAMED = {kind.__name__.lower(): kind for kind in (Squared, Logistic, Poisson, Huber, Softmax)}
LOSSES = tuple(NAMED)
Loss: TypeAlias = str | Derivatives
"""What a caller passes: one of `LOSSES`, or (φ, φ', φ'')."""


def loss_of(loss: Loss, delta: float) -> ConvexLoss:
    """Return the loss that `loss` specifies."""
    if isinstance(loss, (tuple, list)):
        if len(loss) != 3 or not all(callable(function) for function in loss):
            raise InputError(
                "loss is not three functions; pass (phi, dphi, d2phi), functions of (z, y), "
                f"or one of {', '.join(LOSSES)}."
            )
        phi, dphi, d2phi = loss
        return _checked(Custom((phi, dphi, d2phi)))
    if not isinstance(loss, str) or loss not in LOSSES:
        raise InputError(
            f"loss is {shown(loss)}; pass one of {', '.join(LOSSES)}, or (phi, dphi, d2phi)."
        )
    return Huber(positive_number("delta", delta)) if loss == "huber" else NAMED[loss]()


def encoded(loss: ConvexLoss, y: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return targets (n, q) as the loss takes them, and the classes if there are any."""
    if not isinstance(loss, (Logistic, Softmax)):
        targets = finite_array("y", y, (1, 2), sized=True)
        targets = targets.reshape(len(targets), -1)
        if targets.shape[1] != 1 and not isinstance(loss, Squared):
            raise InputError(
                f"y has {targets.shape[1]} columns; only the squared loss takes several targets. "
                "Pass one column."
            )
        if isinstance(loss, Poisson) and (np.any(targets < 0) or np.any(targets % 1)):
            wrong = targets[(targets < 0) | (targets % 1 != 0)][0]
            raise InputError(f"y holds {wrong:g}; the Poisson loss is for counts 0, 1, 2, ….")
        return targets, None
    classes, labels = _classes(y)
    if isinstance(loss, Softmax):
        return np.eye(len(classes))[labels], classes
    if len(classes) != 2:
        raise InputError(
            f"y has {len(classes)} distinct values; the logistic loss is for two. "
            "Pass loss='softmax' for more classes."
        )
    return np.where(labels == 1, 1.0, -1.0)[:, None], classes


def _classes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels, sorted, and the index of each sample's label."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"y has shape {values.shape}; pass one label for each row of X.")
    if values.dtype.kind in "fc" and not np.all(np.isfinite(values)):
        raise InputError("y holds NaN or infinite labels; remove those rows first.")
    try:
        if any(label is None or label != label for label in values if values.dtype == object):
            raise TypeError
        classes, labels = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InputError(
            "y holds labels that are missing or of different kinds; pass labels of one kind "
            "(text, numbers or True and False), one for each row."
        ) from error
    if len(classes) < 2:
        raise InputError(
            f"y has one class only, {shown(classes[0].item())}; pass labels of at least two."
        )
    return classes, labels


def _checked(loss: Custom) -> Custom:
    """Raise unless the three functions fit each other, at a few points, and φ is convex there."""
    z = np.linspace(-2.0, 2.0, 9)[:, None]
    y, h = np.ones_like(z), 1e-5
    try:
        functions = (loss.phi, loss.slope, loss.second)
        low, at, high = ([f(at, y) for f in functions] for at in (z - h, z, z + h))
    except Exception as error:  # user-defined functions may raise anything
        raise InputError(f"the loss raised {type(error).__name__} on arrays: {error}") from error
    if any(np.shape(array) != z.shape for array in at):
        raise InputError("the functions of the loss must return one value for each (z, y).")
    for order, name in ((0, "dphi"), (1, "d2phi")):
        found, slope = at[order + 1], (high[order] - low[order]) / (2 * h)
        # a kink between z − h and z + h is allowed
        smooth = np.abs(high[order + 1] - low[order + 1]) <= 1e-3 * (1 + np.abs(found))
        if np.any(np.abs(slope - found)[smooth] > 1e-3 * (1 + np.abs(found)[smooth])):
            raise InputError(f"{name} is not the derivative of the function before it.")
    if np.any(at[2] < 0):
        raise InputError("d2phi is negative somewhere; pass a convex loss.")
    return loss


def _softplus(u: Any) -> Any:
    return u.__array_namespace__().logaddexp(u, 0 * u)


def _sigmoid(u: Any) -> Any:
    """Return 1/(1 + e^{−u}), accurate in both tails and without overflow."""
    return u.__array_namespace__().exp(-_softplus(-u))


def _logsumexp(z: Any) -> Any:
    arrays, top = z.__array_namespace__(), z.max(axis=-1, keepdims=True)
    return top + arrays.log(arrays.exp(z - top).sum(axis=-1, keepdims=True))


def _shares(z: Any) -> Any:
    """Return the probabilities e^{z_c}/Σe^{z}."""
    return z.__array_namespace__().exp(z - _logsumexp(z))

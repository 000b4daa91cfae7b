"""Second moments of a data set, accumulated in one pass over chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from deeplin.errors import InputError, finite_array, require_size


@dataclass(frozen=True)
class Moments:
    """Sums over rows z = (x, y) about a fixed shift c: count, Σ(z−c) and Σ(z−c)(z−c)ᵀ.

    A shift near the mean keeps centered moments accurate when the mean is far larger than the
    spread. Sums about the same or different shifts merge exactly, so the order and the size of
    chunks do not matter beyond rounding.
    """

    count: int
    shift: np.ndarray
    total: np.ndarray
    scatter: np.ndarray
    targets: int

    @classmethod
    def of_rows(cls, inputs: np.ndarray, targets: np.ndarray) -> Moments:
        """Return the moments of one chunk, about its own mean."""
        return cls.of_table(np.concatenate([inputs, targets], axis=1), targets.shape[1])

    @classmethod
    def of_table(cls, rows: np.ndarray, targets: int) -> Moments:
        """Return the moments of one chunk whose last columns are the targets, about its own mean.

        Where the mean is the first row to rounding, that row is the better shift: a constant
        column then has no scatter at all. The rows are centered in place: they are not used again.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # rejected later, by column
            mean, first = rows.mean(axis=0), rows[0]
            shift = np.where(np.abs(mean - first) <= 1e-9 * np.abs(first), first, mean)
            rows -= shift
            return cls(len(rows), shift, rows.sum(axis=0), rows.T @ rows, targets)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together, about this one's shift."""
        if other.shift.shape != self.shift.shape or other.targets != self.targets:
            raise InputError(
                f"chunks disagree: {len(self.shift)} columns with {self.targets} target(s), then "
                f"{len(other.shift)} columns with {other.targets}; pass chunks of one shape."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            move = other.shift - self.shift
            cross = np.outer(other.total, move)
            scatter = other.scatter + cross + cross.T + other.count * np.outer(move, move)
            return Moments(
                self.count + other.count,
                self.shift,
                self.total + other.total + other.count * move,
                self.scatter + scatter,
                self.targets,
            )

    @property
    def mean(self) -> np.ndarray:
        """Mean of each column, inputs first."""
        return self.shift + self.total / self.count

    @property
    def centered(self) -> np.ndarray:
        """Covariance of the columns about their mean."""
        mean = self.total / self.count
        return self.scatter / self.count - np.outer(mean, mean)

    @property
    def raw(self) -> np.ndarray:
        """Second moments about zero, (1/n) Σ z zᵀ."""
        cross = np.outer(self.total / self.count, self.shift)
        return self.scatter / self.count + cross + cross.T + np.outer(self.shift, self.shift)


def require_same_length(X: np.ndarray, Y: np.ndarray) -> None:
    """Raise unless there is one target for each row."""
    if len(X) != len(Y):
        raise InputError(
            f"X has {len(X)} rows and y has {len(Y)}; pass one target for each row of X."
        )


def merge_all(parts: Iterable[Moments]) -> Moments | None:
    """Return the moments of all parts together; None if there is no part.

    A partial sum is merged once the next one has more than half as many rows, so that rounding, and
    the number of partial sums, grow logarithmically with the number of parts.
    """
    waiting: list[Moments] = []
    for part in parts:
        while waiting and 2 * part.count > waiting[-1].count:
            part = waiting.pop().merge(part)
        waiting.append(part)
    return reduce(Moments.merge, waiting) if waiting else None


def joint_moments(covariance, cross_moment, target_moment) -> tuple[np.ndarray, np.ndarray]:
    """Return the second moments of (x, y) together, (d+q)×(d+q), and Xᵀy/n as it was given."""
    sigma = finite_array("covariance", covariance, (2,))
    cross = finite_array("cross_moment", cross_moment, (1, 2))
    d = len(sigma)
    if sigma.shape != (d, d) or len(cross) != d:
        raise InputError(
            f"covariance has shape {sigma.shape} and cross_moment {cross.shape}; "
            "pass d×d and d (or d×q)."
        )
    columns = cross.reshape(d, -1)
    q = columns.shape[1]
    power = finite_array("target_moment", target_moment, (0, 2)).reshape(-1)
    if power.size != q * q:
        raise InputError(
            f"target_moment has {power.size} entries for {q} target(s); "
            "pass ‖y‖²/n for one target, YᵀY/n (q×q) for several."
        )
    table = np.block([[sigma, columns], [columns.T, power.reshape(q, q)]])
    require_sizes(table, d)
    if not np.allclose(table, table.T, rtol=1e-10, atol=1e-12 * np.abs(table).max()):
        raise InputError("the moments are not symmetric; pass covariance = XᵀX/n.")
    smallest = np.linalg.eigvalsh(table)[0]
    if smallest < -1e-9 * np.abs(table).max():
        raise InputError(
            f"no data set has these moments (smallest eigenvalue {smallest:.3g} of the joint "
            "second moments); pass XᵀX/n, Xᵀy/n and ‖y‖²/n of one data set."
        )
    return table, cross


def require_sizes(table: np.ndarray, dimension: int) -> None:
    """Raise InputError for columns too large or small, by the roots of their second moments."""
    roots = np.sqrt(np.maximum(np.diag(table), 0.0))
    require_size("X (the roots of its second moments)", roots[:dimension])
    require_size("y (the root of its second moment)", roots[dimension:])

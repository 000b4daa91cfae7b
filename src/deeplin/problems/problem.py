"""A problem: the risk as a convex function of the product; least squares by its moments.

A linear map is (q, d), as W_L…W_1 is, or (d,) for one output; any leading axes are a batch. Inside
the library maps are columns Θ = (W_L…W_1)ᵀ, (d, q), in which a batch multiplies without copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from deeplin.errors import InputError, finite_array, shown, whole_number
from deeplin.markup import html_table
from deeplin.problems.best_of_rank import BestOfRank, Truncation, truncation
from deeplin.problems.factorizations import is_tall, solver, thin_svd
from deeplin.problems.losses import ConvexLoss, Loss, Squared, encoded, loss_of
from deeplin.problems.moments import (
    Moments,
    joint_moments,
    merge_all,
    require_same_length,
    require_sizes,
)

if TYPE_CHECKING:
    from jaxtyping import Array, Float


def as_map(columns: Any) -> Any:
    """Return columns (…, d, q) as linear maps, (…, q, d), or (…, d) for one output."""
    return columns[..., 0] if columns.shape[-1] == 1 else columns.mT


def as_columns(theta: Any, outputs: int) -> Any:
    """Return linear maps, (…, q, d) or (…, d) for one output, as columns (…, d, q)."""
    return theta[..., None] if outputs == 1 else theta.mT


class Spectrum(NamedTuple):
    """Nonzero eigenvalues of Σ̂ (largest first), eigenvectors (d×r), w* in their basis (r×q).

    For losses other than the squared one with one output, H/2 replaces Σ̂ (X-14).
    """

    eigenvalues: np.ndarray
    vectors: np.ndarray
    coordinates: np.ndarray

    def orthogonal_part(self, columns: np.ndarray) -> np.ndarray:
        """Return (I − P_X) C, the part of columns (…, d, k) orthogonal to all samples."""
        return columns - self.vectors @ (self.vectors.T @ columns)


class Risk(Protocol):
    """The risk as a function of columns Θ (…, d, q), for NumPy and JAX arrays.

    A pytree, so that compiled code takes the data as an argument: `LeastSquares`, or
    `GeneralizedLinear` for other losses.
    """

    @property
    def minimal_risk(self) -> Any:
        """R_min, or the infimum of R."""

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """Return R(Θ) − `minimal_risk` and ∇R(Θ)."""
        ...

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """Return ∇²R(Θ)[D]."""
        ...


class LeastSquares(NamedTuple):
    """R(Θ) = R_min + Tr((Θ−Θ*)ᵀ Σ̂ (Θ−Θ*)) (FM-L8).

    Written about the optimum, the gap R − R_min keeps its relative accuracy down to rounding,
    which the expanded form ‖y‖²/n − 2wᵀb + wᵀΣ̂w does not.
    """

    covariance: Float[Array | np.ndarray, "d d"]
    optimum: Float[Array | np.ndarray, "d q"]
    minimal_risk: Float[Array | np.ndarray, ""]

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """Return R(Θ) − `minimal_risk` and ∇R(Θ) of Θ (…, d, q)."""
        difference = theta - self.optimum
        slope = 2 * self.covariance @ difference
        return 0.5 * (difference * slope).sum(axis=(-2, -1)), slope

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """Return ∇²R(Θ)[D] = 2Σ̂D."""
        return 2 * self.covariance @ direction


@dataclass(frozen=True, eq=False)
class Problem:
    """A convex risk of linear maps; by default least squares, R(w) = (1/n)‖y − Xw‖².

    Build one with `from_data`, `from_moments` or `from_chunks`; the target is one (y of shape n)
    or several (Y of shape n×q). Everything the linear theory of least squares needs follows from
    Σ̂ = XᵀX/n, Xᵀy/n and ‖y‖²/n; the raw data are kept (by reference) only by `from_data`, for
    nonlinear networks, for inputs too wide for a d×d matrix, and for other losses, whose problems
    are instances of the subclass `GeneralizedLinearProblem`.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    problem.optimum, problem.minimal_risk, problem.alignment
    ```
    """

    samples: int
    dimension: int
    outputs: int
    inputs: np.ndarray | None = None
    targets: np.ndarray | None = None
    """y in the shape it was given, (n,) or (n, q); labels of classes as numbers."""
    second_moments: np.ndarray | None = None
    means: np.ndarray | None = None
    """The means of inputs and targets, if only moments were accumulated."""
    loss: Loss = "squared"
    """The name of the loss, or the functions (φ, φ', φ'')."""
    delta: float = 1.0
    """Where the Huber loss becomes linear."""
    classes: np.ndarray | None = None
    """The labels of a classification, sorted: logistic takes the second as positive."""

    @classmethod
    def from_data(cls, X: Any, y: Any, loss: Loss = "squared", delta: float = 1.0) -> Problem:
        """Return the problem of data X (n×d) and y (n) or Y (n×q), with a convex loss (X-14, X-17).

        | loss | φ(z, y), averaged over samples | y |
        |---|---|---|
        | `"squared"` | (z − y)² | numbers, one column or several |
        | `"logistic"` | log(1 + e^{−yz}) | two distinct values of any kind |
        | `"softmax"` | log Σ_c e^{z_c} − z_y | labels of any kind |
        | `"poisson"` | e^z − yz | counts |
        | `"huber"` | r²/2 for \\|r\\| ≤ δ, then δ\\|r\\| − δ²/2, r = z − y | numbers |
        | `(phi, dphi, d2phi)` | functions of (z, y), elementwise; jax.numpy to train | numbers |

        Args:
            X: Inputs, (n, d).
            y: Targets, (n,) or (n, q).
            loss: The name of a loss, or its functions.
            delta: Where the Huber loss becomes linear.

        ```python
        import deeplin as dl, numpy as np
        X = np.random.default_rng(0).normal(size=(50, 2))
        y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=50) > 0, "yes", "no")
        problem = dl.Problem.from_data(X, y, loss="logistic")
        assert list(problem.classes) == ["no", "yes"] and problem.curvature.shape == (2, 2)
        ```
        """
        convex = loss_of(loss, delta)
        inputs = finite_array("X", X, (2,), sized=True)
        targets, classes = encoded(convex, y)
        require_same_length(inputs, targets)
        (n, d), q = inputs.shape, targets.shape[1]
        kind = cls
        if not isinstance(convex, Squared):
            from deeplin.problems.generalized_linear import GeneralizedLinearProblem

            kind = GeneralizedLinearProblem
        given = targets[:, 0] if q == 1 and np.ndim(y) == 1 else targets
        return kind(n, d, q, inputs, given, loss=loss, delta=delta, classes=classes)

    @classmethod
    def from_moments(
        cls,
        covariance: Any,
        cross_moment: Any,
        target_moment: Any,
        samples: int,
        loss: Loss = "squared",
    ) -> Problem:
        """Return the problem with given second moments.

        Args:
            covariance: Σ̂ = XᵀX/n, (d, d).
            cross_moment: Xᵀy/n, (d,), or XᵀY/n, (d, q).
            target_moment: ‖y‖²/n, or YᵀY/n, (q, q).
            samples: n.
            loss: Only the squared loss is determined by moments.
        """
        _require_squared(loss)
        table, cross = joint_moments(covariance, cross_moment, target_moment)
        d, q = len(cross), cross.reshape(len(cross), -1).shape[1]
        count = whole_number("samples", samples)
        return cls(count, d, q, second_moments=table)

    @classmethod
    def from_chunks(cls, chunks: Iterable, loss: Loss = "squared") -> Problem:
        """Return the problem of `(X, y)` chunks, each read once; memory does not depend on n.

        Args:
            chunks: Pairs of rows and targets.
            loss: Only the squared loss is determined by moments.
        """
        _require_squared(loss)

        def parts() -> Iterator[Moments]:
            for chunk in chunks:
                if not isinstance(chunk, (tuple, list)) or len(chunk) != 2:
                    raise InputError(f"a chunk is {shown(chunk)}; pass pairs (X, y).")
                X = finite_array("X", chunk[0], (2,), sized=True)
                y = finite_array("y", chunk[1], (1, 2), sized=True)
                require_same_length(X, y)
                yield Moments.of_rows(X, y.reshape(len(y), -1))

        moments = merge_all(parts())
        if moments is None:
            raise InputError("no chunk of data arrived; pass at least one (X, y) pair.")
        return cls.from_accumulated(moments)

    @classmethod
    def from_accumulated(cls, moments: Moments) -> Problem:
        """Return the problem of moments accumulated elsewhere (for example on several machines)."""
        q = moments.targets
        d = len(moments.shift) - q
        require_sizes(moments.raw, d)
        return cls(moments.count, d, q, second_moments=moments.raw, means=moments.mean)

    def __repr__(self) -> str:
        known = "moments" if self.inputs is None else "data"
        target = "1 target" if self.outputs == 1 else f"{self.outputs} targets"
        size = f"{self.samples} samples of {self.dimension} inputs"
        return f"Problem({size}, {target}, from {known})"

    def _repr_html_(self) -> str:
        rows = {
            "samples": f"{self.samples}",
            "inputs": f"{self.dimension}",
            "targets": f"{self.outputs}",
            "loss": self.loss if isinstance(self.loss, str) else "of one's own",
            "smallest risk": f"{self.minimal_risk:.4g}",
            "λ, Λ": f"{self.smallest_eigenvalue:.4g}, {self.largest_eigenvalue:.4g}",
        }
        return html_table(rows, repr(self))

    # --- the risk as a function of the product -----------------------------------------------

    @cached_property
    def convex_loss(self) -> ConvexLoss:
        """φ with its derivatives."""
        return loss_of(self.loss, self.delta)

    @cached_property
    def risk_of_columns(self) -> Risk:
        """The risk about its optimum with NumPy arrays, in double precision."""
        return LeastSquares(self.covariance, self.optimum_columns, np.asarray(self.minimal_risk))

    @cached_property
    def device_risk(self) -> Risk:
        """`risk_of_columns` with JAX arrays of the current default precision."""
        import jax  # not needed for moments and theory

        # `device_put` of copies: `jnp.asarray` would compile a program for each new shape.
        return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)), self.risk_of_columns)

    def gap(self, theta: np.ndarray) -> np.ndarray:
        """Return R − R_min of linear maps, (…, q, d) or (…, d), accurately down to rounding.

        It is evaluated in the eigenbasis of Σ̂.
        """
        eigenvalues, vectors, coordinates = self.spectrum
        difference = vectors.T @ as_columns(theta, self.outputs) - coordinates
        return (difference * (eigenvalues[:, None] * difference)).sum(axis=(-2, -1))

    def risk(self, theta: np.ndarray) -> np.ndarray:
        """Return R of linear maps, (…, q, d) or (…, d)."""
        return self.minimal_risk + self.gap(theta)

    def value_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return R and ∇R of linear maps, (…, q, d) or (…, d); the gradient has their shape."""
        eigenvalues, vectors, coordinates = self.spectrum
        difference = vectors.T @ as_columns(theta, self.outputs) - coordinates
        return self.risk(theta), as_map(vectors @ (2 * eigenvalues[:, None] * difference))

    @property
    def curvature(self) -> np.ndarray:
        """H: the Hessian of R at its minimum as a function of the product; 2Σ̂ for squared loss."""
        return 2 * self.covariance

    # --- moments -----------------------------------------------------------------------------

    @cached_property
    def covariance(self) -> np.ndarray:
        """Σ̂ = XᵀX/n, formed on first use (d×d: avoid it for d beyond a few thousand)."""
        if self.inputs is not None:
            return self.inputs.T @ self.inputs / self.samples
        return self._moments[: self.dimension, : self.dimension]

    @cached_property
    def cross_moment(self) -> np.ndarray:
        """b = Xᵀy/n, (d,), or XᵀY/n, (d, q), of several outputs."""
        columns = self.cross_columns
        return columns[:, 0] if self.outputs == 1 else columns

    @cached_property
    def cross_columns(self) -> np.ndarray:
        """XᵀY/n, (d, q)."""
        if self.inputs is not None:
            return self.inputs.T @ self.target_columns / self.samples
        return self._moments[: self.dimension, self.dimension :]

    @property
    def target_columns(self) -> np.ndarray:
        """Y, (n, q), of a problem that has its data."""
        assert self.targets is not None  # by construction, when there are inputs
        return self.targets.reshape(self.samples, self.outputs)

    @cached_property
    def target_second_moments(self) -> np.ndarray:
        """YᵀY/n, (q, q)."""
        if self.targets is not None:
            return self.target_columns.T @ self.target_columns / self.samples
        return self._moments[self.dimension :, self.dimension :]

    @cached_property
    def target_moment(self) -> float:
        """‖Y‖²/n, the risk of the zero map (R_0 in FM)."""
        if self.targets is not None:
            return float(np.sum(self.targets**2) / self.samples)
        return float(np.trace(self._moments[self.dimension :, self.dimension :]))

    # --- what follows from them --------------------------------------------------------------

    @cached_property
    def spectrum(self) -> Spectrum:
        """The nonzero eigenvalues of Σ̂, largest first, with eigenvectors and w* in that basis.

        It is computed from the singular values of X (without squaring the condition number), or
        from the eigenvalues of Σ̂ if only moments are known.
        """
        n, d = self.samples, self.dimension
        epsilon = np.finfo(np.float64).eps * max(n if self.inputs is not None else d, d)
        if self.inputs is not None and self.targets is not None:
            left, singular, right = thin_svd(self.inputs, self.target_columns)
            keep = singular > epsilon * singular[0]
            coordinates = left[keep] / singular[keep, None]
            return Spectrum(singular[keep] ** 2 / n, right[keep].T, coordinates)
        eigenvalues, vectors = np.linalg.eigh(self.covariance)
        eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
        keep = eigenvalues > epsilon * max(eigenvalues[0], 0.0)
        vectors, eigenvalues = vectors[:, keep], eigenvalues[keep]
        cross = self._moments[:d, d:]
        return Spectrum(eigenvalues, vectors, vectors.T @ cross / eigenvalues[:, None])

    @cached_property
    def rank(self) -> int:
        """Rank of Σ̂, or of H."""
        return len(self._eigenvalues) if self._solution is None else self.dimension

    @cached_property
    def optimum(self) -> np.ndarray:
        """w*: the least-squares solution of minimal norm, (q, d), or (d,) for one output."""
        return as_map(self.optimum_columns)

    @cached_property
    def optimum_columns(self) -> np.ndarray:
        """`optimum` as columns, (d, q), the layout of computations."""
        if self._solution is not None:
            return self._solution
        return self.spectrum.vectors @ self.spectrum.coordinates

    @cached_property
    def optimum_norm(self) -> float:
        """‖w*‖, or ‖W*‖_F for several targets."""
        return float(np.linalg.norm(self.optimum))

    @cached_property
    def minimal_risk(self) -> float:
        """R_min = R(w*)."""
        if self.inputs is not None and self.targets is not None:
            residual = self.target_columns - self.inputs @ self.optimum_columns
            return float(np.sum(residual**2) / self.samples)
        return max(self.target_moment - self.zero_gap, 0.0)

    def best_of_rank(self, rank: int) -> BestOfRank:
        """Return the product of rank at most r with the least risk, and this risk (X-34).

        Squared loss: with Θ*Σ̂^{1/2} = U S Vᵀ it is U_rU_rᵀΘ* and has the risk
        R_min + Σ_{i>r} s_i² (reduced-rank regression). It is unique exactly if s_r > s_{r+1} or
        s_{r+1} = 0. Softmax: the best product found by descent from several starts.

        Args:
            rank: r, such as the smallest hidden width of a network.

        Returns:
            `BestOfRank`, which unpacks into the product, (q, d) or (d,) for one output, and the
            risk.

        ```python
        import deeplin as dl, numpy as np
        X = np.random.default_rng(0).normal(size=(50, 5))
        product, risk = dl.Problem.from_data(X, X).best_of_rank(2)
        assert product.shape == (5, 5) and np.linalg.matrix_rank(product) == 2
        ```
        """
        part = self.truncation(whole_number("rank", rank))
        optimum, left = self.optimum_columns, part.left
        columns = optimum @ left.T @ left if part.excess else optimum
        return BestOfRank(
            product=as_map(columns),
            risk=self.minimal_risk + part.excess,
            excess=part.excess,
            rank=len(left),
            unique=not len(part.tied),
            exact=True,
        )

    def truncation(self, rank: int) -> Truncation:
        """Return which parts of the optimum the best product of this rank keeps."""
        eigenvalues, _, coordinates = self.spectrum
        return truncation(eigenvalues, coordinates, rank)

    @cached_property
    def zero_gap(self) -> float:
        """R_0 − R_min: the gap of the zero map, without a difference of large risks."""
        return float(self.gap(as_map(np.zeros((self.dimension, self.outputs)))))

    @property
    def zero_risk(self) -> float:
        """R(0), the risk of the zero map (R_0 in FM)."""
        return self.target_moment

    @property
    def smallest_eigenvalue(self) -> float:
        """λ: the smallest *nonzero* eigenvalue of Σ̂."""
        return float(self._nonzero_spectrum()[-1])

    @property
    def largest_eigenvalue(self) -> float:
        """Λ: the largest eigenvalue of Σ̂."""
        return float(self._nonzero_spectrum()[0])

    @property
    def condition_number(self) -> float:
        """Λ/λ, over the nonzero eigenvalues."""
        return self.largest_eigenvalue / self.smallest_eigenvalue

    @cached_property
    def alignment(self) -> float:
        """a = ŵᵀΣ̂ŵ with ŵ = w*/‖w*‖; defined for one target with w* ≠ 0."""
        self.require_single_target("the alignment a")
        self.require_signal("the alignment a = ŵᵀΣ̂ŵ")
        weights = self.spectrum.coordinates[:, 0] ** 2
        return float(np.sum(self.spectrum.eigenvalues * weights) / np.sum(weights))

    @cached_property
    def with_constant(self) -> Problem:
        """The problem with a last input that is always 1, as networks with biases see it."""
        n, d = self.samples, self.dimension
        if self.inputs is not None:
            rows = np.concatenate([self.inputs, np.ones((n, 1))], axis=1)
            return replace(self, dimension=d + 1, inputs=rows)
        if self.means is None:
            raise InputError(
                "a network with biases needs the means of the data; build the problem with "
                "Problem.from_data or Problem.from_chunks, or pass a network without biases."
            )
        moments = np.insert(np.insert(self._moments, d, self.means, axis=0), d, 1.0, axis=1)
        moments[:, d] = np.insert(self.means, d, 1.0)
        return replace(self, dimension=d + 1, second_moments=moments, means=None)

    @property
    def has_minimizer(self) -> bool:
        """Whether the risk attains its infimum; always, for the squared loss."""
        return True

    # --- preconditions -----------------------------------------------------------------------

    def require_signal(self, quantity: str) -> None:
        """Raise InputError if w* = 0, naming the quantity that is then undefined."""
        if self.rank == 0 or self.optimum_norm == 0.0:
            raise InputError(
                f"{quantity} is undefined: the {self._solution_name} w* is zero (the target is "
                "zero or uncorrelated with every input). Pass a target the inputs can explain."
            )

    def require_squared_loss(self, quantity: str) -> None:
        """Raise InputError unless the loss is squared."""
        _require_squared(self.loss, f"{quantity} is known for the squared loss alone")

    def require_single_target(self, quantity: str) -> None:
        """Raise InputError unless there is one target."""
        if self.outputs != 1:
            raise InputError(
                f"{quantity} is defined for one target; this problem has {self.outputs}. "
                "Pass one column of Y."
            )

    def require_data(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """Return X and Y (n×q), or raise where only moments are known."""
        if self.inputs is None or self.targets is None:
            raise InputError(
                f"{quantity} needs the data themselves, not only their moments; "
                "build the problem with Problem.from_data."
            )
        return self.inputs, self.target_columns

    def curvature_rows(self, quantity: str) -> np.ndarray:
        """Return rows r_i with H/2 = (1/n)Σr_ir_iᵀ, which are those of X for squared loss."""
        return self.require_data(quantity)[0]

    @property
    def residual_share(self) -> float:
        """Mean of φ'² at the optimum over that at zero: 0 if the data are interpolated."""
        return self.minimal_risk / self.target_moment

    # --- internals ---------------------------------------------------------------------------

    _solution_name, _curvature_name = "least-squares solution", "Σ̂"

    @cached_property
    def _solution(self) -> np.ndarray | None:
        """w* (d×q) without the singular values of X, for many rows; None near a singular Σ̂.

        The solution of Σ̂w = Xᵀy/n is corrected once by that of Σ̂δ = Xᵀ(y − Xw)/n: an error of ε
        κ(Σ̂) in the first becomes its square, so that the accuracy is that of a QR factorization,
        at the cost of forming Σ̂.
        """
        X = self.inputs
        if X is None or self.loss != "squared" or not is_tall(X):
            return None
        if (solve := solver(self.covariance)) is None:
            return None
        optimum = solve(self.cross_columns)
        return optimum + solve(X.T @ (self.target_columns - X @ optimum) / self.samples)

    @property
    def _moments(self) -> np.ndarray:
        assert self.second_moments is not None  # by construction, when there are no data
        return self.second_moments

    def _nonzero_spectrum(self) -> np.ndarray:
        """Return the nonzero eigenvalues of Σ̂, or of H/2, largest first."""
        if self.rank == 0:
            raise InputError(
                f"{self._curvature_name} is zero: its eigenvalues λ and Λ are undefined. Pass "
                "nonzero inputs."
            )
        return self._eigenvalues

    @property
    def _eigenvalues(self) -> np.ndarray:
        return self.spectrum.eigenvalues


def require_problem(value: Any) -> None:
    """Raise InputError unless this argument is a Problem."""
    if not isinstance(value, Problem):
        raise InputError(
            f"problem is {shown(value)}; pass a deeplin.Problem, such as "
            "deeplin.Problem.from_data(X, y)."
        )


def _require_squared(loss: Loss, reason: str = "moments determine the squared loss alone") -> None:
    if not (isinstance(loss, str) and loss == "squared"):
        name = f"{loss!r}" if isinstance(loss, str) else "a function of your own"
        raise InputError(
            f"{reason}, and the loss here is {name}. Pass the rows to "
            "Problem.from_data(X, y, loss=...), or the squared loss."
        )

"""Sharpness at a minimiser from a small matrix (X-1), with a bound for not being quite there."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from deeplin.networks import Network, backward_products, forward_products
from deeplin.networks.risk import gradient_of_product
from deeplin.problems import Problem
from deeplin.problems.problem import Quadratic


def exact(problem: Problem, networks: Network, which: str) -> tuple[np.ndarray, np.ndarray]:
    """Extreme eigenvalue of 2JᵀΣ̂J for each network of a batch, and a bound of its error.

    The error bounds the distance to the eigenvalue of the whole Hessian: the part that vanishes at
    minimisers, and rounding. Linear networks only.
    """
    spectrum = problem.spectrum
    factor = jnp.asarray(spectrum.vectors * np.sqrt(spectrum.eigenvalues))
    values, error = _eigenvalues(factor, problem.quadratic, networks)
    if which == "largest":
        return np.asarray(values[:, -1]), np.asarray(error)
    # 2JᵀΣ̂J has as many eigenvalues as there are parameters; those missing here are zero.
    parameters = sum(weight[0].size for weight in networks.weights)
    missing = parameters - values.shape[1]
    smallest = np.zeros(len(values)) if missing > 0 else values[:, -missing]
    return np.asarray(smallest), np.asarray(error)


def gauss_newton(factor: Float[Array, "d r"], network: Network) -> Float[Array, "rq rq"]:
    """2 Σ_k (A_k C)ᵀ(A_k C) ⊗ V_kᵀV_k: the nonzero spectrum of 2JᵀΣ̂J, with Σ̂ = CCᵀ (X-1).

    A_k = W_{k−1}…W_1 and V_k = W_{k+1}ᵀ…W_Lᵀp. With one output this is the d×d matrix of X-1; with
    q outputs vec(A_kᵀ dW_kᵀ V_k) gives the Kronecker factor.
    """
    forward = forward_products(network, factor)
    backward = backward_products(network)[1:]
    terms = (jnp.kron(b.T @ b, v.T @ v) for b, v in zip(forward, backward, strict=True))
    return 2 * reduce(jnp.add, terms)


def distance_to_gauss_newton(quadratic: Quadratic, network: Network) -> Array:
    """A bound of ‖∇²R − 2JᵀΣ̂J‖ plus the rounding of both.

    The rest of the Hessian has blocks (j < k) ⟨dW_k M_jk dW_j, V_k (A_j g)ᵀ⟩ with
    M_jk = W_{k−1}…W_{j+1}, of norm at most ‖V_k‖_F ‖A_j g‖_F ‖M_jk‖. The norm of the whole is at
    most the Frobenius norm of the table of block norms. It vanishes with g = ∇R¹(w), at every
    minimiser.

    ‖M_jk‖² ≤ Π ν_i with ν = ‖(WᵀW)²‖_F^{1/2} ≥ ‖W‖², which overestimates by d^{1/4} at most.
    """
    backward = backward_products(network)
    forward = forward_products(network, gradient_of_product(quadratic, backward[0]))
    bounds = [_squared_norm_bound(weight) for weight in network.weights]
    width = max(network.widths)
    rounding = 4 * jnp.finfo(backward[0].dtype).eps * jnp.sqrt(network.depth * width)
    spread = jnp.linalg.norm(quadratic.covariance)
    whole = reduce(jnp.multiply, bounds) * jnp.sum(backward[-1] ** 2)  # bounds ‖w‖²
    slip = 2 * rounding * spread * (jnp.sqrt(whole) + jnp.linalg.norm(quadratic.optimum))

    before = jnp.ones(())  # Π_{i<k} ν_i bounds ‖A_k‖²
    through = jnp.zeros(())  # Σ_{j<k} ‖A_j g‖² ‖M_jk‖²
    rest, terms = jnp.zeros(()), jnp.zeros(())
    for nu, u, v in zip(bounds, forward, backward[1:], strict=True):
        rest += 2 * through * jnp.sum(v**2)
        terms += whole / nu
        slope = jnp.linalg.norm(u) + jnp.sqrt(before) * slip
        through = through * nu + slope**2
        before = before * nu
    return jnp.sqrt(rest) + 2 * rounding * spread * terms


def _squared_norm_bound(weight: Array) -> Array:
    gram = weight.T @ weight if weight.shape[0] >= weight.shape[1] else weight @ weight.T
    return jnp.sqrt(jnp.linalg.norm(gram @ gram))


@jax.jit
def _eigenvalues(factor: Array, quadratic: Quadratic, networks: Network) -> tuple[Array, Array]:
    def one(network):
        return gauss_newton(factor, network), distance_to_gauss_newton(quadratic, network)

    matrices, error = jax.vmap(one)(networks)
    return jnp.linalg.eigvalsh(matrices), error

"""Arguments of a wrong kind get one sentence that says what came and what to pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.errors import seed_number, shown, whole_number


class Tensor:
    """As a PyTorch tensor that requires gradients: it refuses to become an array."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nMore lines.")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p, n: dl.sharpness(None, n), "problem is None; pass a deeplin.Problem"),
        (lambda p, n: dl.certify("run", n), "problem is 'run'; pass a deeplin.Problem"),
        (lambda p, n: dl.gradient_descent(p, [n, n], 0.1, 5), "pass a deeplin.Network"),
        (
            lambda p, n: dl.gradient_descent(p, n, jax.random.key(0), 5),
            "learning_rate is not an",
        ),
        (lambda p, n: dl.gradient_descent(p, n, Tensor(), 5), "Can't call numpy() on Tensor"),
        (lambda p, n: dl.gradient_descent(p, n, 0.1, 5, record=[1]), "record holds 1"),
        (lambda p, n: dl.certify(p, p), "pass a deeplin.Network, or a run such as"),
        (lambda p, n: dl.gradient_descent(n, p, 0.1, 5), "the network came before the problem"),
        (lambda p, n: dl.sharpness(n, p), "the network came before the problem"),
        (lambda p, n: dl.reduce(n, p), "pass a deeplin.Problem, such as"),
        (lambda p, n: dl.theory.minimal_sharpness("a.csv", 3), "problem is 'a.csv'; pass a deepl"),
        (
            lambda p, n: dl.initialize.gaussian(0, (5, 1), 0.1),
            "key is 0; pass jax.random.key",
        ),
        (lambda p, n: dl.initialize.gaussian(jnp.ones(3), (5, 1), 0.1), "key has shape (3,)"),
        (lambda p, n: dl.Network(7), "weights is 7; pass one matrix for each layer"),
        (lambda p, n: dl.Network([np.ones((2, 2))], activation=[]), "activation is []"),
        (lambda p, n: dl.Problem.from_chunks([1]), "a chunk is 1; pass pairs (X, y)"),
        (lambda p, n: dl.initialize.gaussian(jax.random.key(0), 5, 0.1), "widths is 5; pass d_0"),
        (lambda p, n: dl.save_run("run.npz", p, n), "pass what deeplin.gradient_descent returns"),
        (lambda p, n: dl.Problem.from_data("X", [1]), "X is not an array of real numbers"),
        (lambda p, n: dl.Problem.from_data([["1"]], [1]), "X is not an array of real numbers"),
    ],
)
def test_wrong_kinds_of_arguments_get_one_sentence(problem, call, sentence):
    network = dl.initialize.gaussian(jax.random.key(0), (5, 3, 1), 0.3)
    with pytest.raises(dl.InputError) as caught:
        call(problem, network)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (lambda tree: np.sum(np.asarray(tree["w"]) ** 2), "write it with jax.numpy"),
        (lambda tree: float(tree["w"][0]), "write it with jax.numpy"),
        (lambda tree: tree["w"], "returns an array (3,) of float64"),
        (lambda tree: None, "returns NoneType"),
        (lambda tree: jnp.sum(tree["w"]) > 0, "returns an array () of bool"),
        (lambda tree: tree["v"], "raised KeyError on these parameters"),
    ],
)
def test_losses_that_jax_cannot_differentiate_are_named(loss, sentence):
    with pytest.raises(dl.InputError) as caught:
        dl.sharpness(loss, {"w": jnp.ones(3)})
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_list_of_pytrees_is_no_batch():
    def loss(tree):
        return jnp.sum(tree["w"] ** 2)

    assert dl.sharpness(loss, {"w": jnp.ones(3)}).value == pytest.approx(2.0)
    with pytest.raises(dl.InputError, match="one pytree, not a list"):
        dl.sharpness(loss, [{"w": jnp.ones(3)}, {"w": jnp.ones(3)}])


def test_numbers_and_seeds_have_their_limits():
    assert whole_number("n", np.int64(3)) == whole_number("n", 3.0) == 3
    assert seed_number(2**63 - 1) == 2**63 - 1
    for wrong in (-1, 2**70, 10**400, 0.5, True, "1", None, np.nan, [1], 1j):
        with pytest.raises(dl.InputError, match="seed is"):
            seed_number(wrong)
    assert shown("x" * 100) == "of type str"


def test_a_problem_is_shown_in_one_line(problem):
    assert repr(problem) == "Problem(50 samples of 5 inputs, 1 target, from data)"

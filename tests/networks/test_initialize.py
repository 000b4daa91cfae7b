import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import deeplin as dl
from deeplin.networks import initialize
from deeplin.networks.network import linear_gradient, linear_risk

key = jax.random.key(11)


def test_gaussian_entries_have_the_given_scale():
    net = initialize.gaussian(key, (60, 60, 60), 0.3)
    entries = np.concatenate([np.ravel(w) for w in net.weights]) / 0.3
    assert scipy.stats.kstest(entries, "norm").pvalue > 1e-3
    assert [w.shape for w in initialize.gaussian(key, (5,) * 10 + (1,), 0.35).weights] == [
        (5, 5)
    ] * 9 + [(1, 5)]


@pytest.mark.parametrize("size", [1, 64, 65, 1000, 20_000])
def test_the_beginning_of_a_longer_draw_is_the_draw(size):
    expected = jax.random.normal(key, (size,))
    np.testing.assert_array_equal(initialize.standard_normal(key, (size,)), expected)
    both = jax.vmap(lambda k: initialize.standard_normal(k, (size, 1)))(jnp.stack([key, key]))
    np.testing.assert_array_equal(both, [expected[:, None]] * 2)


def test_residual_layers_are_the_identity_plus_small_noise():
    net = initialize.residual(key, width=30, depth=20, scale=0.5, readout=np.ones(30))
    noise = np.stack([(np.asarray(w) - np.eye(30)) for w in net.weights]) * np.sqrt(20 * 30) / 0.5
    assert scipy.stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    plain = initialize.residual(key, width=3, depth=2, scale=0.0, readout=np.ones(3))
    np.testing.assert_array_equal(plain.product, np.ones(3))


def test_zero_layer_starts_at_the_zero_map_with_a_gradient(problem):
    net = initialize.zero_layer(key, (5, 5, 5, 1), 0.1)
    assert float(jnp.abs(net.product).max()) == 0.0
    assert float(linear_risk(problem.device_risk, net)) == pytest.approx(problem.target_moment)
    norms = [float(jnp.linalg.norm(g)) for g in linear_gradient(problem.device_risk, net)]
    assert norms[0] > 0
    assert norms[1:] == [0.0, 0.0]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("with_readout", [False, True])
def test_rank_one_weights_are_balanced_aligned_and_multiply_to_the_direction(
    depth, with_readout, rng
):
    readout = rng.normal(size=4) if with_readout else None
    direction = rng.normal(size=3)
    net = initialize.rank_one(direction, depth, readout=readout)
    np.testing.assert_allclose(net.product, direction, rtol=1e-12)
    norms = [np.linalg.norm(w) for w in net.weights]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)
    assert all(np.linalg.matrix_rank(w) == 1 for w in net.weights)
    for below, above in zip(net.weights[:-1], net.weights[1:], strict=True):
        np.testing.assert_allclose(above.T @ above, below @ below.T, atol=1e-12)


def test_identity_middle_scales_first_and_last_layer_separately():
    net = initialize.identity_middle(
        key, inputs=50, width=80, outputs=20, depth=4, alpha=1e-3, beta=2.0
    )
    assert scipy.stats.kstest(np.ravel(net.weights[0]) / 1e-3, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(np.ravel(net.weights[3]) / 2.0, "norm").pvalue > 1e-3
    for middle in net.weights[1:3]:
        np.testing.assert_array_equal(middle, np.eye(80))
    zero = initialize.identity_middle(
        key, inputs=5, width=8, outputs=2, depth=3, alpha=0.0, beta=1.0
    )
    assert float(jnp.abs(zero.product).max()) == 0.0


def test_modified_identity_copies_inputs_and_reads_other_units():
    net = initialize.modified_identity(inputs=4, outputs=2, depth=3)
    assert net.widths == (4, 6, 6, 2)
    x = np.arange(1.0, 5.0)
    np.testing.assert_array_equal(net.weights[0] @ x, [1, 2, 3, 4, 0, 0])
    np.testing.assert_array_equal(net.weights[2] @ np.arange(6.0), [4, 5])
    assert float(jnp.abs(net.product).max()) == 0.0


def test_unit_readout_has_norm_one():
    assert float(jnp.linalg.norm(initialize.unit_readout(key, 7))) == pytest.approx(1.0)


@pytest.mark.parametrize("one", [key, jax.random.key(3, impl="rbg")])
def test_draws_do_not_depend_on_how_keys_are_batched(one):
    keys = jax.random.split(one, 6)
    scales = np.linspace(0.1, 0.6, 6)
    whole = initialize.gaussian(keys, (3, 3, 1), scales)
    parts = [initialize.gaussian(keys[i : i + 2], (3, 3, 1), scales[i : i + 2]) for i in (0, 2, 4)]
    for layer in range(2):
        joined = jnp.concatenate([part.weights[layer] for part in parts])
        np.testing.assert_array_equal(whole.weights[layer], joined)
    for draw in (
        lambda k: initialize.residual(k, width=3, depth=2, scale=0.2),
        lambda k: initialize.identity_middle(k, 3, 4, 2, depth=4, alpha=0.1, beta=0.3),
    ):
        for many, alone in zip(draw(keys).weights, draw(keys[4]).weights, strict=True):
            np.testing.assert_array_equal(many[4], alone)


@pytest.mark.parametrize("one", [key, jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")])
def test_a_single_draw_is_that_of_the_split_keys_and_of_a_batch(one):
    alone = initialize.gaussian(one, (3, 2, 1), 0.3)
    many = initialize.gaussian(one[None], (3, 2, 1), 0.3)
    for k, layer_key in enumerate(jax.random.split(one, 2)):
        entries = 0.3 * jax.random.normal(layer_key, (alone.weights[k].size,))
        np.testing.assert_array_equal(np.ravel(alone.weights[k]), entries)
        np.testing.assert_array_equal(alone.weights[k], many.weights[k][0])


def test_old_style_keys_and_vmap_work_too():
    old = initialize.gaussian(jax.random.PRNGKey(0), (3, 2), 1.0)
    assert old.batch is None
    keys = jax.random.split(key, 3)
    mapped = jax.vmap(lambda k, s: initialize.gaussian(k, (3, 2), s))(keys, jnp.ones(3))
    np.testing.assert_array_equal(
        mapped.weights[0], initialize.gaussian(keys, (3, 2), 1.0).weights[0]
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: initialize.gaussian(key, (5,), 1.0), "depth 0"),
        (lambda: initialize.gaussian(key, (5, 0, 1), 1.0), "each width is 0"),
        (lambda: initialize.gaussian(key, (5, 1), 0.0), "scale is 0"),
        (lambda: initialize.gaussian(key, (5, 1), -0.1), "scale is -0.1"),
        (lambda: initialize.gaussian(key, (5, 1), np.ones(3)), "one key for each scale"),
        (lambda: initialize.gaussian(jax.random.split(key, 2), (5, 1), np.ones(3)), "2 keys"),
        (lambda: initialize.residual(key, 5, 0, 0.1), "depth is 0"),
        (lambda: initialize.zero_layer(key, (5, 1), 0.1, layer=3), "layer from 1 to 1"),
        (lambda: initialize.identity_middle(key, 5, 8, 2, depth=1, alpha=1, beta=1), "depth is 1"),
        (
            lambda: initialize.identity_middle(key, 5, 8, 2, depth=3, alpha=-1, beta=1),
            "alpha is -1",
        ),
        (lambda: initialize.rank_one(np.ones(3), 2, widths=(3, 1)), "pass 3 of them"),
        (lambda: initialize.rank_one(np.zeros(3), 2), "direction is zero"),
        (lambda: initialize.pytorch(0, (5, 1)), "key is 0"),
    ],
)
def test_impossible_initializations_are_refused(build, message):
    with pytest.raises(dl.InputError, match=message):
        build()

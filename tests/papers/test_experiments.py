"""The rows of the studies against independent computations."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree

from deeplin.dynamics import gradient_descent
from deeplin.errors import InputError
from deeplin.networks import Network
from deeplin.papers import fm_1, fm_2, scale_critical, talk_log
from deeplin.papers.fm_2 import CriticalRates, DepthSweep
from deeplin.papers.scale_sweep import Rate, ScaleSweep
from deeplin.papers.setting import SWEEPS, Setting, sweep_starts, training_start
from deeplin.papers.talk_log import Contrast
from deeplin.papers.trajectories import AS_RUN, Followed, Trajectories

SMALL = {"data_seed": 4, "samples": 12, "dimension": 3, "depth": 3}


def rows(study, config):
    experiment = study.experiment
    return [experiment.run_unit(config, unit) for unit in experiment.units(config)]


def forward(setting, weights, readout, inputs):
    """The network, written once more."""
    hidden = inputs
    for k, weight in enumerate(weights):
        hidden = hidden @ weight.T
        if setting.activation == "gelu" and k < len(weights) - 1:
            hidden = jax.nn.gelu(hidden)
    return hidden[:, 0] if readout is None else hidden @ readout


def by_autodiff(setting, networks, rate, steps):
    """Plain descent on the rows of the data, all by automatic differentiation of the risk.

    Risk, risk on the test set, curvature before and after, map of the trained network.
    """

    def risk(weights, readout, problem=setting.data.problem):
        X, y = problem.require_data("the test")
        return jnp.mean((forward(setting, weights, readout, X) - y[:, 0]) ** 2)

    def curvature(weights, readout):
        flat, restore = ravel_pytree(weights)
        hessian = jax.hessian(lambda v: risk(restore(v), readout))(flat)
        return jnp.linalg.eigvalsh(hessian)[-1]

    def one(network):
        start, p = network.weights, network.readout

        def step(_, weights):
            return jax.tree.map(lambda w, g: w - rate * g, weights, jax.grad(risk)(weights, p))

        weights = jax.lax.fori_loop(0, steps, step, start)
        return {
            "risk": risk(weights, p),
            "test_risk": risk(weights, p, setting.data.test),
            "initial_sharpness": curvature(start, p),
            "sharpness": curvature(weights, p),
            "map": forward(setting, weights, p, np.eye(setting.dimension)),
        }

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(networks.with_batch()))


def squared_distance(setting, maps):
    return np.sum((maps - setting.data.problem.optimum) ** 2, axis=-1)


@pytest.mark.parametrize(
    "setting",
    [
        Setting("gaussian", **SMALL),
        Setting("residual", **SMALL),
        Setting(activation="gelu", noise=0.0, **SMALL),
    ],
    ids=["gaussian", "residual", "gelu"],
)
def test_a_scale_sweep_is_plain_descent_with_dense_curvature(setting):
    config = ScaleSweep(setting, (0.4, 0.6, 0.7), (Rate(0.05, 60, 1),), seed=5)
    (table,) = rows(fm_1.SWEEP, config)
    runs = [{"scale": scale, "repetition": 0} for scale in config.scales]
    networks = setting.networks(5, runs, np.array(config.scales))
    expected = by_autodiff(setting, networks, 0.05, 60)
    for name in ("risk", "test_risk", "initial_sharpness", "sharpness"):
        np.testing.assert_allclose(table[name], expected[name], rtol=1e-8, err_msg=name)
    if setting.activation == "linear":
        distance = squared_distance(setting, expected["map"])
        np.testing.assert_allclose(table["distance"], distance, rtol=1e-8)
    else:
        assert table["distance"].isna().all()


def test_what_a_start_adds_is_its_mean_over_first_layers_beside_the_data():
    """X-35: with a basis N of the null space, f's part beside the data is (W_1N)ᵀv_1, and entries
    of W_1N are N(0, σ²); v_1 is the derivative of the output by the first hidden layer."""
    setting = Setting("gaussian", **(SMALL | {"samples": 2}))
    config = ScaleSweep(setting, (0.4,), (Rate(0.05, 3, 2),), seed=5)
    (table,) = rows(fm_1.SWEEP, config)
    starts = setting.networks(5, [{"scale": 0.4, "repetition": k} for k in range(2)], 0.4)
    trained = gradient_descent(setting.data.problem, starts, 0.05, 3).network
    X, _ = setting.data.problem.require_data("the test")
    N = np.linalg.svd(X)[2][2:]
    beside = np.trace(N @ np.asarray(setting.data.test.covariance) @ N.T)
    for k, row in table.iterrows():
        _, *above = [np.asarray(weight[k]) for weight in trained.weights]
        v = jax.grad(lambda hidden, layers=above: (layers[1] @ layers[0] @ hidden)[0])(np.zeros(3))
        assert row["added_by_start"] == pytest.approx(0.4**2 * float(v @ v) * beside, rel=1e-9)


def test_runs_that_diverge_are_kept_out_of_every_mean():
    config = ScaleSweep(Setting(**SMALL), (3.0,), (Rate(5.0, 50, 3),))
    (table,) = rows(fm_1.SWEEP, config)
    assert (table["status"] == "diverged").all()
    assert table[["distance", "risk", "test_risk", "sharpness"]].isna().all(axis=None)
    assert np.isfinite(table["initial_sharpness"]).all()


def test_learning_rates_are_compared_on_the_same_networks_and_grow_with_the_sweep():
    setting = Setting(**SMALL)
    small = ScaleSweep(setting, (0.4,), (Rate(0.01, 5, 3), Rate(0.02, 5, 3)))
    first, second = rows(fm_1.SWEEP, small)
    np.testing.assert_allclose(first["initial_sharpness"], second["initial_sharpness"], rtol=1e-9)
    more = ScaleSweep(setting, (0.4, 0.5), (Rate(0.02, 5, 3),))
    (grown,) = rows(fm_1.SWEEP, more)
    same = grown[grown["scale"] == 0.4]
    np.testing.assert_allclose(same["sharpness"], second["sharpness"], rtol=1e-9)


def test_trajectories_start_where_the_authors_did_and_record_what_training_passes_through():
    setting = Setting()
    config = Trajectories(setting, "FM-1", 0.35, (Followed(0.02, 20, 10),), repetitions=2, seed=3)
    (table,) = rows(fm_1.TRAINING, config)
    exact = table[table["repetition"] >= 0]
    assert sorted(exact["step"].unique()) == [0, 10, 20]
    first = exact[(exact["step"] == 0) & (exact["repetition"] == 0)].iloc[0]
    assert first["distance"] == pytest.approx(1.033139, abs=1e-6)
    start = training_start("FM-1")
    batch = Network([np.asarray(weight)[None] for weight in start.weights])
    expected = by_autodiff(setting, batch, 0.02, 10)
    row = exact[(exact["step"] == 10) & (exact["repetition"] == 0)].iloc[0]
    assert row["sharpness"] == pytest.approx(expected["sharpness"][0], rel=1e-4)
    single = table[(table["repetition"] == AS_RUN) & (table["step"] == 10)].iloc[0]
    assert single["distance"] == pytest.approx(row["distance"], rel=1e-4)
    assert single["sharpness"] == pytest.approx(row["sharpness"], rel=0.05)  # 20 iterations


def test_a_sweep_of_the_authors_starts_from_their_weights():
    rates = (Rate(0.1, 5, 2),)
    config = ScaleSweep(Setting(), SWEEPS["FM-1"].scales, rates, "FM-1")
    (table,) = rows(fm_1.SWEEP, config)
    (other,) = rows(fm_1.SWEEP, replace(config, seed=1))
    starts = sweep_starts("FM-1", 0.1, 2)
    chosen = [np.asarray(weight)[:1] for weight in starts.weights]
    expected = by_autodiff(config.setting, Network(chosen), 0.1, 5)
    distance = squared_distance(config.setting, expected["map"])
    np.testing.assert_allclose(table["distance"][:1], distance, rtol=1e-8)
    assert abs(other["distance"][0] - table["distance"][0]) > 1e-6


def test_a_depth_sweep_trains_every_rate_from_the_same_weights():
    setting = Setting("residual", **SMALL)
    config = DepthSweep(setting, (2, 3), (0.05, 0.1), 30, 2, 0.25, data_seeds=(10,))
    for table, depth in zip(rows(fm_2.SWEEP, config), (2, 3), strict=True):
        runs = [{"depth": depth, "repetition": k} for k in range(2)]
        other = replace(setting, depth=depth, data_seed=10)
        expected = by_autodiff(other, other.networks(0, runs, 0.25), 0.1, 30)
        chosen = table[table["learning_rate"] == 0.1]
        distance = squared_distance(other, expected["map"])
        np.testing.assert_allclose(chosen["distance"], distance, rtol=1e-8)


def test_the_measured_critical_rate_is_the_exact_one_next_to_the_flattest_minimiser():
    setting = Setting("residual", **SMALL)
    config = CriticalRates(setting, (3,), starts=2, steps=(3000,), data_seeds=(4,))
    tables = {table["start"].item(): table for table in rows(fm_2.THRESHOLDS, config)}
    flattest = tables["flattest"].iloc[0]
    assert flattest["low"] <= flattest["measured"] <= flattest["high"]
    assert flattest["measured"] == pytest.approx(flattest["exact"], rel=0.02)
    assert flattest["exact"] <= flattest["printed"]


def test_the_contrast_has_the_threshold_where_the_theory_puts_it():
    config = Contrast((0.5, 0.9, 1.1, 2.0), steps=3000)
    tables = {table["problem"][0]: table for table in rows(talk_log.CONTRAST, config)}
    below = tables["linear"]["loss"][:2]
    assert (below < 1e-9).all()
    assert (tables["linear"]["status"][2:] == "diverged").all()
    assert (tables["logistic"]["loss"] < 0.1).all()


def test_the_authors_have_no_data_set_of_another_shape():
    with pytest.raises(InputError, match="pass a data_seed"):
        _ = Setting(samples=12).data


def test_the_answer_about_the_critical_rate_follows_the_data(check_changed):
    config = scale_critical.ScaleCritical(Setting(), (0.25, 0.4), starts=4, steps=100)
    good = pd.DataFrame({"scale": (0.25, 0.4), "ratio": 0.97, "settled": 4})
    check_changed("FM-1a-critical", config, good, good.assign(ratio=[0.97, 0.6]))

"""Names and files of version 0.2 still work."""

import pickle
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deeplin as dl
from deeplin.compatibility import MOVED

DATA = Path(__file__).parent / "data"
ENTRIES = [
    pytest.param(package, module, *(entry.split("=") * 2)[:2], id=f"{package}.{entry}")
    for package, modules in MOVED.items()
    for module, entries in modules.items()
    for entry in entries.split()
]


@pytest.mark.parametrize(("package", "module", "old", "new"), ENTRIES)
def test_a_moved_name_warns_and_is_the_thing_at_its_new_place(package, module, old, new):
    with pytest.warns(DeprecationWarning, match=rf"deeplin\.{module}\.{new}"):
        found = getattr(import_module(package), old)
    assert found is getattr(import_module(f"deeplin.{module}"), new)


NAMES = {
    "deeplin.sweep": """
        Bar Board Cluster Executor ExecutorError Experiment InProcess Lines Outcome Processes
        Progress Shard Status Store StoreError Unit UnitsFailed coordinate_words find_experiment
        from_json grid prompt_interrupt read_sweep read_table run run_key run_keys show_progress
        status to_json""",
    "deeplin.theory": """
        STATEMENTS Certificate Check Constants CriticalWeightDecay DecayedMinimum EffectiveRanks
        MinimalSharpness MinimalStochasticSharpness MinimalTrace NetworkOrbit NotApplicable Orbit
        RidgelessRisk RiskBound RiskSplit Statement StochasticSharpness TwoLayerFlow
        admissible_range balanced_mode balanced_orbit balanced_sharpness certify
        conditional_variance critical_learning_rate critical_weight_decay decayed_minimum
        effective_index effective_ranks initialization_scale interpolation_bound
        layerwise_sharpness log_failure_probability logistic_descent lojasiewicz_constant
        minimal_sharpness minimal_stochastic_sharpness minimal_trace minimizer_lower_bound
        minimum_norm_interpolant mode_orbits network_orbit noise_scale product_bounds
        product_bounds_frequency random_start_bound residual_constants residual_displacement
        ridgeless_risk risk_split smallest_admissible_depth spike_bound stability_limit statement
        stochastic_sharpness stochastic_sharpness_bound time_to_reach two_layer_flow""",
    "deeplin.training": """
        Advice CriticalRate Diagnosis Optimizer Prediction Verdict advise default_width descend
        diagnose empirical_critical_rate judge predict starting_network train""",
}
"""The public names of version 0.2."""


@pytest.mark.filterwarnings("ignore:deeplin:DeprecationWarning")
@pytest.mark.parametrize("package", NAMES)
def test_every_public_name_of_0_2_is_still_there(package):
    module = import_module(package)
    assert [name for name in NAMES[package].split() if not hasattr(module, name)] == []


def test_a_progress_bar_made_as_in_0_2_still_works():
    with pytest.warns(DeprecationWarning, match="show_progress"):
        progress = dl.sweep.Lines("mine")
    assert isinstance(progress, dl.sweep.Progress)


@pytest.mark.parametrize("package", MOVED)
def test_a_name_that_never_was_raises_as_any_module_does(package):
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        import_module(package).nonsense


def test_an_estimator_pickled_by_0_2_predicts_and_learns_on():
    with (DATA / "estimator-0.2.pickle").open("rb") as file:
        model = pickle.load(file)
    X = np.random.default_rng(0).normal(size=(20, model.n_features_in_))
    expected = X @ np.asarray(model.coef_).T + model.intercept_
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12)
    again = model.fit(X, expected)
    np.testing.assert_allclose(again.predict(X), expected, rtol=0, atol=1e-8 * np.ptp(expected))


def test_a_run_saved_by_0_2_loads_and_predicts_as_it_did():
    _, run = dl.load_run(DATA / "run-0.2.npz")
    expected = pd.read_csv(DATA / "run-0.2-predictions.csv")["price"]
    np.testing.assert_allclose(run.predict(DATA / "houses.csv"), expected, rtol=1e-12)

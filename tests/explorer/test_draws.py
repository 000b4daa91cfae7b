"""The page and Python draw the same numbers, so a preset's certificate is about its picture."""

import numpy as np
import pytest

import deeplin as dl
from deeplin.explorer.answers import Random, data_of, network_of
from deeplin.explorer.build import inputs, presets

DEFAULT = {name: given["default"] for name, given in inputs().items()}


def test_normals_are_normal():
    draws = Random(5, 1).normals(20_000)
    assert abs(draws.mean()) < 4 / np.sqrt(len(draws))
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / len(draws))
    assert abs(np.mean(draws**4) - 3) < 4 * np.sqrt(96 / len(draws))
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / np.sqrt(len(draws))


def test_streams_and_seeds_differ():
    first = {tuple(Random(seed, stream).normals(3)) for seed in range(20) for stream in range(5)}
    assert len(first) == 100


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [n for n, p in presets().items() if not {"tab", "loss"} & {*p["state"]}]
)
def test_preset_starts_from_the_same_network_and_data(visit, name):
    state = DEFAULT | presets()[name]["state"]
    X, Y = data_of(state)
    problem, network = dl.Problem.from_data(X, Y[:, 0]), network_of(state)
    visitor = visit("#flow=no")
    visitor.verdict("η")
    visitor.press(presets()[name]["title"])
    visitor.wait(f"document.querySelector('[data-preset={name}]').ariaPressed == 'true'")
    visitor.verdict(f"η = {state['learning_rate']:g} ")
    with visitor.page.expect_download() as download:
        visitor.press("Data (CSV)")
    header, first = download.value.path().read_text().splitlines()[:2]
    row = dict(zip(header.split(","), first.split(","), strict=True))
    start = dl.gradient_descent(problem, network, 1e-9, 1, record_every=1).records
    assert float(row["risk"]) == pytest.approx(start["risk"][0], rel=1e-12)
    assert float(row["norms_1"]) == pytest.approx(
        np.linalg.norm(np.asarray(network.weights[0])), rel=1e-12
    )

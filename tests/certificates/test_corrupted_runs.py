"""A certificate can fail: statements that a true run obeys are violated by a corrupted one."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics.run import Records
from deeplin.problems import synthetic

ALWAYS_TRUE = {
    *("FM-L8", "FM-sharp", "FM-T1", "FM-T2", "FM-rescale", "FM-grad-sandwich", "FM-L9", "Talk-res"),
    *("X-1", "X-2", "X-7", "X-8", "X-14", "X-17", "X-32", "X-33", "X-34"),
    *("BO-D2.1", "BO-D2.5", "BO-D3.3"),
    *("BO-L4.1", "BO-L4.2", "BO-L4.4", "BO-L5.3", "BO-LB.3", "BO-risk", "BO-disc"),
}
"""True of all weights, trained or not: they check the formulas, and no run can violate them."""
BY_CHANCE = {"FM-L3", "X-21"}
"""About the law of the start; a start that is not of this law does not meet their hypotheses."""
ASSUMPTIONS = {"FM-A1", "FM-A2", *(f"BO-A{k}" for k in range(1, 6))}
ELSEWHERE = {
    "FM-L1": "test_a_corrupted_flow_is_caught",
    "FM-L7": "test_a_detour_breaks_the_bound_on_the_path",
    "FM-crit": "test_staying_at_a_sharp_minimizer_is_judged_from_the_run_itself",
    "Talk-descent": "test_a_step_that_gains_too_little_breaks_the_descent_lemma",
    "BO-L5.4": "test_a_corrupted_first_layer_is_caught",
    "X-4": "test_a_corrupted_first_layer_is_caught",
    "X-6": "test_a_map_pushed_off_the_data_is_caught",
    "BO-LB.4": "test_a_loss_that_stops_falling_breaks_the_rates",
    "X-27": "test_X27_catches_a_network_that_was_not_trained_by_flow",
    "X-31": "test_X31_catches_a_descent_that_does_not_obey_it",
    "X-35": "test_X35_catches_a_rate_that_no_run_can_settle_at",
}
"""Tests in this folder in which a statement is violated."""
OPEN = {
    *("BO-L4.3", "BO-L5.6", "BO-L5.7", "BO-sigma-min", "BO-trace", "BO-D5.1", "BO-P5.2", "BO-T3.1"),
    *("BO-T3.2", "BO-C3.4", "BO-LB.1", "BO-LB.2", "BO-LB.5", "X-25", "X-5"),
}
"""With a constant that is measured."""


def changed(run, change, since=0.5):
    """The run with its layers changed from some record on."""
    weights = [np.array(weight) for weight in run.trajectory.weights]
    at = int(since * len(weights[0]))
    for k, new in enumerate(change([weight[at:] for weight in weights])):
        weights[k][at:] = new
    readout = run.network.readout
    last = dl.Network([weight[-1] for weight in weights], readout=readout)
    return replace(run, trajectory=dl.Network(weights, readout=readout), network=last)


def traded(weights):
    """The same product from layers of very different size."""
    return [1e4 * weights[0], weights[1] / 1e4, *weights[2:]]


def stopped(weights):
    """Nothing moves any more."""
    return [0 * weight + weight[:1] for weight in weights]


def dead(weights):
    """Two layers are zero: no gradient, and the risk of the zero map."""
    return [0 * weights[0], 0 * weights[1], *weights[2:]]


def louder(weights):
    """Every layer half as large again."""
    return [1.5 * weight for weight in weights]


@pytest.fixture(scope="module")
def small():
    """Gradient flow from a start so small that FM-A1 and FM-A2 are met."""
    problem = synthetic.flat_minima(0).problem
    net = dl.initialize.zero_layer(jax.random.key(0), (5, 4, 1), 1e-4)
    scale = 1.2 / problem.optimum_norm
    X, y = problem.require_data("a test")
    problem = dl.Problem.from_data(X, scale * y[:, 0])
    return problem, dl.gradient_flow(problem, net, until=40.0, record_every=1.0)


@pytest.fixture(scope="module")
def descent(small):
    problem, _ = small
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 1), 0.3)
    return problem, dl.gradient_descent(problem, net, 0.02, 20, record_every=1)


def _near_start(readout):
    """A flow from a residual start that almost explains the data (FM-T4, T5, C3 and X-20)."""
    rng = np.random.default_rng(0)
    net = dl.initialize.residual(jax.random.key(0), 4, 6, 0.05, np.ones(4))
    net = net if readout else dl.Network(net.weights)
    X = rng.normal(size=(20, 4))
    shift = 1e-12 * rng.normal(size=np.shape(net.product))
    y = X @ (np.asarray(net.product) + shift).T
    problem = dl.Problem.from_data(X, y)
    return problem, dl.gradient_flow(problem, net, until=3.0, record_every=0.5)


@pytest.fixture(scope="module")
def residual():
    return _near_start(True)


@pytest.fixture(scope="module")
def multivariate():
    return _near_start(False)


@pytest.fixture(scope="module")
def wide():
    """Flows of formed networks: small scales, a first layer of zeros, a last layer of zeros."""
    data = synthetic.spiked(0, 30, samples=6, outputs=2, spikes=2)
    runs = []
    for alpha, beta in ((0.01, 0.05), (0.0, 0.1), (0.1, 0.0)):
        wide = dl.simulate_wide(
            data.problem, 300, 3, alpha, beta, jax.random.key(0), dynamics="flow",
            loss_target=1e-8, record_every=6,
        )  # fmt: skip
        runs.append(wide.as_run())
    return data.problem, runs


@pytest.fixture(scope="module")
def copied():
    """The modified identity."""
    data = synthetic.spiked(0, 30, samples=6, outputs=2, spikes=2)
    net = dl.initialize.modified_identity(30, 2, 3)
    return data.problem, dl.gradient_descent(data.problem, net, 0.02, 40, record_every=10)


CASES = [
    ("descent", "FM-grad", louder),
    ("small", "FM-L2", traded),
    ("small", "FM-T3", dead),
    ("small", "FM-C1", traded),
    ("small", "FM-C2", traded),
    ("small", "X-19", traded),
    ("residual", "FM-T4", louder),
    ("residual", "FM-C3", traded),
    ("residual", "X-20", louder),
    ("multivariate", "FM-T5", louder),
    ("multivariate", "X-20", louder),
]


@pytest.mark.parametrize(("name", "id", "change"), CASES)
def test_a_true_run_obeys_and_a_corrupted_one_violates(name, id, change, request):
    problem, run = request.getfixturevalue(name)
    assert set(certify(problem, run, only=id)["verdict"]) == {"holds"}
    assert set(certify(problem, changed(run, change), only=id)["verdict"]) == {"violated"}


@pytest.mark.parametrize(("error", "verdict"), [(3e-7, "holds"), (1e-5, "violated")])
def test_FM_L2_grants_a_flow_the_drift_of_its_integration_and_no_more(small, error, verdict):
    """ε is a five-millionth of the squares, less than what an integrator conserves of them."""
    problem, run = small
    drifted = changed(run, lambda weights: [(1 + error) * weights[0], weights[1] / (1 + error)])
    table = certify(problem, drifted, only="FM-L2", parts=True).set_index("part")
    spread = table.loc["(b) equal norms"]
    assert spread.left > spread.right  # more than ε
    assert spread.verdict == verdict
    assert table.loc["(a) rank one", "verdict"] == "holds"


def _beside(problem, weights, size):
    """The layers with a first one that is `size` larger beside the data."""
    null = np.linalg.svd(problem.inputs)[2][-1]
    return [weights[0] + size * null, *weights[1:]]


@pytest.mark.parametrize(
    ("index", "id", "change"),
    [
        (1, "X-26", stopped),
        (2, "X-26", stopped),
        (1, "X-28", louder),
    ],
)
def test_a_true_wide_flow_obeys_and_a_corrupted_one_violates(wide, index, id, change):
    problem, runs = wide
    run = runs[index]
    true, false = (
        certify(problem, one, only=id, parts=True) for one in (run, changed(run, change, 0.1))
    )
    assert "holds" in set(true["verdict"])
    assert "violated" not in set(true["verdict"])
    assert "violated" in set(false["verdict"])


@pytest.mark.parametrize("id", ["BO-T3.2", "BO-C3.4", "X-25"])
def test_the_measured_constant_of_a_corrupted_run_grows_tenfold(wide, id):
    """The map is pushed beside the data, where the loss does not see it."""
    problem, (run, zero, _) = wide
    data = synthetic.spiked(0, 30, samples=6, outputs=2, spikes=2)
    population = dl.Population(data.truth, data.spectrum)
    far = changed(run, lambda weights: _beside(problem, weights, 10.0))
    true, without, false = (
        certify(problem, one, only=id, population=population).iloc[0] for one in (run, zero, far)
    )
    assert {true["verdict"], without["verdict"], false["verdict"]} == {"measured"}
    assert false["left"] > 10 * true["left"]
    assert without["left"] < 10  # α = 0: nothing beside the data but rounding


@pytest.mark.parametrize("id", ["BO-L4.5", "BO-L5.5"])
def test_a_map_that_grew_more_than_its_recorded_loss_allows_is_a_violation(wide, id):
    problem, (*_, run) = wide
    assert set(certify(problem, run, only=id)["verdict"]) == {"holds"}
    columns = dict(run.records) | {"path": 1e-3 * run.records["path"]}
    quiet = replace(run, records=Records(columns))
    assert set(certify(problem, quiet, only=id)["verdict"]) == {"violated"}


def test_the_modified_identity_beside_the_data_is_a_violation(copied):
    problem, run = copied
    assert set(certify(problem, run, only="BO-mod-id")["verdict"]) == {"holds"}
    far = changed(run, lambda weights: _beside(problem, weights, 1e-3))
    assert set(certify(problem, far, only="BO-mod-id")["verdict"]) == {"violated"}


def test_every_statement_about_a_run_is_violated_somewhere_or_cannot_be():
    seen = {id for _, id, _ in CASES} | {"BO-L4.5", "BO-L5.5", "X-26", "X-28", "BO-mod-id"}
    reports = {s.id for s in STATEMENTS.values() if s.kind in ("definition", "erratum")}
    known = seen | set(ELSEWHERE) | ALWAYS_TRUE | BY_CHANCE | ASSUMPTIONS | OPEN | reports
    about_runs = {s.id for s in STATEMENTS.values() if s.scope == "run"}
    assert about_runs <= known

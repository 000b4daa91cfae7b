"""The certificate of BO: it holds on true runs, reports constants, and catches a false one."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import Run, reduce, simulate_wide
from deeplin.problems import Population, synthetic
from deeplin.theory import STATEMENTS, Constants, certify

IDS = [id for id in STATEMENTS if id.startswith("BO") or id in ("E-4", "X-4", "X-5", "X-6")]
RUNS = 12
UNVERIFIABLE = {"BO-A1", "BO-A2", "BO-A3", "BO-A4"}


@pytest.fixture(scope="module")
def cells():
    return [synthetic.spiked(seed, 30, samples=6, outputs=2, spikes=2) for seed in range(RUNS)]


@pytest.fixture(scope="module")
def flows(cells):
    """Gradient flows of wide networks of every kind: small and large scales, α = 0, β = 0."""
    scales = np.array([(0.1, 1.0), (1.0, 0.1), (0.0, 1.0), (1.0, 0.0)] * 3) / np.sqrt(300)
    return simulate_wide(
        [cell.problem for cell in cells],
        300,
        3,
        scales[:, 0],
        scales[:, 1],
        jax.random.split(jax.random.key(0), RUNS),
        dynamics="flow",
        loss_target=1e-10,
        record_every=6,
    )


def _certificate(cell, run, **options):
    population = Population(cell.truth, cell.spectrum)
    table = certify(cell.problem, run, only=IDS, population=population, **options)
    return table.set_index("id")


def test_every_id_of_the_specification_is_registered():
    expected = (
        "BO-risk BO-D2.1 BO-D2.2 BO-A1 BO-A2 BO-A3 BO-A4 BO-A5 BO-D2.3 BO-mod-id BO-D2.4 BO-D2.5 "
        "BO-L4.1 BO-L4.2 BO-L4.3 BO-L5.6 BO-L5.7 BO-L4.4 BO-L4.5 BO-L5.3 BO-L5.4 BO-L5.5 BO-T3.1 "
        "BO-D5.1 BO-P5.2 BO-T3.2 BO-D3.3 BO-C3.4 BO-disc E-4 X-4 X-5 X-6"
    )
    assert set(IDS) == set(expected.split())


@pytest.mark.parametrize("index", range(RUNS))
def test_nothing_but_the_printed_zero_case_is_violated_on_true_flows(cells, flows, index):
    table = _certificate(cells[index], flows.as_run(index))
    violated = set(table.index[table["verdict"] == "violated"])
    zero_last = flows.outcomes[index].start.beta == 0
    assert violated == ({"E-4"} if zero_last else set())
    hold = "BO-L4.1 BO-L4.2 BO-L4.4 BO-L4.5 BO-L5.3 BO-L5.4 BO-L5.5 BO-T3.1 BO-disc X-4 X-6 BO-A5"
    assert set(table.loc[hold.split(), "verdict"]) == {"holds"}
    assert all(table.loc[sorted(UNVERIFIABLE), "verdict"] == "not applicable")


def test_two_hundred_random_problems_certify():
    """Gradient flows on random data, covariances and scales, all of one shape."""
    rng = np.random.default_rng(1)
    count, d, n, q = 200, 8, 3, 1
    spectra = rng.lognormal(0, 1, size=(count, d))
    truths = rng.normal(size=(count, d, q))
    inputs = rng.normal(size=(count, n, d)) * np.sqrt(spectra)[:, None]
    targets = inputs @ truths + rng.normal(size=(count, n, q))
    problems = [dl.Problem.from_data(X, Y) for X, Y in zip(inputs, targets, strict=True)]
    wide = simulate_wide(
        problems,
        rng.integers(4, 1000, count),
        3,
        rng.uniform(0, 0.5, count),
        rng.uniform(0, 0.5, count),
        jax.random.split(jax.random.key(5), count),
        dynamics="flow",
        loss_target=1e-9,
        record_every=8,
    )
    assert np.mean(wide.status == "converged") > 0.95
    verdicts = set()
    for k in range(count):
        population = Population(truths[k], spectra[k])
        table = certify(problems[k], wide.as_run(k), only=IDS, population=population)
        assert table.all_hold, (k, table.violated)
        verdicts |= set(table.loc[table["id"] == "BO-L4.5", "verdict"])
    assert verdicts == {"holds"}


def test_without_a_population_its_statements_do_not_apply(cells, flows):
    table = certify(cells[0].problem, flows.as_run(0), only=IDS).set_index("id")
    for id in ("BO-risk", "BO-T3.1", "BO-L4.2", "BO-L4.3", "BO-D2.1", "BO-C3.4", "BO-disc"):
        assert table.loc[id, "verdict"] == "not applicable"
        assert "population" in table.loc[id, "hypotheses"]
    assert table.loc["BO-L4.5", "verdict"] == "holds"


def test_descent_is_not_judged_by_statements_about_flow(cells):
    wide = simulate_wide(
        cells[0].problem, 300, 3, 0.01, 0.05, jax.random.key(0), learning_rate=0.02
    )
    table = _certificate(cells[0], wide.as_run())
    assert table.loc["BO-L4.5", "verdict"] == "hypotheses not met"
    assert "gradient flow" in table.loc["BO-L4.5", "hypotheses"]
    assert table.loc["BO-L5.4", "verdict"] == "holds"
    assert table.loc["X-4", "verdict"] == "holds"


def test_the_reported_constant_is_the_smallest(cells, flows):
    """Judged with a little more it holds, with a little less it does not."""
    run = flows.as_run(0)
    table = _certificate(cells[0], run)
    for id in ("BO-L4.3", "BO-L5.6", "BO-L5.7", "BO-T3.1", "BO-C3.4"):
        assert table.loc[id, "part"] == "smallest c"
        c = table.loc[id, "left"]
        more = _certificate(cells[0], run, constants=Constants(c=1.01 * c))
        less = _certificate(cells[0], run, constants=Constants(c=0.99 * c))
        assert more.loc[id, "verdict"] == "holds", id
        assert less.loc[id, "verdict"] == "violated", id


def test_measured_constants_are_their_ratios(cells, flows):
    table = _certificate(cells[0], flows.as_run(0))
    problem, spectrum = cells[0].problem, cells[0].spectrum
    X, Y = problem.inputs, problem.targets
    assert table.loc["BO-L4.3", "left"] == pytest.approx(np.linalg.norm(X, 2) / np.sqrt(6))
    assert table.loc["BO-L5.6", "left"] == pytest.approx(
        np.linalg.norm(X) / np.sqrt(6 * spectrum.sum())
    )
    size = np.linalg.norm(X, 2) * np.linalg.norm(cells[0].truth) + np.sqrt(12)
    assert table.loc["BO-L5.7", "left"] == pytest.approx(np.linalg.norm(Y) / size)


def test_the_bound_on_the_weights_is_over_all_subsets_of_layers(cells, flows):
    """BO-D2.4 by brute force over the subsets S."""
    run = flows.as_run(1)
    largest = 0.0
    for k in range(len(run.records["time"])):
        norms = [np.linalg.norm(np.asarray(weight[k]), 2) for weight in run.trajectory.weights]
        for subset in range(2**3):
            chosen = [norm for j, norm in enumerate(norms) if subset >> j & 1]
            largest = max(largest, float(np.prod(chosen)))
    assert _certificate(cells[1], run).loc["BO-D2.4", "left"] == pytest.approx(largest)


def _corrupted(run: Run, change) -> Run:
    """The run with its trajectory changed from half way on."""
    weights = [np.array(weight) for weight in run.trajectory.weights]
    half = len(weights[0]) // 2
    for weight, changed in zip(weights, change([w[half:] for w in weights]), strict=True):
        weight[half:] = changed
    trajectory = dl.Network(weights)
    final = dl.Network([weight[-1] for weight in weights])
    return replace(run, trajectory=trajectory, network=final)


def test_a_corrupted_first_layer_is_caught(cells, flows):
    run = flows.as_run(0)
    broken = _corrupted(run, lambda weights: [1.01 * weights[0], *weights[1:]])
    table = _certificate(cells[0], broken)
    assert {"BO-L5.4", "X-4"} <= set(table.index[table["verdict"] == "violated"])


def test_a_map_pushed_off_the_data_is_caught(cells, flows):
    """α = 0: Θ_⊥ must stay 0. A tiny push of the first layer beside the data is a violation."""
    run = flows.as_run(2)
    rng = np.random.default_rng(0)

    def push(weights):
        return [weights[0] + 1e-4 * rng.normal(size=weights[0].shape[1:]), *weights[1:]]

    table = _certificate(cells[2], _corrupted(run, push))
    violated = set(table.index[table["verdict"] == "violated"])
    assert {"BO-L5.4", "E-4", "X-4", "X-6"} <= violated


def test_a_full_network_meets_the_hypotheses_of_convergence():
    """BO-P5.2 and BO-D5.1 on formed weights: operator-norm β large, width large."""
    problem = synthetic.spiked(0, 12, samples=3, outputs=1, spikes=12).problem
    m = 4000
    net = dl.initialize.identity_middle(
        jax.random.key(0), 12, m, 1, 2, 0.02 / np.sqrt(m), 40 / np.sqrt(m)
    )
    reduction = reduce(problem, net)
    flow = dl.dynamics.flow.gradient_flow(
        reduction.problem, reduction.network, gap=1e-12, record_every=2e-4, record=("gap",)
    )
    lifted = dl.Network(
        [
            np.asarray(whole) + upper @ (np.asarray(now) - np.asarray(start)) @ lower.T
            for whole, upper, now, start, lower in zip(
                net.weights,
                reduction.bases[1:],
                flow.trajectory.weights,
                reduction.network.weights,
                reduction.bases[:-1],
                strict=True,
            )
        ]
    )
    run = replace(flow, initial=net, network=reduction.lift(flow.network), trajectory=lifted)
    table = certify(problem, run, only=["BO-D5.1", "BO-P5.2"]).set_index("id")
    assert table.loc["BO-D5.1", "left"] < 2
    assert table.loc["BO-P5.2", "hypotheses"] == ""
    assert table.loc["BO-P5.2", "verdict"] == "holds"


def test_the_modified_identity_certifies(cells):
    problem = cells[0].problem
    net = dl.initialize.modified_identity(30, 2, 3)
    run = dl.gradient_descent(problem, net, 0.02, steps=200, record_every=50, record=("risk",))
    table = certify(problem, run, only=["BO-mod-id", "X-4", "X-6"]).set_index("id")
    assert set(table["verdict"]) == {"holds"}


def test_a_batch_certifies_like_its_members(cells):
    cell = cells[0]
    keys = jax.random.split(jax.random.key(3), 3)
    wide = simulate_wide(
        cell.problem,
        40,
        3,
        0.02,
        0.2,
        keys,
        learning_rate=0.02,
        max_steps=300,
        loss_target=0,
        record_every=100,
    )
    members = [replace(wide.as_run(k), evidence={}) for k in range(3)]

    def joined(networks, axis=0):
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis=axis), *networks)

    run = replace(
        members[0],
        network=joined([member.network for member in members]),
        initial=joined([member.initial for member in members]),
        trajectory=joined([member.trajectory for member in members], axis=1),
        status=wide.status,
        steps=wide.steps,
    )
    population = Population(cell.truth, cell.spectrum)
    batch = certify(cell.problem, run, only=IDS, population=population)
    for k in range(3):
        alone = certify(cell.problem, members[k], only=IDS, population=population)
        part = batch[batch["run"] == k].reset_index(drop=True)
        assert list(part["verdict"]) == list(alone["verdict"])
        close = np.isclose(part["left"], alone["left"], rtol=1e-6, atol=1e-9, equal_nan=True)
        assert close.all(), part["id"][~close].tolist()


@pytest.mark.parametrize(
    "options", [{"c": 0.0}, {"c": -1.0}, {"b": 0.0}, {"delta": 0.7}, {"normalisation": "l1"}]
)
def test_constants_out_of_range_are_refused(options):
    with pytest.raises(dl.InputError):
        Constants(**options)


def test_a_population_of_another_shape_is_refused(cells, flows):
    with pytest.raises(dl.InputError, match="matching"):
        certify(cells[0].problem, flows.as_run(0), population=Population(np.zeros(3), np.ones(3)))

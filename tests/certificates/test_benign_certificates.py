"""The certificate of BO: it holds on true runs, reports constants, and catches a false one."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics import Run, reduce, simulate_wide
from deeplin.networks import Network, Trajectory
from deeplin.problems import Population, synthetic
from deeplin.theory.benign_overfitting import Constants

WIDE = ("X-25", "X-26", "X-27", "X-28", "X-31", "X-32", "X-33")
OTHERS = ("E-4", "E-19", "E-24", "X-4", "X-5", "X-6", *WIDE)
IDS = [id for id in STATEMENTS if id.startswith("BO") or id in OTHERS]
RUNS = 4
UNVERIFIABLE = {"BO-A1", "BO-A2", "BO-A3", "BO-A4"}


@pytest.fixture(scope="module")
def cells():
    return [synthetic.spiked(seed, 30, samples=6, outputs=2, spikes=2) for seed in range(RUNS)]


@pytest.fixture(scope="module")
def flows(cells):
    """Gradient flows of wide networks of every kind: small and large scales, α = 0, β = 0."""
    scales = np.array([(0.1, 1.0), (1.0, 0.1), (0.0, 1.0), (1.0, 0.0)]) / np.sqrt(300)
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


@pytest.mark.parametrize("index", range(RUNS))
def test_nothing_but_the_printed_zero_case_is_violated_on_true_flows(cells, flows, index):
    table = _certificate(cells[index], flows.as_run(index))
    violated = set(table.index[table["verdict"] == "violated"])
    zero_last = flows.starts[index].beta == 0
    assert violated == ({"E-4"} if zero_last else set())
    hold = "BO-L4.1 BO-L4.2 BO-L4.4 BO-L4.5 BO-L5.3 BO-L5.4 BO-L5.5 BO-disc X-4 X-6 BO-A5"
    assert set(table.loc[hold.split(), "verdict"]) == {"holds"}
    shown = "BO-T3.1 BO-L4.3 BO-L5.6 BO-L5.7 BO-D2.2 BO-D2.3 BO-D2.4 BO-trace BO-sigma-min X-5"
    assert set(table.loc[shown.split(), "verdict"]) == {"measured"}
    assert table.loc[shown.split(), "right"].isna().all()
    assert all(table.loc[sorted(UNVERIFIABLE), "verdict"] == "not applicable")


def test_inputs_of_zeros_have_no_largest_eigenvalue_to_bound():
    problem = dl.Problem.from_data(np.zeros((3, 5)), np.ones(3))
    network = dl.Network([np.ones((2, 5)), np.ones((1, 2))])
    population = Population(np.ones(5), np.ones(5))
    table = certify(problem, network, only=["BO-L4.3", "BO-L5.7"], population=population)
    assert set(table["verdict"]) == {"not applicable"}
    assert table["hypotheses"].str.contains("Pass nonzero inputs").all()


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
    for id in ("BO-L4.3", "BO-L5.6", "BO-L5.7", "BO-T3.1", "BO-trace", "BO-sigma-min"):
        assert table.loc[id, "part"].endswith("smallest c")
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


def _formed_run(beta: float = 40.0):
    """A flow of formed weights that meets the hypotheses of BO-P5.2: β and the width are large."""
    problem = synthetic.spiked(0, 12, samples=3, outputs=1, spikes=12).problem
    m = 4000
    net = dl.initialize.identity_middle(
        jax.random.key(0), 12, m, 1, 2, 0.02 / np.sqrt(m), beta / np.sqrt(m)
    )
    reduction = reduce(problem, net)
    flow = dl.dynamics.flow.gradient_flow(
        reduction.problem, reduction.network, gap=1e-12, record_every=2e-4, record=("gap",)
    )
    lifted = reduction.lift(dl.Network(flow.trajectory.weights))
    return problem, replace(
        flow, initial=net, network=reduction.lift(flow.network), trajectory=lifted
    )


@pytest.fixture(scope="module")
def formed():
    return _formed_run()


CONVERGENCE = ["BO-P5.2", *(f"BO-LB.{k}" for k in range(1, 6))]


def test_a_full_network_meets_the_hypotheses_of_convergence(formed):
    problem, run = formed
    certificate = certify(problem, run, only=["BO-D5.1", *CONVERGENCE])
    table = certificate.set_index("id")
    assert table.loc["BO-D5.1", "left"] < 2
    assert not any(table["hypotheses"])
    assert set(table.loc[["BO-LB.3", "BO-LB.4"], "verdict"]) == {"holds"}
    for name in ("BO-P5.2", "BO-LB.1", "BO-LB.2", "BO-LB.5"):  # about an open constant
        row = table.loc[name]
        assert row.verdict == "measured"
        assert row.left <= row.allowed
    assert {"BO-P5.2", "BO-LB.5"} <= set(certificate.judged["id"])


def test_with_a_constant_of_ones_own_convergence_is_judged(formed):
    """The run meets the conditions, and obeys the conclusion, with c = 2."""
    table = _formed_table(*formed, constants=Constants(c=2.0))
    assert set(table["verdict"]) == {"holds"}
    parts = certify(*formed, only="BO-P5.2", parts=True, constants=Constants(c=2.0))
    rate = parts.set_index("part").loc["rate of the loss"]
    assert rate["at"] > 0  # at the start both sides are equal


def test_the_proposition_has_all_its_parts(formed):
    parts = certify(*formed, only="BO-P5.2", parts=True)["part"]
    for name in ("1. good", "2. B with layer 1", "rate of the loss", "3. ℒ(0)"):
        assert any(name in part for part in parts)


def test_the_lazy_distance_is_the_largest_change_of_a_layer(formed):
    problem, run = formed
    row = certify(problem, run, only="BO-LB.5").iloc[0]
    moved = max(
        np.linalg.norm(np.asarray(w[k]) - np.asarray(w0), 2)
        for w, w0 in zip(run.trajectory.weights, run.initial.weights, strict=True)
        for k in range(len(w))
    )
    assert row.left == pytest.approx(moved / 0.25, rel=1e-9)
    assert row.part == "lazy distance: smallest factor"
    judged = certify(problem, run, only="BO-LB.5", constants=Constants(c=1.0)).iloc[0]
    assert (judged.left, judged.right) == (pytest.approx(moved, rel=1e-9), 0.25)


def test_a_layer_far_from_its_start_breaks_the_lazy_lemma(formed):
    """W_1 moved by 1 beside the data, where the loss does not see it."""
    problem, run = formed
    beside = np.linalg.svd(problem.inputs)[2][-1]
    push = np.outer(np.eye(4000)[0], beside)
    far = _corrupted(run, lambda w: [w[0] + push, w[1]])
    row = _formed_table(problem, far, constants=Constants(c=1.0)).loc["BO-LB.5"]
    assert row.verdict == "violated"
    assert row.left > 0.9
    before, after = (_formed_table(problem, which).loc["BO-LB.5", "left"] for which in (run, far))
    assert after > 10 * before


def _formed_table(problem, run, **options):
    return certify(problem, run, only=CONVERGENCE, **options).set_index("id")


def test_a_loss_that_stops_falling_breaks_the_rates(formed):
    """From half way on the last layer is that of the start: the loss is that of the start too."""
    problem, run = formed
    start = [np.asarray(w) for w in run.initial.weights]
    still = _corrupted(run, lambda w: [start[0] + 0 * w[0], start[1]])
    table = _formed_table(problem, still, constants=Constants(c=1.0))
    assert {"BO-P5.2", "BO-LB.4"} <= set(table.index[table["verdict"] == "violated"])
    # a loss that does not decay is a hypothesis of BO-LB.5 that is not met
    assert table.loc["BO-LB.5", "verdict"] == "hypotheses not met"
    rates = [_rate_of_the_loss(problem, which) for which in (run, still)]
    assert rates[1] > 10 * rates[0]


def _rate_of_the_loss(problem, run) -> float:
    table = certify(problem, run, only="BO-P5.2", parts=True).set_index("part")
    return table.loc["rate of the loss: smallest factor", "left"]


def test_singular_values_out_of_range_break_the_first_lemma(formed):
    """One direction of W_1 three times as long as the others."""
    problem, run = formed
    first, last = (np.asarray(w) for w in run.initial.weights)
    left, sizes, right = np.linalg.svd(first, full_matrices=False)
    sizes[0] *= 4
    bent = dl.Network([left * sizes @ right, last])
    row = certify(problem, bent, only="BO-LB.1", constants=Constants(c=1.0)).iloc[0]
    assert (row.verdict, row.part) == ("violated", "σ_max(W_1)/α")
    sizes[0] *= 100
    bent = dl.Network([left * sizes @ right, last])
    row = certify(problem, bent, only="BO-LB.1").iloc[0]
    assert row.verdict == "measured"
    assert row.left > 10 * certify(problem, run.initial, only="BO-LB.1").iloc[0].left


def test_a_large_loss_at_the_start_needs_a_large_constant(formed):
    """Layers that are aligned instead of random: the loss does not gain the factor 1/m."""
    problem, run = formed
    row, unit = problem.inputs[:1], np.eye(4000)[:1]
    big = dl.Network([100 * unit.T @ row, 100 * unit])
    for id in ("BO-LB.2", "BO-D5.1"):
        small, large = (certify(problem, net, only=id).iloc[0] for net in (run.initial, big))
        assert large.left > 10 > small.left
    judged = certify(problem, big, only="BO-LB.2", constants=Constants(c=10.0)).iloc[0]
    assert judged.verdict == "violated"


def test_every_term_of_the_theorems_has_its_own_row(cells, flows):
    population = Population(cells[0].truth, cells[0].spectrum)
    run = flows.as_run(0)
    table = certify(cells[0].problem, run, only=["BO-T3.1"], population=population, parts=True)
    names = [part.split(":")[0] for part in table["part"]]
    assert names == ["bias", "variance", "Ξ", "total", "Ξ by ∫√ℒ"]


def test_the_corollary_claims_nothing_for_scales_it_does_not_choose(cells, flows):
    """BO-C3.4: "there are α, β": here they are others, whatever the constant."""
    row = _certificate(cells[1], flows.as_run(1), constants=Constants(c=1e-9)).loc["BO-C3.4"]
    assert row.verdict == "hypotheses not met"
    assert "α so small" in row.hypotheses


def test_assumptions_hold_by_construction_where_the_data_were_drawn(cells, flows):
    population = Population(cells[0].truth, cells[0].spectrum, drawn=True)
    table = certify(
        cells[0].problem, flows.as_run(0), only=sorted(UNVERIFIABLE), population=population
    )
    assert set(table["verdict"]) == {"holds"}
    assert set(table["part"]) == {"by construction"}
    assert table["left"].isna().all()


def test_the_modified_identity_certifies(cells):
    problem = cells[0].problem
    net = dl.initialize.modified_identity(30, 2, 3)
    run = dl.gradient_descent(problem, net, 0.02, steps=200, record_every=50, record=("risk",))
    table = certify(problem, run, only=["BO-mod-id", "X-4", "X-6"]).set_index("id")
    assert set(table["verdict"]) == {"holds"}


@pytest.mark.parametrize("options", [{"c": 0.0}, {"c": -1.0}, {"b": 0.0}, {"delta": 0.7}])
def test_constants_out_of_range_are_refused(options):
    with pytest.raises(dl.InputError):
        Constants(**options)


def test_a_population_of_another_shape_is_refused(cells, flows):
    with pytest.raises(dl.InputError, match="matching"):
        certify(cells[0].problem, flows.as_run(0), population=Population(np.zeros(3), np.ones(3)))


# --- X-25 to X-33 ----------------------------------------------------------------------------


def _wide_rows(problem, run, population=None):
    table = certify(problem, run, only=list(WIDE), population=population, parts=True)
    return table.set_index(["id", "part"])["verdict"]


@pytest.fixture(scope="module")
def eight():
    return synthetic.spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2)


@pytest.mark.parametrize(
    ("setting", "local", "share"),
    [
        ((400, 3, 1.0, 0.0), True, 0.05),
        ((400, 3, 0.3, 0.0), False, 0.05),
    ],
)
def test_X31_certifies_descent_where_its_hypotheses_are_met(eight, setting, local, share):
    wide = simulate_wide(
        eight.problem, *setting, jax.random.key(0), stable_share=share, record_every=1,
        max_steps=2000, loss_target=1e-12,
    )  # fmt: skip
    rows = _wide_rows(eight.problem, wide.as_run())
    assert "violated" not in set(rows)
    expected = "holds" if local else "hypotheses not met"
    for part in ("(a) distance", "(b) loss", "(c) Σ η√ℒ", "(d) Θ_⊥"):
        assert rows["X-31", part] == expected
    # the global part asks for β = 0 and small steps, not for a lazy network
    zero = setting[3] == 0
    assert rows["X-31", "from β = 0"] == ("holds" if zero else "hypotheses not met")
    assert rows["X-26", "(i) small last layer"] == "hypotheses not met"  # a statement about flow


def test_X31_catches_a_descent_that_does_not_obey_it(eight):
    """The same run with a loss that stands still."""
    wide = simulate_wide(
        eight.problem, 1000, 3, 0.05, 3.0, jax.random.key(0), stable_share=0.2, record_every=1,
        max_steps=50,
    )  # fmt: skip
    run = wide.as_run()
    still = replace(
        run, trajectory=Trajectory.of([run.initial] * len(run.records["step"]), batched=False)
    )
    assert _wide_rows(eight.problem, still)["X-31", "(b) loss"] == "violated"


def test_X26_to_X28_hold_along_flows_and_where_their_starts_fit(cells, flows):
    for index in range(4):
        rows = _wide_rows(cells[index].problem, flows.as_run(index))
        start = flows.starts[index]
        assert "violated" not in set(rows)
        assert (rows["X-27", "from above"] == "holds") == (start.beta == 0)
        assert (rows["X-28", "from below"] == "holds") == (start.alpha == 0)
        if start.beta == 0:
            assert rows["X-26", "(i) small last layer"] == "holds"
        if start.alpha == 0:
            assert rows["X-26", "(ii) small first layer"] == "holds"


def test_X27_catches_a_network_that_was_not_trained_by_flow(cells, flows):
    run = flows.as_run(3)
    weights = [np.array(w) for w in run.trajectory.weights]
    weights[-1] = 2 * weights[-1]
    ends = [Network([w[k] for w in weights]) for k in range(len(weights[0]))]
    changed = replace(run, trajectory=Trajectory.of(ends, batched=False), network=ends[-1])
    rows = _wide_rows(cells[3].problem, changed)
    assert "violated" in set(rows["X-27"])


def test_X32_and_X33_hold_for_every_trained_network(cells, flows):
    for index in range(4):
        cell = cells[index]
        population = Population(cell.truth, cell.spectrum)
        rows = _wide_rows(cell.problem, flows.as_run(index), population)
        assert set(rows["X-32"]) == {"holds"}
        assert set(rows["X-33"]) == {"holds", "measured"}
        assert rows["X-33", "the best interpolator"] == "holds"

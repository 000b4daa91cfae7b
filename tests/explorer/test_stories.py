"""The story of every preset, from the numbers behind its pictures, before and after its moves."""

import numpy as np
import pytest

import deeplin as dl
from deeplin.explorer.build import inputs, presets

pytestmark = pytest.mark.browser
DEFAULT = {name: given["default"] for name, given in inputs().items()}
TRAINED = [name for name, preset in presets().items() if "tab" not in preset["state"]]


@pytest.fixture(scope="module")
def told(browser, page_file, visitor_of, data_of):
    """What `current()` says of each preset when it is loaded, and after each of its moves.

    With it go the data (X, Y) that the page has drawn.
    """
    visitor = visitor_of(browser, page_file.as_uri()).drawn()
    found = {}

    def look():
        shown = visitor.page.evaluate("deeplin.current()")
        return shown | {"data": data_of(shown["settings"])}

    for name in visitor.page.evaluate("deeplin.presets"):
        visitor.page.evaluate("(name) => deeplin.load(name)", name)
        found[name] = [look()]
        for step in presets()[name]["steps"]:
            if "move" in step:
                visitor.drawn(visitor.page.locator("#story-steps .now .do").click)
                found[name].append(look())
    yield found
    visitor.close()


def runs(shown, name):
    return [np.array(run[name], float) for run in shown["runs"]]


def threshold(shown):
    return 2 / shown["settings"]["learning_rate"]


def edges(shown):
    """Mean sharpness of the last third of the steps of each run, over 2/η."""
    late = [step >= 2 / 3 * step[-1] for step in runs(shown, "step")]
    means = [run[those].mean() for run, those in zip(runs(shown, "sharpness"), late, strict=True)]
    return np.array(means) / threshold(shown)


def statuses(shown):
    return {run["status"] for run in shown["runs"]}


def risk_falls_at_every_step(shown):
    return all(np.all(np.diff(run) <= 1e-12 * run[0]) for run in runs(shown, "risk"))


def sharpness_is_at_the_edge(shown):
    return "diverged" not in statuses(shown) and bool(np.all(np.abs(edges(shown) - 1) < 0.05))


def final_sharpness(shown):
    return np.array([run[-1] for run in runs(shown, "sharpness")])


def problem_of(shown):
    X, Y = shown["data"]
    return dl.Problem.from_data(X, Y[:, 0])


def sharpness_ends_balanced(shown):
    balanced = float(dl.theory.balanced_sharpness(problem_of(shown), shown["settings"]["depth"]))
    return bool(np.all(np.abs(final_sharpness(shown) / balanced - 1) < 0.01))


def period(values):
    """The least period of the last iterates, to rounding; None above 16."""
    values = np.array(values)
    for k in range(1, 17):
        if np.allclose(values[k:], values[:-k], rtol=0, atol=1e-6 * np.abs(values).max()):
            return k
    return None


def risk_peaks_at_the_number_of_samples(shown):
    dimension = np.array(shown["runs"][0]["dimension"])
    risk = np.mean(runs(shown, "excess_risk"), axis=0)
    before = risk[dimension < shown["settings"]["wide_samples"]].min()
    return (
        dimension[risk.argmax()] == shown["settings"]["wide_samples"]
        and risk.max() > 5 * before
        and risk[-1] < 1.2 * before < risk[0]
    )


@pytest.mark.parametrize(
    ("words", "names"), [("Catapult", ["catapult"]), ("Edge of stability", ["edge", "relu"])]
)
def test_verdict_names_what_only_its_stories_show(told, words, names):
    assert [other for other in TRAINED if words in told[other][0]["verdict"]] == names


def test_runs_that_swing_are_told_from_runs_that_are_not_trained_yet(told, visit):
    assert "5 of 5 runs did not converge in 2,000 steps (swinging)" in told["edge"][0]["verdict"]
    visitor = visit("#scale=0.02&depth=3&steps=50&learning_rate=0.1")
    assert "did not converge in 50 steps" in visitor.verdict("still falling: not trained yet")


def test_catapult_starts_above_the_threshold_and_is_gone_at_a_smaller_rate(told):
    before, after = told["catapult"]
    assert all(run[0] > threshold(before) for run in runs(before, "sharpness"))
    assert np.all(edges(before) < 1)
    assert all(run.max() > 1.3 * run[0] and run[-1] < run[0] / 2 for run in runs(before, "risk"))
    assert all(run[0] < threshold(after) for run in runs(after, "sharpness"))
    assert risk_falls_at_every_step(after)


def test_relu_networks_follow_twice_the_learning_rate_to_half_the_sharpness(told):
    before, after = told["relu"]
    assert sharpness_is_at_the_edge(before)
    assert after["settings"]["learning_rate"] == 2 * before["settings"]["learning_rate"]
    assert sharpness_is_at_the_edge(after)


def test_edge_follows_half_the_learning_rate_to_twice_the_sharpness(told):
    before, after = told["edge"]
    assert sharpness_is_at_the_edge(before)
    assert after["settings"]["learning_rate"] == before["settings"]["learning_rate"] / 2
    assert sharpness_is_at_the_edge(after)
    assert before["settings"]["learning_rate"] < before["critical"]


def test_progressive_sharpening_is_held_down_at_a_larger_rate(told):
    before, after = told["sharpening"]
    assert statuses(before) == {"converged"}
    for run in runs(before, "sharpness"):
        assert run[-1] > 2 * run[0]
        assert run.max() < threshold(before)
    assert np.all(edges(after) < 1.05)
    assert final_sharpness(before).max() > threshold(after)
    assert final_sharpness(after).max() < 0.95 * final_sharpness(before).max()


def test_critical_rate_divides_settling_swinging_and_diverging(told):
    below, above, far = told["critical"]
    critical = dl.theory.critical_learning_rate(problem_of(below), below["settings"]["depth"])
    assert below["critical"] == pytest.approx(critical, rel=1e-9)
    rates = [shown["settings"]["learning_rate"] / critical for shown in (below, above, far)]
    assert rates[0] < 1 < rates[1] < 1.2 < 2 < rates[2]
    assert statuses(below) == {"converged"}
    assert statuses(above) == {"stopped"}
    assert "diverged" in statuses(far)


def test_small_start_ends_balanced_at_any_rate_and_a_larger_one_does_not(told):
    first, slower, larger = told["small"]
    assert sharpness_ends_balanced(first)
    assert sharpness_ends_balanced(slower)
    assert slower["settings"]["learning_rate"] < first["settings"]["learning_rate"]
    ends = final_sharpness(larger)
    assert ends.min() > 1.05 * final_sharpness(first).max()
    assert ends.max() > 1.2 * ends.min()


def test_residual_network_ends_near_the_flattest_minimum_and_sharper_when_deeper(told):
    shallow, deep = told["residual"]
    assert risk_falls_at_every_step(shallow)
    assert all(run[-1] < 0.7 * run[0] for run in runs(shallow, "sharpness"))
    least = float(dl.theory.minimal_sharpness(problem_of(shallow), 10).exact)
    assert np.all(final_sharpness(shallow) < 2 * least)
    assert deep["settings"]["depth"] == 2 * shallow["settings"]["depth"]
    assert final_sharpness(deep).min() > final_sharpness(shallow).max()
    assert deep["critical"] < shallow["critical"]


def test_logistic_loss_has_its_edge_and_its_critical_rate(told):
    settled, edge, above = told["logistic"]
    assert statuses(settled) == {"converged"}
    assert all(run[-1] < np.log(2) for run in runs(settled, "risk"))  # the loss of the zero map
    assert sharpness_is_at_the_edge(edge)
    assert edge["settings"]["learning_rate"] < edge["critical"] < above["settings"]["learning_rate"]
    assert "converged" not in statuses(above)
    assert settled["critical"] == edge["critical"]


POPULATION = """async (state) => {
  const { X, Y, truth } = (await import("/wide.js")).populationData(state);
  return [X, Y, truth].map((values) => Array.from(values));
}"""


@pytest.fixture(scope="module")
def population_of(evaluate):
    """Samples and truth of a wide page as it draws them, and the spectrum of its settings."""

    def draw(settings):
        n, d, q = (settings[f"wide_{name}"] for name in ("samples", "dimension", "outputs"))
        X, Y, truth = map(np.array, evaluate(POPULATION, settings))
        spectrum = np.where(np.arange(d) < settings["spikes"], 1.0, settings["epsilon"])
        return X.reshape(n, d), Y.reshape(n, q), truth.reshape(q, d), spectrum

    return draw


def test_benign_overfitting_is_near_the_interpolant_and_far_better_than_zero(told, population_of):
    benign, harmful = (shown["runs"][0] for shown in told["benign"])
    X, Y, truth, spectrum = population_of(told["benign"][0]["settings"])
    interpolant = np.linalg.lstsq(X, Y, rcond=None)[0].T
    least = np.sum((interpolant - truth) ** 2 * spectrum)
    zero = np.sum(truth**2 * spectrum)
    assert benign["status"] == harmful["status"] == "converged"
    assert benign["minimum_norm_risk"] == pytest.approx(least, rel=1e-8)
    assert benign["zero_risk"] == pytest.approx(zero, rel=1e-12)
    assert benign["excess_risk"] < 1.1 * least < 0.2 * zero
    assert harmful["excess_risk"] > 10 * zero


def test_counterexample_is_not_benign_and_ends_away_until_its_first_layer_is_zero(
    told, population_of
):
    away, there = told["counterexample"]
    assert away["runs"][0]["excess_risk"] > away["runs"][0]["zero_risk"]
    X, Y, _, _ = population_of(away["settings"])
    size = np.sum(np.linalg.lstsq(X, Y, rcond=None)[0] ** 2)
    assert away["runs"][0]["distance"][-1] > 0.1 * size
    assert there["runs"][0]["distance"][-1] < 1e-4 * size


@pytest.mark.parametrize("name", ["benign", "counterexample"])
def test_parts_of_the_risk_add_up(told, name):
    for shown in told[name]:
        run = shown["runs"][0]
        parts = sum(run[part] for part in ("bias", "noise", "xi", "cross"))
        assert parts == pytest.approx(run["excess_risk"], rel=1e-9)


def test_orbits_double_and_the_network_diverges_where_the_mode_does_not(told):
    assert [period(shown["runs"][0]["product"]) for shown in told["orbits"]] == [2, 4, None]
    statuses = [[run["status"] for run in shown["runs"]] for shown in told["orbits"]]
    assert statuses == [["bounded", "bounded"], ["bounded", "bounded"], ["bounded", "diverged"]]
    said = told["orbits"][0]["verdict"]
    assert "Critical rate 0.0309439; the orbit of period two doubles at 0.038513" in said
    band = said.split("at every rate from ")[1].split(" to ")
    start, end = (float(part.split()[0]) for part in band[:2])
    assert start == pytest.approx(0.0435, abs=5e-4)  # two steps of the grid
    assert end == pytest.approx(0.057, abs=1e-3)  # beyond, some rates diverge and some do not


def test_double_descent_peaks_at_the_number_of_samples_before_and_after_its_move(told):
    before, after = told["double_descent"]
    assert risk_peaks_at_the_number_of_samples(before)
    assert risk_peaks_at_the_number_of_samples(after)
    assert after["settings"]["wide_samples"] == 2 * before["settings"]["wide_samples"]


@pytest.mark.parametrize("name", presets())
def test_guide_has_noticed_every_step_and_none_before_its_move(told, name):
    steps = presets()[name]["steps"]
    moves = [i for i, step in enumerate(steps) if "move" in step]
    for shown, end in zip(told[name], [*moves, len(steps)], strict=True):
        done = [step["done"] for step in shown["guide"]["steps"]]
        assert done == [i < end for i in range(len(steps))]
    assert told[name][-1]["story"] == " ".join(step.get("see") or step["move"] for step in steps)


@pytest.mark.parametrize("name", TRAINED)
def test_settings_of_a_preset_are_shown_with_its_critical_rate(told, name):
    shown = told[name][0]
    assert shown["settings"] == DEFAULT | presets()[name]["state"] | {"story": name}
    if shown["settings"]["architecture"] == "relu":
        assert shown["critical"] is None
    elif shown["settings"]["loss"] == "squared":
        depth = shown["settings"]["depth"]
        exact = dl.theory.critical_learning_rate(problem_of(shown), depth)
        assert shown["critical"] == pytest.approx(exact, rel=1e-9)


def test_guide_stays_while_other_inputs_move_and_says_what_it_does_not_see(visit):
    visitor = visit("#story=catapult")  # the story without its settings
    visitor.drawn()
    assert "Not seen in this picture: the risk rose to 1 times its start" in visitor.text("story")
    visitor.drawn(lambda: visitor.type("noise", 0.5))
    assert visitor.page.locator("#story").is_visible()
    visitor.wait("location.hash.includes('story=catapult')")
    assert visitor.text("story-progress") == "0 of 3 steps done"
    visitor.press("Close the guide")
    visitor.wait("!location.hash.includes('story')")
    assert not visitor.page.locator("#story").is_visible()


def test_guide_names_papers_and_links_to_them(visit):
    visitor = visit().drawn()
    links = visitor.page.locator("#story a, footer a")
    for link in links.all():
        assert link.get_attribute("href").startswith("https://arxiv.org/abs/")
    text = visitor.text("story") + visitor.page.locator("footer").text_content()
    for name in ("Marion", "Chizat", "Chatterji", "Long", "Documentation: Sharpness"):
        assert name in text


def test_unknown_preset_gets_a_sentence(visit):
    visitor = visit("#depth=2&steps=20&seeds=1").drawn()
    said = visitor.page.evaluate(
        "(async () => { try { await deeplin.load('x'); } catch (e) { return e.message; } })()"
    )
    assert "There is no preset “x”; pass one of sharpening" in said

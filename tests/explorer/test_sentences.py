"""Sentences of the page are true: each is compared with what the runs behind it did."""

import re

import numpy as np
import pytest

from deeplin.explorer.build import presets

pytestmark = pytest.mark.browser
ROUNDING = 1e-9
"""A smaller relative change of the risk is rounding."""


@pytest.fixture(scope="module")
def visitor(browser, page_file, visitor_of):
    visitor = visitor_of(browser, page_file.as_uri()).drawn()
    yield visitor
    visitor.close()


def show(visitor, link):
    """Follow a link and return what the page shows."""
    visitor.drawn(lambda: visitor.page.evaluate("(link) => { location.hash = link; }", link))
    return visitor.page.evaluate("deeplin.current()")


def motion(run):
    """What the excess risk of a run does in the second half of its records."""
    late = np.array(run["gap"])[len(run["gap"]) // 2 :]
    if np.any(late[1:] > late[:-1] * (1 + ROUNDING)):
        return "swinging"
    return "still falling" if late[0] > late[-1] * (1 + ROUNDING) else "resting on a plateau"


def said_motions(verdict, rest):
    """How many runs the verdict says are swinging, still falling, resting."""
    inside = re.search(r"did not converge in [\d,]+ steps \((.+?)\)\.", verdict)
    words = inside.group(1).replace(": not trained yet", "") if inside else ""
    counts = {words: rest} if words and not words[0].isdigit() else {}
    for number, name in re.findall(r"(\d+) ([a-z ]+)", words):
        counts[name] = int(number)
    return counts


def random_trainings():
    """Settings from the slow to the diverging, from a plateau to the edge, the same every time."""
    rng = np.random.default_rng(20)
    for _ in range(12):
        depth, rate = rng.integers(1, 12), 10 ** rng.uniform(-2.5, -0.3)
        scale, steps = rng.uniform(0.02, 0.6), rng.integers(30, 600)
        yield f"depth={depth}&learning_rate={rate:.4g}&scale={scale:.3g}&steps={steps}&flow=no"


PLATEAU = "depth=20&scale=0.1&learning_rate=0.02&steps=300&flow=no"


@pytest.mark.parametrize("link", [PLATEAU, *random_trainings()])
def test_runs_swing_fall_or_rest_as_the_verdict_says(visitor, link):
    shown = show(visitor, link)
    rest = [run for run in shown["runs"] if run["status"] == "stopped"]
    if "diverged" in {run["status"] for run in shown["runs"]}:
        assert "diverged, the first at step" in shown["verdict"]
        return
    motions = [motion(run) for run in rest]
    assert said_motions(shown["verdict"], len(rest)) == {m: motions.count(m) for m in set(motions)}
    if link == PLATEAU:
        assert "(resting on a plateau)" in shown["verdict"]


@pytest.mark.parametrize("link", ["story=catapult", *random_trainings()])
def test_a_catapult_is_a_sharpness_that_comes_down_below_the_edge(visitor, link):
    state = presets()["catapult"]["state"] if "story" in link else {}
    link = "&".join([link, *(f"{name}={value}" for name, value in state.items())])
    shown = show(visitor, link)
    thrown = 0
    for run in shown["runs"]:
        edge = 2 / shown["settings"]["learning_rate"]
        sharpness, gap = np.array(run["sharpness"]), np.array(run["gap"])
        step = np.array(run["step"])
        late = sharpness[step >= 2 / 3 * step[-1]].mean()
        rose = gap.max() > 1.1 * gap[0] and gap[-1] < gap[0] / 2
        thrown += run["status"] != "diverged" and rose and sharpness[0] > edge > late
    assert ("Catapult" in shown["verdict"]) == (2 * thrown > len(shown["runs"]))
    if "story" in link:
        assert thrown == 5


ORBITS = {
    "the mode has period 2": "tab=orbits&orbit_rate=0.034",
    "the mode settles": "tab=orbits&orbit_rate=0.03",
    "the mode dies at zero": "tab=orbits&orbit_depth=3&orbit_rate=0.0669",
    "the mode alone diverges": "tab=orbits&orbit_rate=0.9",
}


def what_the_mode_does(run, target=10.0):
    values = np.array(run["product"])
    if not len(values):
        return "the mode alone diverges"
    if np.all(np.abs(values) < 1e-6 * target):
        return "the mode dies at zero"
    for k in range(1, 17):
        if np.allclose(values[k:], values[:-k], rtol=0, atol=1e-6 * np.abs(values).max()):
            return "the mode settles" if k == 1 else f"the mode has period {k}"
    return "the mode has no period up to 16"


def random_orbits():
    rng = np.random.default_rng(21)
    for _ in range(8):
        depth, rate = rng.integers(2, 7), 10 ** rng.uniform(-2.2, 0)
        yield f"tab=orbits&orbit_depth={depth}&orbit_rate={rate:.4g}"


@pytest.mark.parametrize("link", [*ORBITS.values(), *random_orbits()])
def test_orbits_do_what_the_verdict_says(visitor, link):
    shown = show(visitor, link)
    mode, network = shown["runs"]
    assert what_the_mode_does(mode) in shown["verdict"]
    lost = [row["learning_rate"] for row in network["grid"] if row["status"] == "diverged"]
    assert ("the network does not diverge" in shown["verdict"]) == (not lost)
    if lost:
        count = f"diverges at {len(lost)} of {len(network['grid'])} rates"
        assert count in shown["verdict"]
    expected = {there: words for words, there in ORBITS.items()}
    if link in expected:
        assert expected[link] in shown["verdict"]


def random_wide():
    rng = np.random.default_rng(22)
    for _ in range(6):
        alpha = 0 if rng.random() < 0.3 else 10 ** rng.uniform(-6, 0)
        rate, steps = 10 ** rng.uniform(-1.5, 0), rng.integers(100, 3000)
        beta = 0 if alpha and rng.random() < 0.5 else 1
        yield f"tab=wide&alpha={alpha:.3g}&beta={beta}&wide_rate={rate:.3g}&wide_steps={steps}"


@pytest.mark.parametrize("link", ["tab=wide&alpha=0&wide_steps=100", *random_wide()])
def test_wide_networks_end_at_the_interpolant_unless_the_start_adds_something(visitor, link):
    shown = show(visitor, link)
    run = shown["runs"][0]
    if run["status"] == "diverged":
        assert "Diverged" in shown["verdict"]
        return
    done = run["status"] == "converged"
    if "alpha=0&" in link:
        assert run["perpendicular"][-1] == 0
        verb = "ends" if done else "would end"
        assert f"{verb} at the minimum-norm interpolant (‖Θ_⊥‖ = 0)" in shown["verdict"]
        return
    share = float(
        re.search(r"‖Θ_⊥‖² is ([^ ]+) of", shown["verdict"])
        .group(1)
        .translate(POWERS)
        .replace("·10", "e")
    )
    assert share == pytest.approx(run["perpendicular"][-1] / run["minimum_norm"] ** 2, rel=0.01)
    if not done:  # Θ_⊥ still changes: nothing is said about the end
        assert "so far ‖Θ_⊥‖²" in shown["verdict"]
        return
    inside = run["distance"][-1] - run["perpendicular"][-1]
    assert inside < 0.05 * run["perpendicular"][-1] + 1e-3  # Θ − Θ_min is Θ_⊥, once all is fitted
    where = "at" if share < 1e-4 else "away from"
    assert f"ends {where} the minimum-norm interpolant" in shown["verdict"]


POWERS = str.maketrans({"⁻": "-"} | {mark: str(i) for i, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})


def test_dead_networks_are_named_and_are_no_good_news(visitor):
    shown = show(visitor, "architecture=relu&depth=12&width=2&scale=0.5&steps=50&seeds=5&flow=no")
    dead = [run for run in shown["runs"] if run["sharpness"][-1] == 0]
    assert dead
    number = "All 5" if len(dead) == 5 else f"{len(dead)} of 5"
    words = f"{number} networks {'is' if len(dead) == 1 else 'are'} dead"
    assert words in shown["verdict"]
    assert visitor.page.locator("#verdict").get_attribute("class") == "warn"
    alive = show(visitor, "architecture=relu&depth=2&width=10&scale=0.4&steps=500&flow=no")
    assert "dead" not in alive["verdict"]
    falls = [run["risk"][-1] / run["risk"][0] for run in alive["runs"]]
    said = re.search(r"the risk ended at ([\d.]+)–([\d.]+) times its start", alive["verdict"])
    assert [float(said[1]), float(said[2])] == pytest.approx([min(falls), max(falls)], rel=0.01)
    assert visitor.page.locator("#verdict").get_attribute("class") == "good"


def test_a_story_stays_on_its_tab_and_goes_on_there(visitor):
    visitor.page.evaluate("deeplin.load('sharpening')")
    visitor.verdict("Measured", "story")
    visitor.drawn(visitor.page.get_by_role("tab", name="Orbits").click)
    assert not visitor.page.locator("#story").is_visible()
    assert visitor.page.evaluate("deeplin.current()")["guide"] is None
    visitor.drawn(visitor.page.get_by_role("tab", name="Training").click)
    assert visitor.page.locator("#story").is_visible()
    assert visitor.text("story-progress") == "1 of 3 steps done"


def test_what_was_measured_goes_when_settings_change_and_stays_when_axes_do(visitor):
    visitor.page.evaluate("deeplin.load('sharpening')")
    visitor.verdict("Measured", "story")
    scale = visitor.page.locator("#input-vertical_scale")
    visitor.drawn(lambda: scale.select_option("linear"))
    assert "Measured" in visitor.text("story")
    visitor.drawn(lambda: visitor.type("noise", 0.5))
    assert "Measured" not in visitor.text("story")


def test_values_beside_the_run_are_those_of_the_library_and_of_the_weights(visitor, data_of):
    import deeplin as dl

    shown = show(visitor, "depth=3&scale=0.3&learning_rate=0.05&steps=200&seeds=1")
    X, Y = data_of(shown["settings"])
    problem = dl.Problem.from_data(X, Y[:, 0])
    rows = visitor.page.locator("#values tr")
    found = {row[0]: row[1] for row in (r.split("\t") for r in rows.all_inner_texts())}
    value = {name.split(":")[0]: text for name, text in found.items()}
    least = float(dl.theory.minimal_sharpness(problem, 3).exact)
    assert float(value["2/η"]) == pytest.approx(40)
    assert float(value["S_min"]) == pytest.approx(least, rel=1e-5)
    balanced = float(dl.theory.balanced_sharpness(problem, 3))
    assert float(value["S_bal"]) == pytest.approx(balanced, rel=1e-5)
    assert float(value["critical learning rate"]) == pytest.approx(2 / least, rel=1e-5)
    layers = visitor.page.evaluate(
        "deeplin.shown().result.layers.weights.map((w) => Array.from(w))"
    )

    def imbalances(weights):
        W1, W2, W3 = np.split(np.array(weights), [25, 50])
        W1, W2, W3 = W1.reshape(5, 5), W2.reshape(5, 5), W3.reshape(1, 5)
        return [W2.T @ W2 - W1 @ W1.T, W3.T @ W3 - W2 @ W2.T]

    first, last = imbalances(layers[0]), imbalances(layers[-1])
    start = max(np.linalg.norm(D) for D in first)
    change = max(np.linalg.norm(b - a) for a, b in zip(first, last, strict=True))
    texts = list(found.values())
    assert float(texts[-2]) == pytest.approx(start, rel=1e-3)
    assert float(texts[-1]) == pytest.approx(change, rel=1e-3)


def test_home_and_end_choose_the_first_and_the_last_tab(visitor):
    tabs = visitor.page.locator("#tabs button")
    tabs.first.click()
    visitor.drawn(lambda: visitor.page.keyboard.press("End"))
    assert tabs.last.get_attribute("aria-selected") == "true"
    visitor.drawn(lambda: visitor.page.keyboard.press("Home"))
    assert tabs.first.get_attribute("aria-selected") == "true"


def test_printed_page_has_the_settings_and_no_controls(visitor):
    show(visitor, "depth=3&steps=50")
    visitor.page.emulate_media(media="print")
    assert visitor.page.locator("#printed-settings").is_visible()
    assert "Depth L: 3" in visitor.text("printed-settings")
    for name in ("presets", "actions", "player", "inputs"):
        assert not visitor.page.locator(f"#{name}").is_visible()
    visitor.page.emulate_media(media="screen")

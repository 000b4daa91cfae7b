"""FM-residual: its claims can fail, its numbers agree with other routes to them."""

import numpy as np
import pandas as pd
import pytest
from grids import grid
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

from deeplin.networks import Network
from deeplin.papers import fm_residual
from deeplin.papers.catalogue import PANELS
from deeplin.papers.setting import Setting
from deeplin.sweep import coordinate_words
from deeplin.theory.residual_initialization import prefix_singular_values, product_bounds

PRODUCTS = fm_residual.Products((0.1,), (10,), draws=100)
THETA = fm_residual.Displacements((100, 1000), (1, 2, 3), 2)


@pytest.fixture
def products():
    needed = np.linspace(-0.6, -0.4, PRODUCTS.draws)
    return pd.DataFrame({"scale": 0.1, "depth": 10, "needed": needed, "status": "converged"})


@pytest.mark.parametrize(
    ("fragment", "needed"), [("stated probability", 2.0), ("close to reality", -3.0)]
)
def test_answers_about_residual_products_follow_the_data(fragment, needed, check_changed, products):
    bad = products.assign(needed=needed)
    check_changed("FM-residual-products", PRODUCTS, products, bad)


def test_the_least_u_is_where_the_bounds_of_the_lemma_begin_to_hold():
    config = fm_residual.Products((0.5,), (7,), draws=3)
    needed = fm_residual.run_products(config, 0.5, 7)["needed"].to_numpy()
    words = coordinate_words(0, scale=0.5, depth=7, part="products")
    weights = list(fm_residual.layers(words, 0.5, 7, 5, 3))
    values = prefix_singular_values(weights)  # by another route: all products at once
    for u, expected in ((needed + 1e-9, True), (needed - 1e-9, False)):
        bounds = product_bounds(0.5, 5, u[:, None])
        held = (values[..., 0] <= bounds.largest) & (values[..., 1] >= bounds.smallest)
        assert (held.all(axis=-1) == expected).all()


@pytest.fixture
def theta():
    table = grid(depth=THETA.depths, data_seed=THETA.data_seeds, repetition=range(2))
    good = {"gap": 1e-60, "rate": 1.0, "sharpness": 1.5, "condition": 4.0}
    return table.assign(status="converged", moved=2.0, **good)


@pytest.mark.parametrize(
    ("fragment", "changes"),
    [
        ("converges to a minimiser", {"status": "stopped"}),
        ("bounded for all L", {"moved": lambda t: np.sqrt(t["depth"])}),
        ("FM-T4 covers", {"gap": 1.0}),
        ("decays at least", {"rate": 1e-12}),
        ("flat minima", {"sharpness": 0.9}),
        ("flat minima", {"sharpness": 1e30}),
    ],
)
def test_answers_about_residual_training_follow_the_data(fragment, changes, check_changed, theta):
    bad = theta.assign(**changes)
    check_changed("FM-residual-theta", THETA, theta, bad)


def test_displacements_are_those_of_the_flow():
    config = fm_residual.Displacements((3,), (1,), 1, steps=3000)
    row = fm_residual.run_displacement(config, 3, 1).iloc[0]
    setting = Setting(initialization="residual", depth=3, data_seed=1)
    words = coordinate_words(0, data_seed=1, depth=3, part="residual")
    weights = [w[0] for w in fm_residual.layers(words, 0.25, 3, 5, 1)]
    start = Network(weights, readout=setting.readout(0))
    end = flow_by_scipy(setting.data.problem, start, until=10.0)
    moved = 3 * max(np.linalg.norm(a - b) for a, b in zip(end, weights, strict=True))
    # descent differs from the flow by a few times ηS, with ηS near 0.02 here
    assert row["moved"] == pytest.approx(moved, rel=0.03)


def flow_by_scipy(problem, start, until):
    """The plain gradient ∇_kR = (W_{k+1}ᵀ…p)(W_{k−1}…W_1g)ᵀ, integrated by SciPy."""
    shapes = [np.asarray(w).shape for w in start.weights]
    covariance, optimum = np.asarray(problem.covariance), np.asarray(problem.optimum)

    def velocity(_, flat):
        W = list(flat.reshape(len(shapes), *shapes[0]))
        back = [np.asarray(start.readout)]
        for weight in W[::-1]:
            back.append(weight.T @ back[-1])
        forward = 2 * covariance @ (back[-1] - optimum)
        rates = []
        for weight, behind in zip(W, back[-2::-1], strict=True):
            rates.append(-np.outer(behind, forward))
            forward = weight @ forward
        return np.ravel(rates)

    flat = np.ravel([np.asarray(w) for w in start.weights])
    found = solve_ivp(velocity, (0, until), flat, rtol=1e-8, atol=1e-10)
    return found.y[:, -1].reshape(len(shapes), *shapes[0])


@pytest.mark.parametrize("name", ["displacement", "products"])
def test_the_pictures_have_their_legends_off_the_data(name, products):
    moved = pd.DataFrame({"depth": [10, 10, 100, 100], "moved": [1.0, 2.0, 2.0, 3.0]})
    figure = Figure()
    ax = figure.add_subplot()
    if name == "displacement":
        PANELS["FM-residual-theta"].plot(THETA, moved, ax)
    else:
        PANELS["FM-residual-products"].plot(PRODUCTS, products, ax)
    figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert not legend.overlaps(ax.get_window_extent())


def test_subproducts_agree_with_products_taken_one_by_one_and_obey_equation_9():
    config = fm_residual.Products((0.7,), (6,), draws=4)
    found = fm_residual.run_subproducts(config, 0.7, 6)
    words = coordinate_words(0, scale=0.7, depth=6, part="subproducts")
    for draw, weights in enumerate(zip(*fm_residual.layers(words, 0.7, 6, 5, 4), strict=True)):
        norms, singular = {}, {}
        for j in range(6):
            for k in range(j, 6):
                product = np.linalg.multi_dot([*weights[j : k + 1][::-1], np.eye(5)])
                values = np.linalg.svd(product, compute_uv=False)
                norms[j, k], singular[j, k] = values[0], values[-1]
        first = max(1.0, *(norms[0, k] for k in range(6)))
        least = min(1.0, *(singular[0, k] for k in range(6)))
        assert found["any"][draw] == pytest.approx(max(norms.values()), rel=1e-12)
        assert found["first"][draw] == pytest.approx(first, rel=1e-12)
        assert found["least"][draw] == pytest.approx(least, rel=1e-12)
        assert max(norms.values()) <= first / least


@pytest.mark.parametrize("changes", [{"any": 9.0}, {"first": lambda t: t["depth"]}])
def test_answers_about_subproducts_follow_the_data(changes, check_changed):
    config = fm_residual.Products((0.25,), (5, 10), draws=4)
    good = grid(scale=(0.25,), depth=(5, 10), repetition=range(4))
    good = good.assign(first=2.0, least=0.5, any=2.5)
    check_changed("FM-residual-subproducts", config, good, good.assign(**changes))

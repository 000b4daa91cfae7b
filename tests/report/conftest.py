"""A small report made by the real machinery from a toy experiment."""

import pytest
from toy_figures import figure, study

from deeplin.papers.catalogue import Claim, reproduce
from deeplin.papers.report import write_figure, write_page


@pytest.fixture(scope="session")
def toy_figures():
    """One figure whose claims hold, one with a claim that fails."""
    shared = study()
    good = figure("TOY-1", shared, [Claim("It holds", 1.0, upper=2.0, name="good")])
    bad = figure(
        "TOY-2",
        shared,
        [
            Claim("It holds too", 1e-12, upper=1e-6, name="good", reason="As printed."),
            Claim(
                "It fails",
                3.0,
                upper=2.0,
                name="bad",
                explanation="Wider than it should be.",
                known="E-9",
            ),
        ],
    )
    return good, bad


@pytest.fixture(scope="session")
def toy_results(toy_figures, tmp_path_factory):
    return list(reproduce(toy_figures, tmp_path_factory.mktemp("results")))


@pytest.fixture
def broken_result(tmp_path):
    broken = figure("TOY-1", study(broken=True), [])
    return next(reproduce([broken], tmp_path / "results"))


@pytest.fixture(scope="session")
def report(toy_results, tmp_path_factory):
    """The folder of the report; for reading only."""
    folder = tmp_path_factory.mktemp("report")
    for result in toy_results:
        write_figure(result, folder)
    write_page(folder, ["TOY-1", "TOY-2"])
    return folder

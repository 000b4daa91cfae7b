"""A small report made by the real machinery from a toy experiment."""

import pytest
from toy_figures import LEFT_OUT, figure, study

from deeplin.papers.figures import Question, reproduce
from deeplin.papers.report import write_figure, write_page
from deeplin.papers.verdicts import Quote, exactly


def toy_quote(name, panel, toy, value, upper, why=""):
    text = f"The {name} squares are small."
    return Quote(
        name, "FM", "Figure 0", text, "Ours: at most two.", panel, (toy,),
        lambda config, table: [exactly("largest", value, upper=upper)], why,
    )  # fmt: skip


@pytest.fixture(scope="session")
def toy_figures():
    """Two figures on one study, the first with a question."""
    shared = study()
    asked = [Question("size", "How large is it?", "Two, ± 0.1.")]
    return figure("TOY-1", shared, asked), figure("TOY-2", shared)


@pytest.fixture(scope="session")
def toy_quotes(toy_figures):
    """Of the first figure one that is reproduced, of the second one and one that differs."""
    toy = toy_figures[0].studies[0]
    return (
        toy_quote("first", "TOY-1a", toy, 1.0, 2.0),
        toy_quote("second", "TOY-2a", toy, 1e-12, 1e-6),
        toy_quote("third", "TOY-2a", toy, 3.0, 2.0, why="Wider than it should be (E-9)."),
    )


@pytest.fixture(scope="session")
def toy_results(toy_figures, toy_quotes, tmp_path_factory):
    return list(reproduce(toy_figures, tmp_path_factory.mktemp("results"), quotes=toy_quotes))


@pytest.fixture
def broken_result(tmp_path):
    broken = figure("TOY-1", study(broken=True))
    return next(reproduce([broken], tmp_path / "results"))


@pytest.fixture(scope="session")
def report(toy_results, tmp_path_factory):
    """The folder of the report; for reading only."""
    folder = tmp_path_factory.mktemp("report")
    for result in toy_results:
        write_figure(result, folder)
    write_page(folder, ["TOY-1", "TOY-2"], LEFT_OUT)
    return folder

"""The figures as a whole: names, presets, protocols."""

import numpy as np
import pytest

from deeplin.errors import InputError
from deeplin.papers import fm_1, fm_2, fm_4, fm_6, fm_7
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.figures import PRESETS, select
from deeplin.sweep.keys import canonical

STUDIES = {study.name: study for figure in FIGURES for study in figure.studies}


def test_names_are_unique_so_that_files_and_selections_are():
    panels = [panel.name for figure in FIGURES for panel in figure.panels]
    assert len(panels) == len(set(panels))
    assert len(STUDIES) == len({id(study) for study in STUDIES.values()})


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_config_is_plain_and_its_units_differ(name, preset):
    study = STUDIES[name]
    config = study.presets[preset]
    assert canonical(config)
    units = [canonical(unit.coordinates) for unit in study.experiment.units(config)]
    assert len(set(units)) == len(units) > 0


def protocol(study):
    config = study.presets["paper"]
    rates = [(rate.learning_rate, rate.steps, rate.repetitions) for rate in config.rates]
    return len(config.scales), min(config.scales), max(config.scales), rates


def test_the_paper_presets_are_the_printed_protocols():
    assert protocol(fm_1.SWEEP) == (
        10,
        0.25,
        0.6,
        [
            (0.005, 40_000, 20),
            (0.02, 10_000, 20),
            (0.07, 4_000, 20),
            (0.1, 4_000, 20),
            (0.2, 2_000, 80),
        ],
    )
    five = [(rate, 4_000, 20) for rate in (0.005, 0.02, 0.07, 0.1, 0.2)]
    assert protocol(fm_4.SWEEP) == (10, 0.0, 1.7, five)
    under = [(0.001, 40_000, 100), (0.004, 10_000, 20), (0.01, 4_000, 20)]
    assert protocol(fm_6.SWEEP) == (9, 0.1, 0.36, under)
    gelu = [(0.005, 160_000, 20), (0.02, 40_000, 20), (0.07, 16_000, 20)]
    assert protocol(fm_7.SWEEP) == protocol(fm_7.NOISY) == (8, 0.428, 0.7, gelu)
    depths = fm_2.SWEEP.presets["paper"]
    assert (depths.depths, depths.steps, depths.repetitions) == ((5, 10, 20, 40), 1_000, 50)
    assert len(depths.learning_rates) == 25
    np.testing.assert_allclose(np.log10(depths.learning_rates)[[0, -1]], [-2, -0.3])


def test_figures_are_selected_by_name_or_panel_in_the_order_of_the_report():
    assert [f.name for f in select(FIGURES, ["fm-2", "FM-1c", "FM-1"])] == ["FM-1", "FM-2"]
    assert select(FIGURES, None) == list(FIGURES)
    with pytest.raises(InputError, match=r"no figure FM-9.*there are FM-1"):
        select(FIGURES, ["FM-9"])

"""A diagnosis as a picture and as one self-contained page.

It is separate from the text, which does not need the plotting libraries.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from deeplin.report.text import SYMBOLS, facts, tables

if TYPE_CHECKING:
    from deeplin.training.diagnosis import Diagnosis

STYLE = {"axes.grid": True, "grid.alpha": 0.3, "svg.fonttype": "none", "lines.markersize": 4}
TICKS = (1, 2, 3, 5, 10, 20, 40, 100)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } svg { max-width: 100%; height: auto; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #8884; }
</style></head><body>
<h1>{{ title }}</h1>
{% for heading, sentences in texts %}<h2>{{ heading }}</h2>
<ul>{% for sentence in sentences %}<li>{{ sentence }}</li>{% endfor %}</ul>
{% endfor %}
<div class="wide">{{ picture | safe }}</div>
{% for heading, table in tables %}<h2>{{ heading }}</h2>
<div class="wide">{{ table | safe }}</div>
{% endfor %}
</body></html>
"""


def draw_diagnosis(diagnosis: Diagnosis) -> Figure:
    """Draw two panels: the spectrum of Σ̂, and the critical learning rate against depth.

    The second panel also has the rate to use, and the bracket of FM-T2 where it applies.
    """
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        left, ax = figure.subplots(1, 2)
        values = diagnosis.eigenvalues
        left.semilogy(range(1, len(values) + 1), values, marker="o", color="C0")
        left.set(title="Spectrum of Σ̂", xlabel="index", ylabel="eigenvalue")
        table = diagnosis.depths.sort_values("depth")
        depth, lower, upper = (table[name] for name in ("depth", "lower", "upper"))
        critical, suggested = table["critical_learning_rate"], table["suggested_learning_rate"]
        ax.plot(depth, critical, marker="o", color="C0", label="critical rate")
        ax.plot(depth, suggested, marker="s", color="C1", label="from a small start")
        if len(diagnosis.targets) == 1 and diagnosis.optimizer == type(diagnosis.optimizer)():
            ax.fill_between(depth, 2 / upper, 2 / lower, alpha=0.2, color="C0", lw=0, label="FM-T2")
        ax.set(xscale="log", yscale="log", xlabel="depth", ylabel="learning rate")
        ax.set_title("Above the critical rate almost no start settles")
        ticks = [d for d in depth if len(depth) <= 8 or d in TICKS]
        ax.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.legend()
    return figure


def as_page(diagnosis: Diagnosis, title: str) -> str:
    """Return one HTML page without external resources."""
    picture = io.StringIO()
    # the same diagnosis gives the same page
    with mpl.rc_context({**STYLE, "svg.hashsalt": title}):  # pyright: ignore[reportArgumentType]
        draw_diagnosis(diagnosis).savefig(picture, format="svg", metadata={"Date": None})
    drawn = picture.getvalue()
    texts = {
        "Answer": diagnosis.summary,
        "About the data": diagnosis.notes,
        "Details": [*facts(diagnosis), *SYMBOLS],
    }
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(PAGE).render(
        title=title,
        texts=[(heading, sentences) for heading, sentences in texts.items() if sentences],
        picture=drawn[drawn.index("<svg") :],
        # pandas escapes the names in its tables
        tables=[(name, table.to_html(index=False, border=0)) for name, table in tables(diagnosis)],
    )

"""Keep finished reproductions in the documentation: `python docs/reproduction.py REPORT...`.

Reads the outcomes that `deeplin reproduce` left in its report folders and writes pictures, the
tables behind them, a table of all quotes and a page to docs/reproduction/. Of a figure that several
folders hold the full protocol is taken. Verdicts and answers are recorded by `docs/record.py`.
"""

import csv
import shutil
import sys
from pathlib import Path

import pandas as pd

from deeplin.papers import verdicts
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.report import duration, measured, read_outcomes
from deeplin.papers.sentences import LEFT_OUT

KEPT = Path(__file__).parent / "reproduction"
PRESETS = {"paper": "full protocol", "quick": "quick preset, few runs"}
LONGEST = 10_000
"""Of a table with more rows only the first repetition is kept, or these rows."""
COLUMNS = (
    *("name", "paper", "place", "panel", "text", "reading", "verdict", "value", "preset", "why"),
)


def main(*reports: Path) -> None:
    shutil.rmtree(KEPT, ignore_errors=True)
    (KEPT / "data").mkdir(parents=True)
    chosen = {}
    for report in reports:
        for outcome in read_outcomes(report, [figure.name for figure in FIGURES]):
            if chosen.get(outcome["name"], (None, outcome))[1]["preset"] == "quick" or (
                outcome["preset"] == "paper"
            ):
                chosen[outcome["name"]] = report, outcome
    chosen = [chosen[figure.name] for figure in FIGURES if figure.name in chosen]
    outcomes = [outcome for _, outcome in chosen]
    write_quotes([q | {"preset": o["preset"]} for o in outcomes for q in o["quotes"]])
    for report, outcome in chosen:
        for panel in outcome["panels"]:
            shutil.copy(report / panel["files"]["png"], KEPT / f"{panel['name']}.png")
        for data in outcome["data"]:
            table = pd.read_parquet(report / data["parquet"])
            if len(table) > LONGEST and "repetition" in table:
                table = table[table["repetition"] == 0]
            table = table.head(LONGEST)
            table.to_csv(KEPT / "data" / f"{data['study']}.csv", index=False, float_format="%.5g")
    (KEPT / "index.md").write_text("\n".join(page(outcomes)) + "\n", encoding="utf-8")


def write_quotes(quotes):
    """Write the table of all quotes."""
    with (KEPT / "quotes.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(quotes)


def sentences(quotes):
    """The lines about quotes by verdict."""
    for verdict, title in (
        ("differs", "What differs, and why"),
        ("undecided", "What is undecided"),
    ):
        chosen = [quote for quote in quotes if quote["verdict"] == verdict]
        if chosen:
            yield ""
            yield f"## {title}"
        for quote in chosen:
            yield ""
            yield f"> “{quote['text']}” ({quote['paper']}, {quote['place']})"
            yield ""
            parts = f"{quote['panel']}.", measured(quote), quote["why"], f"*{quote['reading']}*"
            yield " ".join(filter(None, parts))
    yield ""
    yield "## What reproduces"
    yield ""
    yield "| quote | place | measured |"
    yield "|---|---|---|"
    for quote in quotes:
        if quote["verdict"] == "reproduced":
            cells = (f"“{quote['text']}”", f"{quote['paper']}, {quote['place']}", quote["value"])
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page(outcomes):
    """The lines of the page."""
    machine = outcomes[-1]["environment"]["machine"]
    quotes = [quote for outcome in outcomes for quote in outcome["quotes"]]
    yield "# Reproduction"
    yield ""
    found = verdicts.collect(outcomes)
    yield "<!-- verdicts -->"
    for line in verdicts.summary(found):
        yield f"- {line}"
    yield ""
    yield f"*{verdicts.provenance(found['figures'])}*"
    yield "<!-- end of verdicts -->"
    yield ""
    yield (
        f"Computed on {machine['cores']} cores ({machine['processor']}, "
        f"{machine['system'].split()[0]}), Python {machine['python']}, no accelerator. The FM "
        "figures run on the authors' own data, starts and read-outs, drawn again from their keys. "
        "All quotes with our readings and what was measured: [quotes.csv](quotes.csv). The tables "
        "behind the figures are kept with five digits (of long ones the first repetition or "
        "10 000 rows); the report has them all."
    )
    yield "<!-- quotes -->"
    yield from sentences(quotes)
    yield "<!-- end of quotes -->"
    yield ""
    yield "## Our own questions"
    for outcome in outcomes:
        for panel in outcome["panels"]:
            for question in panel["questions"]:
                yield ""
                yield f"**{question['text']}** {question['answer']} ({panel['name']})"
    yield ""
    yield "## Figures"
    for outcome in outcomes:
        yield ""
        yield f"### {outcome['name']}: {outcome['title']} {{ #{outcome['name'].lower()} }}"
        yield ""
        yield f"*Printed.* {outcome['printed']}"
        yield ""
        yield f"*As run.* {outcome['as_run']}"
        yield ""
        links = (f"[{data['study']}](data/{data['study']}.csv)" for data in outcome["data"])
        yield (
            f"*Data.* {', '.join(links)}; again with `{outcome['command']}` "
            f"({PRESETS[outcome['preset']]}, {duration(outcome['seconds'])})."
        )
        for panel in outcome["panels"]:
            yield ""
            yield f"![{panel['name']}]({panel['name']}.png)"
            yield ""
            yield f"**{panel['name']}.** {panel['caption']}"
    yield ""
    yield "## Sentences that are not judged"
    for entry in LEFT_OUT:
        yield ""
        yield f"- “{entry.text}” ({entry.paper}, {entry.place}). {entry.reason}"
    yield ""
    yield "E-1 to E-34 are the [errata and notes](../errata.md)."


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

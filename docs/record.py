"""Record finished reproductions: `python docs/record.py REPORT...`, or `--kept`.

Writes verdicts, answers and times to src/deeplin/papers/recorded.json, with which `deeplin
reproduce` compares, and the summary into the README and docs/reproduction/index.md. Figures may
come from several folders and presets: each preset is recorded by itself, and what is printed about
a figure is that of its full protocol where there is one. Look at every change that is printed.

With `--kept` no figure is computed: the quotes whose full protocol is kept run by run in
docs/reproduction/data are judged again by the present readings.
"""

import sys
from pathlib import Path

import pandas as pd

from deeplin.files import environment
from deeplin.papers import verdicts
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.report import read_outcomes
from deeplin.papers.sentences import QUOTES

ROOT = Path(__file__).parents[1]
PATH = ROOT / "src" / "deeplin" / "papers" / verdicts.SOURCE
PAGES = (ROOT / "README.md", ROOT / "docs" / "reproduction" / "index.md")
KEPT = ROOT / "docs" / "reproduction" / "data"
SHORTENED = ("fm-1-training", "fm-4-training")
"""Studies of which only the first repetition is kept."""
START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def main(*arguments: str) -> None:
    names = [figure.name for figure in FIGURES]
    if arguments == ("--kept",):
        record_quotes(judge_kept())
    else:
        outcomes = [one for report in arguments for one in read_outcomes(Path(report), names)]
        record(outcomes)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        head, rest = text.split(START, 1)
        page.write_text(head + START + block() + END + rest.split(END, 1)[1], encoding="utf-8")


def record(outcomes) -> None:
    """Record the outcomes of each preset."""
    for preset in ("paper", "quick"):
        found = verdicts.collect(o for o in outcomes if o["preset"] == preset and o["seed"] == 0)
        for kind, key in (("quotes", "verdict"), ("questions", None)):
            known = verdicts.read(preset, kind)
            for name, entry in found[kind].items():
                say_change(f"{preset}: {name}", known.get(name, entry), entry, key)
        if found["figures"]:
            write(preset, found)


def judge_kept():
    """What the present readings say about the runs that are kept."""
    import reproduction  # found beside this script when it runs

    found = []
    for quote in QUOTES:
        names = [study.name for study in quote.studies]
        if not set(names) & set(SHORTENED):
            tables = [pd.read_csv(KEPT / f"{name}.csv") for name in names]
            found.append(quote.judge(quote.studies[0].paper, *tables))
        else:  # by a reading that has not changed
            parts = {key: getattr(quote, key) for key in reproduction.COLUMNS if key != "preset"}
            found.append(parts | {"of_runs": quote.runs("paper"), "decides": "", "full": {}})
    return found


def record_quotes(judged) -> None:
    """Record verdicts of the full protocol and of the panels, and write the page's lists."""
    import reproduction

    commit = (environment()["commit"] or "")[:12]
    known = verdicts.read("paper", "quotes")
    found = {}
    for quote in judged:
        entry = {key: quote[key] for key in ("verdict", "value")}
        before = known.get(quote["name"], {})
        say_change(quote["name"], before or entry, entry, "verdict")
        same = entry.items() <= before.items()
        found[quote["name"]] = before if same else entry | {"commit": commit}
    panels = verdicts.read("paper", "panels")
    panels = {name: verdicts.panel_verdict(name, judged) for name in panels}
    write("paper", {"quotes": found, "panels": panels})
    reproduction.write_quotes([quote | {"preset": "paper"} for quote in judged])
    page = PAGES[1].read_text(encoding="utf-8")
    head, rest = page.split("<!-- quotes -->", 1)
    lines = "\n".join(
        ["<!-- quotes -->", *reproduction.sentences(judged), "<!-- end of quotes -->"]
    )
    page = head + lines + rest.split("<!-- end of quotes -->", 1)[1]
    PAGES[1].write_text(page, encoding="utf-8")


def say_change(name, before, after, key) -> None:
    """Print a verdict or an answer that is another one now."""
    if key:
        before, after = before[key], after[key]
    if before != after:
        print(f"{name}: {before} → {after}")


def write(preset, found) -> None:
    verdicts.record(preset, found, PATH)
    verdicts.everything.cache_clear()


def block() -> str:
    """The summary: the three lines, and which presets they are of."""
    known = verdicts.latest()
    if not known["figures"]:
        return "\nNo run of this version is recorded yet; `make reproduce` prints yours.\n"
    lines = [f"- {line}" for line in verdicts.summary(known)]
    return "\n" + "\n".join([*lines, "", f"*{verdicts.provenance(in_order(known))}*"]) + "\n"


def in_order(known):
    """The record of each figure, in the order of the report."""
    names = (figure.name for figure in FIGURES)
    return {name: known["figures"][name] for name in names if name in known["figures"]}


if __name__ == "__main__":
    main(*sys.argv[1:])

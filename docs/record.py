"""Record finished reproductions: `python docs/record.py REPORT...`.

Writes verdicts, answers and times to src/deeplin/papers/recorded.json, with which `deeplin
reproduce` compares, and the summary into the README. Figures may come from several folders and
presets: each preset is recorded by itself, and what is printed about a figure is that of its full
protocol where there is one. Look at every change that is printed.
"""

import sys
from pathlib import Path

from deeplin.papers import recorded
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.report import read_outcomes

ROOT = Path(__file__).parents[1]
PATH = ROOT / "src" / "deeplin" / "papers" / recorded.SOURCE
START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def main(*reports: Path) -> None:
    names = [figure.name for figure in FIGURES]
    outcomes = [outcome for report in reports for outcome in read_outcomes(report, names)]
    for change in recorded.changes(outcomes):
        print(f"{change.quote}: {change.recorded} → {change.found}")
    # the full protocol first: the quick preset does not differ where that does not
    for preset in ("paper", "quick"):
        found = recorded.collect(o for o in outcomes if o["preset"] == preset and o["seed"] == 0)
        for name, quote in found["quotes"].items():
            quote["verdict"] = recorded.verdict(name, preset, quote["verdict"])
        known = recorded.read(preset, "questions")
        for name, answer in found["questions"].items():
            if known.get(name, answer) != answer:
                print(f"{preset}: {name}: {known[name]} → {answer}")
        if found["figures"]:
            recorded.record(preset, found, PATH)
            recorded.everything.cache_clear()
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(START, 1)
    readme.write_text(head + START + block() + END + rest.split(END, 1)[1], encoding="utf-8")


def block() -> str:
    """The README's summary: the three lines, and which presets they are of."""
    known = recorded.latest()
    if not known["figures"]:
        return "\nNo run of this version is recorded yet; `make reproduce` prints yours.\n"
    lines = [f"- {line}" for line in recorded.summary(known)]
    return "\n" + "\n".join([*lines, "", f"*{recorded.provenance(in_order(known))}*"]) + "\n"


def in_order(known) -> dict[str, str]:
    """The preset of each recorded figure, in the order of the report."""
    names = (figure.name for figure in FIGURES)
    return {name: known["figures"][name] for name in names if name in known["figures"]}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Record a finished reproduction: `python docs/record.py report`.

Writes verdicts, answers and times to src/deeplin/papers/recorded.json, with which `deeplin
reproduce` compares, and the summary into the README. Look at every change before it is recorded.
"""

import json
import sys
from pathlib import Path

from deeplin.papers import recorded
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.report import read_outcomes

ROOT = Path(__file__).parents[1]
PATH = ROOT / "src" / "deeplin" / "papers" / recorded.SOURCE
START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def main(report: Path) -> None:
    outcomes = read_outcomes(report, [figure.name for figure in FIGURES])
    for preset in sorted({outcome["preset"] for outcome in outcomes}):
        found = recorded.collect(o for o in outcomes if o["preset"] == preset and o["seed"] == 0)
        for change in recorded.changes(found["quotes"], preset):
            print(f"{preset}: {change.quote}: {change.recorded} → {change.found}")
        known = recorded.read(preset, "questions")
        for name, answer in found["questions"].items():
            if known.get(name, answer) != answer:
                print(f"{preset}: {name}: {known[name]} → {answer}")
        recorded.record(preset, found, PATH)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(START, 1)
    readme.write_text(head + START + block() + END + rest.split(END, 1)[1], encoding="utf-8")


def block() -> str:
    """The README's summary: the three lines of the full protocol, or of the quick preset."""
    entries = json.loads(PATH.read_text(encoding="utf-8")) if PATH.is_file() else {}
    if not entries:
        return "\nNo run of this version is recorded yet; `make reproduce` prints yours.\n"
    preset = "paper" if "paper" in entries else "quick"
    title = {"paper": "The papers' full protocol:", "quick": "The quick preset (few runs):"}[preset]
    lines = [f"- {line}" for line in recorded.summary(entries[preset])]
    return "\n" + "\n".join([title, "", *lines]) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Record the verdicts of a finished reproduction: `python docs/record.py report [--also]`.

`--also` keeps what was recorded beside what was found: for chaotic runs, whose verdict the last bit
of an operation may decide.
`deeplin reproduce` compares with them; look at every change before it is recorded. The table of the
README is made from them too.
"""

import json
import sys
from pathlib import Path

from deeplin.papers import recorded
from deeplin.papers.catalogue import FIGURES, PRESETS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src" / "deeplin" / "figures" / "verdicts"

START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def main(report: Path, also: bool) -> None:
    outcomes = [json.loads(path.read_text()) for path in report.glob("*/outcome.json")]
    for preset in {outcome["preset"] for outcome in outcomes}:
        mine = [outcome for outcome in outcomes if outcome["preset"] == preset]
        found = recorded.verdicts(mine)
        for change in recorded.changes(found, recorded.read(preset)):
            print(f"{preset}: {change.claim}: {change.recorded} → {change.found}")
        recorded.record(preset, found, FOLDER, also=also)
        recorded.record_seconds(preset, mine, FOLDER)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(START, 1)
    readme.write_text(head + START + table() + END + rest.split(END, 1)[1], encoding="utf-8")


def table() -> str:
    """The README's table: what each figure shows, and the recorded counts of both presets."""
    lines = ["", "| figure | shows | quick preset | papers' full protocol |", "|---|---|---|---|"]
    for figure in FIGURES:
        panels = {panel.name for panel in figure.panels}
        counts = [recorded.counted(preset, panels) for preset in PRESETS]
        lines.append(f"| {figure.name} | {figure.title} | {' | '.join(counts)} |")
    totals = [recorded.tally(recorded.read(preset).values()) for preset in PRESETS]
    lines.append(f"| all | | {' | '.join(totals)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--also" in sys.argv[2:])

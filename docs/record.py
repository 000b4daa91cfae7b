"""Record the verdicts of a finished reproduction: `python docs/record.py report`.

`deeplin reproduce` compares with them; look at every change before it is recorded.
"""

import json
import sys
from pathlib import Path

from deeplin.figures import recorded

FOLDER = Path(__file__).parents[1] / "src" / "deeplin" / "figures" / "verdicts"


def main(report: Path) -> None:
    outcomes = [json.loads(path.read_text()) for path in report.glob("*/outcome.json")]
    for preset in {outcome["preset"] for outcome in outcomes}:
        found = recorded.verdicts(o for o in outcomes if o["preset"] == preset)
        for change in recorded.changes(found, recorded.read(preset)):
            print(f"{preset}: {change.claim}: {change.recorded} → {change.found}")
        recorded.record(preset, found, FOLDER)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

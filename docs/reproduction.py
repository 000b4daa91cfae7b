"""Keep a finished reproduction in the documentation: `python docs/reproduction.py report [NOTE]`.

Reads the outcomes that `deeplin reproduce` left in its report folder and writes pictures, the
tables behind them, a table of all claims and a page to docs/reproduction/. The verdicts are
recorded by `docs/record.py`.
"""

import csv
import json
import shutil
import sys
from pathlib import Path

import pandas as pd

from deeplin.papers import recorded
from deeplin.papers.catalogue import FIGURES
from deeplin.papers.report import duration

KEPT = Path(__file__).parent / "reproduction"
LONGEST = 10_000
"""Of a table with more rows only the first repetition is kept, or these rows."""


def main(report: Path, note: str = "") -> None:
    (KEPT / "data").mkdir(parents=True, exist_ok=True)
    order = [figure.name for figure in FIGURES]
    outcomes = [json.loads(path.read_text()) for path in report.glob("*/outcome.json")]
    outcomes.sort(key=lambda outcome: order.index(outcome["name"]))
    claims = [
        {"figure": outcome["name"], "panel": panel["name"], "preset": outcome["preset"]} | claim
        for outcome in outcomes
        for panel in outcome["panels"]
        for claim in panel["claims"]
    ]
    with (KEPT / "claims.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(claims[0]))
        table.writeheader()
        table.writerows(claims)
    for outcome in outcomes:
        for panel in outcome["panels"]:
            shutil.copy(report / panel["files"]["png"], KEPT / f"{panel['name']}.png")
        for data in outcome["data"]:
            table = pd.read_parquet(report / data["parquet"])
            if len(table) > LONGEST and "repetition" in table:
                table = table[table["repetition"] == 0]
            table = table.head(LONGEST)
            table.to_csv(KEPT / "data" / f"{data['study']}.csv", index=False, float_format="%.5g")
    (KEPT / "index.md").write_text("\n".join(page(outcomes, claims, note)) + "\n")


def page(outcomes, claims, note):
    """The lines of the page."""
    machine = outcomes[-1]["environment"]["machine"]
    yield "# Reproduction"
    yield ""
    counts = recorded.tally(claim["verdict"] for claim in claims)
    yield (
        f"{counts}. Computed on {machine['cores']} cores ({machine['processor']}, "
        f"{machine['system'].split()[0]}), Python {machine['python']}, no accelerator. The table "
        "of all claims with measured values and limits is [claims.csv](claims.csv); what is known "
        "about those that do not hold stands [below](#known). Times are computing time of the "
        "runs; two studies are computed side by side. The tables behind the figures are kept with "
        "five digits (of long ones the first repetition or 10 000 rows); the report has them all."
    )
    if note:
        yield ""
        yield note
    yield ""
    yield "| figure | preset | verdict | claims | computing time |"
    yield "|---|---|---|---|---|"
    for outcome in outcomes:
        judged = [c for panel in outcome["panels"] for c in panel["claims"]]
        good = sum(c["verdict"] == "holds" for c in judged)
        yield (
            f"| [{outcome['name']}](#{outcome['name'].lower()}) | {outcome['preset']} | "
            f"{outcome['verdict']} | {good} of {len(judged)} | {duration(outcome['seconds'])} |"
        )
    for outcome in outcomes:
        yield ""
        yield f"## {outcome['name']}: {outcome['title']} {{ #{outcome['name'].lower()} }}"
        yield ""
        yield f"*Printed.* {outcome['printed']}"
        yield ""
        yield f"*As run.* {outcome['as_run']}"
        yield ""
        links = (f"[{data['study']}](data/{data['study']}.csv)" for data in outcome["data"])
        yield f"*Data.* {', '.join(links)}; again with `{outcome['command']}`."
        for panel in outcome["panels"]:
            yield ""
            yield f"![{panel['name']}]({panel['name']}.png)"
            yield ""
            yield f"**{panel['name']}.** {panel['caption']}"
            if panel["claims"]:
                yield ""
                yield "| verdict | claim | measured | limit |"
                yield "|---|---|---|---|"
            for claim in panel["claims"]:
                part = f"*{claim['part']}.*" if claim["part"] else ""
                known = f"Known: {claim['known']}." if claim["known"] else ""
                notes = " ".join(filter(None, [part, claim["explanation"], known]))
                sentence = f"{claim['sentence']}. {notes}".strip().replace("|", "\\|")
                limit = f"{claim['tolerance']}: {claim['reason']}".replace("|", "\\|")
                worst = f" ({claim['worst']})" if claim.get("worst") else ""
                yield f"| {claim['verdict']} | {sentence} | {claim['shown']}{worst} | {limit} |"
    yield ""
    yield "## Known failures { #known }"
    yield ""
    for id, text in recorded.EXPLANATIONS.items():
        yield f"- **{id}** {text}"
    yield ""
    yield "E-1 to E-29 are the [errata and notes](../errata.md)."


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])

"""Certificates: every statement evaluated on a problem and its runs, with verdicts and margins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from deeplin import markup
from deeplin.certificates.context import Constants, Context
from deeplin.certificates.registry import LETTERS, Check, NotApplicable, Statement
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics.run import Run
from deeplin.errors import InputError, positive_number, validated
from deeplin.networks import Network
from deeplin.problems import Population, Problem

HOLDS, VIOLATED, MEASURED = "holds", "violated", "measured"
UNMET, NOT_APPLICABLE = "hypotheses not met", "not applicable"
TEXT = ["id", "title", "kind", "run", "verdict", "holds", "hypotheses", "unmet", "part"]
NUMBERS = ["left", "right", "margin", "tolerance", "at"]
VERDICTS = [NOT_APPLICABLE, MEASURED, HOLDS, UNMET, VIOLATED]
"""Verdicts in order of severity; a statement with several claims gets the most severe."""
PLACE = re.compile(rf"(?:(\w+),?\s+)?({'|'.join(LETTERS.values())})\s+(\S+)", re.IGNORECASE)
"""Pattern of a statement's name in its paper: "Theorem 2" or "FM, Theorem 2"."""
CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}


class Certificate(pd.DataFrame):
    """A table with one row for each statement (and run).

    Verdicts: `holds`, `violated`, `hypotheses not met` (the row says which), and `measured` for a
    definition or a constant that the paper leaves open: `left` is the number, and there is no
    judgment. A statement about other problems or runs is `not applicable`.

    Columns: `id`, `title`, `kind`, `run`, `verdict`, `holds`, `hypotheses` (which one fails, with
    its numbers, or why the statement does not apply), `unmet` (the hypotheses that fail, each with
    the fields `hypothesis`, `value`, `relation`, `threshold`), `part` (the tightest claim of the
    statement), `left`, `right`, `margin`, `tolerance`, `at` (step or time of the smallest margin).
    A margin within its tolerance is 0, and a statement holds when its margin is at least 0; `holds`
    is None where the verdict is neither holds nor violated.
    """

    @property
    def _constructor(self):
        return pd.DataFrame

    @property
    def table(self) -> pd.DataFrame:
        """The plain table."""
        return pd.DataFrame(self)

    @property
    def violated(self) -> pd.DataFrame:
        """The rows of violated statements."""
        return self.table.query("verdict == @VIOLATED")

    @property
    def all_hold(self) -> bool:
        """Whether no statement is violated, except printed ones known to be false (errata)."""
        return not bool((self.violated["kind"] != "erratum").any())

    def summary(self) -> pd.DataFrame:
        """Return one row for each statement, with the number of runs that have each verdict."""
        table = self.table
        counts = pd.crosstab(table["id"], table["verdict"]).reindex(columns=VERDICTS[::-1])
        titles = table.groupby("id", sort=False)[["title"]].first()
        return titles.join(counts.fillna(0).astype(int))

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values; numbers that are not finite become None."""
        table = self.table.astype(object)
        finite = table.notna() & ~self.table.isin([np.inf, -np.inf])
        rows = table.where(finite, None).to_dict("records")
        known = [[_finite(entry._asdict()) for entry in row["unmet"]] for row in rows]
        return [row | {"unmet": entries} for row, entries in zip(rows, known, strict=True)]

    def to_latex(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a LaTeX `tabular` of the statements that apply; it needs the package booktabs.

        For one run it has the verdict and both sides of each statement, for several the counts of
        verdicts.
        """
        head, rows = self._cells()
        return markup.latex_table(head, rows, "ll" + ("lrrr" if "left" in head else "rrrr"))

    def to_markdown(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the table of `to_latex` in Markdown."""
        return markup.markdown_table(*self._cells())

    def _repr_html_(self) -> str:
        head, rows = self._cells()
        return pd.DataFrame(rows, columns=head).to_html(index=False, border=0, justify="left")

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows as text, without statements that apply to none of the runs."""
        table = self.table.query("verdict != @NOT_APPLICABLE")
        if len(set(table["run"])) > 1:
            counts = Certificate(table).summary().drop(columns=NOT_APPLICABLE)
            rows = counts.reset_index().astype(str).to_numpy().tolist()
            return ["statement", "title", *counts.columns[1:]], rows
        sides = ["left", "right", "margin"]
        rows = [
            [row["id"], row["title"], _explained(row), *(_number(row[side]) for side in sides)]
            for row in table.to_dict("records")
        ]
        return ["statement", "title", "verdict", *sides], rows

    def __repr__(self) -> str:
        runs = len(set(self.table["run"]))
        if runs > 1:
            return f"Certificate of {runs} runs\n{self.summary().to_string()}"
        shown = self.table[["id", "verdict", *NUMBERS, "hypotheses"]]
        with pd.option_context("display.float_format", "{:.4g}".format):
            return f"Certificate\n{shown.to_string(index=False, na_rep='')}"


def _explained(row: dict[str, Any]) -> str:
    """Return the verdict with the hypotheses that are not met."""
    return f"{row['verdict']}: {row['hypotheses']}" if row["hypotheses"] else row["verdict"]


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the rows with numbers that are not finite replaced by None."""
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in entry.items()
    }


@validated
def certify(
    problem: Problem,
    run: Run | Network,
    *,
    only: Iterable[str] | str | None = None,
    tolerance: float = 1e-9,
    flow_tolerance: float = 1e-6,
    population: Population | None = None,
    constants: Constants | None = None,
    parts: bool = False,
) -> Certificate:
    """Evaluate every statement of the papers on a problem and a run (or a batch of runs).

    `tolerance` is relative and stands for rounding; `flow_tolerance` is added for equalities along
    a numerically integrated flow. The table states the absolute tolerance of each row. A statement
    about gradient flow is not judged on gradient descent: its verdict is then "hypotheses not met",
    along with the measured sides. The statements about benign overfitting need the `population` of
    the data; `constants` sets their free constants. A row shows the tightest claim of its
    statement; `parts=True` gives every claim a row of its own. `only` names statements by their ids
    or as their paper does: "FM-T2", "Theorem 2", "BO, Lemma 4.5".

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    table = dl.certify(problem, dl.theory.minimal_sharpness(problem, 3).minimizer)
    assert table.all_hold
    ```
    """
    positive_number("tolerance", tolerance, zero_allowed=True)
    positive_number("flow_tolerance", flow_tolerance, zero_allowed=True)
    context = Context(
        problem, run, flow_tolerance=flow_tolerance, population=population, constants=constants
    )
    rows, overflows = [], []
    with np.errstate(over="call", invalid="ignore", call=lambda *what: overflows.append(what)):
        for statement in _selected(only):
            claims = _assess(statement, context, tolerance)
            claims = [_within_range(claim) for claim in claims] if overflows else claims
            chosen = claims if parts else [_tightest_claim(claims)]
            names = {
                n: _column(getattr(statement, n), context.batch) for n in ("id", "title", "kind")
            }
            rows += [names | claim for claim in chosen]
    return Certificate(_table(rows, context.batch))


def _selected(only: Iterable[str] | str | None) -> list[Statement]:
    if only is None:
        return list(STATEMENTS.values())
    wanted = [only] if isinstance(only, str) else list(dict.fromkeys(only))
    found = {name: _named(name) for name in wanted}
    unknown = [name for name, ids in found.items() if not ids]
    if unknown or not wanted:
        raise InputError(
            f"no statement {', '.join(unknown) or 'was named'}; known: {', '.join(STATEMENTS)}."
        )
    return [STATEMENTS[id] for id in dict.fromkeys(itertools.chain(*found.values()))]


def _named(name: str) -> list[str]:
    """Return the ids that a name stands for: itself, or those of "[Paper,] Theorem 2"."""
    if name in STATEMENTS:
        return [name]
    place = PLACE.fullmatch(name.strip())
    if place is None:
        return [id for id in STATEMENTS if id.lower() == name.strip().lower()]
    paper, kind, number = (text or "" for text in place.groups())
    label = kind[0].upper() + number.strip("()").removeprefix("A")
    return [
        id
        for id in STATEMENTS
        if id.partition("-")[2] == label and id.lower().startswith(paper.lower())
    ]


def _assess(statement: Statement, context: Context, tolerance: float) -> list[dict[str, Any]]:
    """Judge the claims of one statement and return columns with one entry for each run."""
    try:
        checks = statement.checks(context)
    except (NotApplicable, InputError) as reason:
        batch = context.batch
        nothing = dict.fromkeys([*NUMBERS, "relative"], np.full(batch, np.nan))
        texts = {"part": _column("", batch), "hypotheses": _column(str(reason), batch)}
        texts["unmet"] = _column([()] * batch, batch)
        return [nothing | texts | {"verdict": np.full(batch, CODES[NOT_APPLICABLE])}]
    return [_judge(statement, check, context, tolerance) for check in checks]


def _judge(
    statement: Statement, check: Check, context: Context, tolerance: float
) -> dict[str, Any]:
    """Compare the smallest margin of one claim in each run with the tolerance there."""
    claim = _tightest(check, context, tolerance)
    applies = claim.pop("applies")
    unmet = _column(check.unmet(context.batch), context.batch)
    nothing = np.where(applies, "", "nothing along this run to compare")
    reasons = ["; ".join(map(str, names)) or no for names, no in zip(unmet, nothing, strict=True)]
    if check.granted:
        holds, good, failed = np.ones(context.batch, bool), HOLDS, VIOLATED
    elif check.measured:
        # If no constant suffices, the existence claim is false; a definition cannot be.
        holds = np.isfinite(claim["left"]) | (statement.kind == "definition")
        good, failed = MEASURED, VIOLATED
    else:
        holds = claim["margin"] >= -claim["tolerance"]
        good, failed = HOLDS, UNMET if statement.kind == "assumption" else VIOLATED
    verdict = np.where(holds, CODES[good], CODES[failed])
    verdict = np.where([bool(names) for names in unmet], CODES[UNMET], verdict)
    verdict = np.where(applies, verdict, CODES[NOT_APPLICABLE])
    texts = {"part": check.part, "hypotheses": reasons}
    columns = {name: _column(entries, context.batch) for name, entries in texts.items()}
    return claim | columns | {"verdict": verdict, "unmet": unmet}


def _within_range(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the claim, marked as not applicable where its numbers left the range of float64."""
    lost = np.isnan(claim["margin"]) | np.isneginf(claim["margin"])
    lost &= claim["verdict"] != CODES[NOT_APPLICABLE]
    reason = "its numbers leave the range of float64"
    return claim | {
        "verdict": np.where(lost, CODES[NOT_APPLICABLE], claim["verdict"]),
        "hypotheses": np.where(lost, reason, claim["hypotheses"]),
    }


def _tightest_claim(claims: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst verdict of the claims for each run, with the smallest margin among those."""
    if len(claims) == 1:
        return claims[0]
    columns = {name: np.stack([claim[name] for claim in claims]) for name in claims[0]}
    order = np.lexsort((columns["relative"], -columns["verdict"]), axis=0)[0]
    return {name: column[order, np.arange(len(order))] for name, column in columns.items()}


def _column(entries: Any, batch: int) -> np.ndarray:
    """Return a column of objects from one value for all runs or a list with one for each."""
    each = entries if isinstance(entries, list) else itertools.repeat(entries, batch)
    return np.fromiter(each, dtype=object, count=batch)


def _tightest(check: Check, context: Context, tolerance: float) -> dict[str, Any]:
    """Return sides, margin and tolerance at the smallest margin relative to the claim's scale."""
    left, right = np.asarray(check.left, float), np.asarray(check.right, float)
    scale = np.maximum(abs(left), abs(right)) if check.scale is None else np.asarray(check.scale)
    shape = np.broadcast_shapes(
        left.shape, right.shape, np.shape(check.where), scale.shape, np.shape(check.slack), (1, 1)
    )
    shape = (shape[0], context.batch, *shape[2:])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        margin = -abs(left - right) if check.equality else right - left
        bound = (tolerance + np.asarray(check.slack)) * scale
        relative = np.where(scale > 0, (margin + bound) / scale, margin)
    relative = np.where(np.isnan(relative), -np.inf, relative)  # NaN proves nothing
    if check.measured:
        relative = -np.broadcast_to(left, shape)
    where = np.broadcast_to(check.where, shape)
    searched = np.moveaxis(np.where(where, relative, np.inf), 1, 0).reshape(context.batch, -1)
    record, *rest = np.unravel_index(np.argmin(searched, axis=1), (shape[0], *shape[2:]))
    place = (record, np.arange(context.batch), *rest)
    sides = {"left": left, "right": right, "margin": margin}
    found = sides | {"tolerance": bound, "relative": relative}
    along = shape[0] == len(context.times) > 1
    return {
        "applies": where.any(axis=(0, *range(2, len(shape)))),
        "at": context.times[record] if along else np.full(context.batch, np.nan),
    } | {name: np.broadcast_to(array, shape)[place] for name, array in found.items()}


def _table(rows: list[dict[str, Any]], batch: int) -> pd.DataFrame:
    """Return a table of all claims with one row for each run."""
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    codes = columns["verdict"]
    columns["verdict"] = np.array(VERDICTS, dtype=object)[codes]
    columns["holds"] = np.array([None, None, True, None, False], dtype=object)[codes]
    columns["run"] = np.tile(np.arange(batch), len(rows))
    within = np.abs(columns["margin"]) <= columns["tolerance"]
    columns["margin"] = np.where(within, 0.0, columns["margin"])
    for name in NUMBERS:
        columns[name] = np.where(codes == CODES[NOT_APPLICABLE], np.nan, columns[name])
    return pd.DataFrame({name: columns[name] for name in (*TEXT, *NUMBERS)})

"""Certificates: every statement evaluated on a problem and its runs, with verdicts and margins."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from deeplin.certificates.context import Context
from deeplin.certificates.registry import SCOPES, Check, NotApplicable, Statement
from deeplin.certificates.registry import tolerance as tolerance_of
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics.run import Run
from deeplin.dynamics.wide_run import WideRun
from deeplin.errors import InputError, positive_number, shown
from deeplin.networks import Network
from deeplin.problems import Population, Problem, require_problem
from deeplin.theory.benign_overfitting import Constants

HOLDS, VIOLATED, MEASURED = "holds", "violated", "measured"
UNMET, NOT_APPLICABLE = "hypotheses not met", "not applicable"
TEXT = ["id", "title", "kind", "run", "verdict", "holds", "hypotheses", "unmet", "part"]
NUMBERS = ["left", "right", "margin", "tolerance", "at", "allowed"]
VERDICTS = [NOT_APPLICABLE, MEASURED, HOLDS, UNMET, VIOLATED]
"""Verdicts in order of severity; a statement with several claims gets the most severe."""
CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}


class Facts(NamedTuple):
    """Numbers about the end of one run, for its certificate in words."""

    minimizer: bool
    """Whether it ended in a minimizer."""
    sharpness: float
    minimal: float
    """The smallest sharpness of a minimizer of this depth."""
    threshold: float
    """The sharpness up to which its descent is stable, (2+2β)/η; NaN for a flow."""


class Certificate(pd.DataFrame):
    """A table with one row for each statement (and run).

    Verdicts: `holds`, `violated`, `hypotheses not met` (the row says which), and `measured` for a
    definition or a constant that the paper leaves open: `left` is the number, and there is no
    judgment. A statement about other problems or runs is `not applicable`.

    `judged` are the statements whose hypotheses a run meets, and which it could have violated.

    Columns: `id`, `title`, `kind`, `run`, `verdict`, `holds`, `hypotheses` (which one fails, with
    its numbers, or why the statement does not apply), `unmet` (the hypotheses that fail, each with
    the fields `hypothesis`, `value`, `relation`, `threshold`), `part` (the tightest claim of the
    statement), `left`, `right`, `margin`, `tolerance`, `at` (step or time of the smallest margin),
    `allowed` (for a measured constant, the largest one for which the run meets the hypotheses).
    A margin within its tolerance is 0, and a statement holds when its margin is at least 0; `holds`
    is None where the verdict is neither holds nor violated.
    """

    _metadata = ["facts"]  # noqa: RUF012 - pandas reads it from the class
    facts: Facts | None = None
    """What the first screen of `deeplin certify` says about the end of a single run."""

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
    def judged(self) -> pd.DataFrame:
        """The rows of statements whose hypotheses a run meets.

        A statement with an open constant c is among them if the run meets its hypotheses with the
        smallest c for which it also obeys the conclusion; a definition is never.
        """
        reports = "kind != 'definition' and verdict == @MEASURED and left <= allowed"
        return self.table.query(f"verdict in [@HOLDS, @VIOLATED] or ({reports})")

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
        rows = self.table.to_dict("records")
        known = [[_finite(entry._asdict()) for entry in row["unmet"]] for row in rows]
        return [_finite(row) | {"unmet": k} for row, k in zip(rows, known, strict=True)]

    def to_latex(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a LaTeX `tabular` of the statements that apply; it needs the package booktabs.

        For one run it has the verdict and both sides of each statement, for several the counts of
        verdicts. Titles contain mathematical signs as Unicode characters: compile with LuaLaTeX or
        XeLaTeX and a font that has them, such as DejaVu.
        """
        return self._cells().to_latex(index=False, escape=True)

    def to_markdown(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the table of `to_latex` in Markdown."""
        cells = self._cells()
        rows = [cells.columns, ["---"] * len(cells.columns), *cells.to_numpy().tolist()]
        lines = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows)
        return "".join(f"| {line} |\n" for line in lines)

    def _repr_html_(self) -> str:
        return self._cells().to_html(index=False, border=0, justify="left")

    def _cells(self) -> pd.DataFrame:
        """Return the table as text, without statements that apply to none of the runs."""
        table = self.table.query("verdict != @NOT_APPLICABLE")
        if len(set(table["run"])) > 1:
            counts = Certificate(table).summary().drop(columns=NOT_APPLICABLE)
            return counts.rename_axis("statement").reset_index().astype(str)
        explained = table["hypotheses"].map(lambda reason: f": {reason}" if reason else "")
        sides = {side: table[side].map(_number) for side in ("left", "right", "margin")}
        verdict = table["verdict"] + explained
        columns = {"statement": table["id"], "title": table["title"], "verdict": verdict}
        return pd.DataFrame(columns | sides)

    def __repr__(self) -> str:
        runs = len(set(self.table["run"]))
        if runs > 1:
            return f"Certificate of {runs} runs\n{self.summary().to_string()}"
        shown = self.table[["id", "verdict", *NUMBERS, "hypotheses"]]
        with pd.option_context("display.float_format", "{:.4g}".format):
            return f"Certificate\n{shown.to_string(index=False, na_rep='')}"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _finite(entry: dict[Any, Any]) -> dict[str, Any]:
    """Return the values with numbers that are not finite replaced by None."""
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in entry.items()
    }


def certify(
    problem: Problem,
    run: Run | WideRun | Network,
    *,
    only: Iterable[str] | str | None = None,
    scope: str = "run",
    tolerance: float = 1e-9,
    population: Population | None = None,
    constants: Constants = Constants(),  # noqa: B008 - frozen
    parts: bool = False,
) -> Certificate:
    """Evaluate the statements of the papers on a problem and a run (or a batch of runs).

    A statement about gradient flow is not judged on gradient descent: its verdict is then
    "hypotheses not met", along with the measured sides.

    Args:
        problem: The problem that the run was trained on.
        run: A run, a batch of runs, or a network.
        only: Ids of the statements to evaluate, such as "FM-T2"; default: those of the `scope`.
        scope: "run" for statements about the trained network, its training or its data; "theory"
            for those about none of these, such as Talk-log or X-22; or "all".
        tolerance: Relative tolerance for rounding. The table states the absolute one of each row.
        population: The population of the data, for statements about benign overfitting.
        constants: Their free constants.
        parts: Whether every claim of a statement has a row of its own; otherwise a row shows the
            tightest claim.

    Returns:
        A table with one row for each statement and run.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    table = dl.certify(problem, dl.theory.minimal_sharpness(problem, 3).minimizer)
    assert table.all_hold
    ```
    """
    require_problem(problem)
    run = run.run if isinstance(run, WideRun) else run
    if not isinstance(run, Run | Network):
        raise InputError(
            f"run is {shown(run)}; pass a deeplin.Network, or a run such as what "
            "deeplin.gradient_descent returns."
        )
    positive_number("tolerance", tolerance, zero_allowed=True)
    context = Context(problem, run, tolerance=tolerance, population=population, constants=constants)
    rows, overflows = [], []
    quiet: Any = {"divide": "ignore", "invalid": "ignore"}
    with np.errstate(**quiet, over="call", call=lambda *what: overflows.append(what)):
        for statement in _selected(only, scope):
            claims = _assess(statement, context)
            claims = [_within_range(claim) for claim in claims] if overflows else claims
            chosen = claims if parts else [_tightest_claim(claims)]
            names = {
                n: _column(getattr(statement, n), context.batch) for n in ("id", "title", "kind")
            }
            rows += [names | claim for claim in chosen]
        certificate = Certificate(_table(rows, context.batch))
        certificate.facts = _facts(context) if only is None and context.batch == 1 else None
    return certificate


def _facts(context: Context) -> Facts | None:
    """Return the facts about a run on a problem with an exact minimal sharpness."""
    try:
        context.full_width()
        near = context.ends_in_minimizer()["the run ended in a minimizer"].met()
        minimal = context.minimal.exact * context.minimal_scale
        ends = np.broadcast_to(near, 1), context.final_sharpness, np.broadcast_to(minimal, 1)
    except (NotApplicable, InputError):
        return None
    threshold = np.nan
    if context.run.learning_rate is not None and not context.is_flow:
        with suppress(NotApplicable):
            threshold = float((2 + 2 * context.run.momentum) / context.learning_rate[0])
    return Facts(bool(ends[0][0]), float(ends[1][0]), float(ends[2][0]), threshold)


def _selected(only: Iterable[str] | str | None, scope: str) -> list[Statement]:
    if scope not in (*SCOPES, "all"):
        raise InputError(f"scope is {shown(scope)}; pass one of {', '.join(SCOPES)}, all.")
    if only is None:
        return [entry for entry in STATEMENTS.values() if scope in (entry.scope, "all")]
    wanted = [only] if isinstance(only, str) else list(dict.fromkeys(only))
    unknown = [id for id in wanted if id not in STATEMENTS]
    if unknown or not wanted:
        raise InputError(
            f"no statement {', '.join(unknown) or 'was named'}; known: {', '.join(STATEMENTS)}."
        )
    return [STATEMENTS[id] for id in wanted]


def _assess(statement: Statement, context: Context) -> list[dict[str, Any]]:
    """Judge the claims of one statement and return columns with one entry for each run."""
    try:
        checks = statement.checks(context)
    except (NotApplicable, InputError) as reason:
        batch = context.batch
        nothing = dict.fromkeys([*NUMBERS, "relative"], np.full(batch, np.nan))
        texts = {"part": _column("", batch), "hypotheses": _column(str(reason), batch)}
        texts["unmet"] = _column([()] * batch, batch)
        return [nothing | texts | {"verdict": np.full(batch, CODES[NOT_APPLICABLE])}]
    return [_judge(statement, check, context) for check in checks]


def _judge(statement: Statement, check: Check, context: Context) -> dict[str, Any]:
    """Compare the smallest margin of one claim in each run with the tolerance there."""
    claim = _tightest(check, context)
    applies = claim.pop("applies")
    unmet = _column(check.unmet(context.batch), context.batch)
    nothing = np.where(applies, "", "nothing along this run to compare")
    reasons = ["; ".join(map(str, names)) or no for names, no in zip(unmet, nothing, strict=True)]
    if check.granted:
        holds, good, failed = np.ones(context.batch, bool), HOLDS, VIOLATED
    elif check.measured:
        holds, good, failed = np.ones(context.batch, bool), MEASURED, VIOLATED
    else:
        holds = claim["margin"] >= -claim["tolerance"]
        good, failed = HOLDS, UNMET if statement.kind == "assumption" else VIOLATED
    verdict = np.where(holds, CODES[good], CODES[failed])
    verdict = np.where([bool(names) for names in unmet], CODES[UNMET], verdict)
    verdict = np.where(applies, verdict, CODES[NOT_APPLICABLE])
    texts = {"part": check.part, "hypotheses": reasons}
    columns = {name: _column(entries, context.batch) for name, entries in texts.items()}
    allowed = np.where(check.measured, check.allowed(context.batch), np.nan)
    return claim | columns | {"verdict": verdict, "unmet": unmet, "allowed": allowed}


def _within_range(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the claim, marked as not applicable where its numbers left the range of float64."""
    unknown = np.isnan(claim["margin"]) | np.isneginf(claim["margin"])
    measured = claim["verdict"] == CODES[MEASURED]
    lost = np.where(measured, ~np.isfinite(claim["left"]), unknown)
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


def _tightest(check: Check, context: Context) -> dict[str, Any]:
    """Return sides, margin and tolerance at the smallest margin relative to the claim's scale."""
    left, right = np.asarray(check.left, float), np.asarray(check.right, float)
    scale = np.maximum(abs(left), abs(right)) if check.scale is None else np.asarray(check.scale)
    with np.errstate(over="ignore"):
        margin = -abs(left - right) if check.equality else right - left
        bound = tolerance_of(
            scale,
            relative=context.tolerance,
            slack=check.slack,
            subtracted=check.subtracted,
            condition=check.condition,
        )
        relative = np.where(scale > 0, (margin + bound) / scale, margin + bound)
    shape = np.broadcast_shapes(left.shape, relative.shape, np.shape(check.where), (1, 1))
    shape = (shape[0], context.batch, *shape[2:])
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

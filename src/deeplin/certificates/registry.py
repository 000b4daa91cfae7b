"""Statements of the papers as code: what one is, what its evaluation returns, the registry."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from deeplin.certificates.context import Context

    Assumption = Callable[[Any], dict[str, Any] | None]

LETTERS = {
    "D": "definition",
    "A": "assumption",
    "L": "lemma",
    "P": "proposition",
    "T": "theorem",
    "C": "corollary",
}
"""What the letters of the papers' ids stand for: BO-L4.5 is BO, Lemma 4.5."""
KINDS = (*LETTERS.values(), "identity", "observation", "exact result", "erratum")

CATALOGUE: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("statements.toml").read_text(encoding="utf-8")
)
"""Title, formula, kind, reference and scope of each statement; whether it holds for any loss."""
SCOPES = ("run", "theory")
"""What statements are about: a trained network, its training or its data; or none of these."""

RELATIONS = {"≤": ">", "≥": "<", "<": "≥", ">": "≤"}
"""Relations of hypotheses, and the relation that holds if a hypothesis is not met."""


class NotApplicable(Exception):
    """Raised by a statement that does not apply to this problem or run, with the reason."""


ROUNDINGS = 100
"""Multiple of the machine precision to which a difference is known, relative to its terms."""
UNDERFLOW = 1e-150
"""Numbers below it count as zero: their squares leave the range of float64."""


def tolerance(
    size: ArrayLike,
    *,
    relative: float = 1e-9,
    slack: ArrayLike = 0.0,
    subtracted: ArrayLike = 0.0,
    condition: ArrayLike = 1.0,
) -> np.ndarray:
    """Return how far two sides may be apart by rounding alone: every comparison asks this function.

    It is (relative + slack)·size + 100·ε·condition·subtracted, with the machine precision ε (and at
    least 1e-150, since squares of smaller numbers underflow). A loss
    of 1e-14 that was obtained by subtracting targets of size one says nothing about a bound of
    1e-77: it is compared with the second term. So is a zero.

    Args:
        size: Size of the two sides, or of the terms of a difference that should vanish.
        relative: Relative tolerance of the certificate.
        slack: Further relative tolerance, such as the error of the solver of a flow.
        subtracted: Size of what was subtracted to obtain a side, such as the loss at the start.
        condition: Factor by which the data and the layers amplify rounding.

    Returns:
        The absolute tolerance.

    ```python
    from deeplin.certificates.registry import tolerance
    assert tolerance(1000.0, relative=1e-3) == 1.0
    assert 7e-14 - 7e-77 < tolerance(7e-14, subtracted=40.0, condition=100.0)
    ```
    """
    rounding = ROUNDINGS * np.finfo(np.float64).eps * np.asarray(condition) * subtracted
    return (relative + np.asarray(slack)) * np.asarray(size) + rounding + UNDERFLOW


@dataclass(frozen=True)
class Hypothesis:
    """An assumption with its numbers, for each run: `value` in `relation` to `threshold`."""

    value: ArrayLike
    relation: str
    threshold: ArrayLike
    constant: bool = False
    """Whether the threshold is to be multiplied by a constant c that the paper leaves open."""

    def with_constant(self, c: float) -> Hypothesis:
        """Return the hypothesis with a value for the open constant."""
        return replace(self, threshold=c * np.asarray(self.threshold), constant=False)

    def met(self) -> np.ndarray:
        """Return where the hypothesis is met; the sides of ≤ and ≥ may differ by rounding."""
        value, threshold = np.asarray(self.value, float), np.asarray(self.threshold, float)
        strict, up = self.relation in "<>", self.relation in "<≤"
        rounding = 0.0 if strict else np.where(np.isfinite(threshold), 1e-9 * abs(threshold), 0.0)
        with np.errstate(invalid="ignore"):
            missing = value - threshold if up else threshold - value
        return missing < 0 if strict else missing <= rounding


class Unmet(NamedTuple):
    """A hypothesis that a run does not meet; without numbers `value` and `threshold` are NaN."""

    hypothesis: str
    value: float = float("nan")
    relation: str = ""
    threshold: float = float("nan")

    def __str__(self) -> str:
        if not self.relation:
            return self.hypothesis
        digits = next((n for n in (4, 9) if f"{self.value:.{n}g}" != f"{self.threshold:.{n}g}"), 17)
        value, threshold = f"{self.value:.{digits}g}", f"{self.threshold:.{digits}g}"
        sides = f"{value} {RELATIONS[self.relation]} {threshold}"
        return f"{self.hypothesis} ({sides})"


@dataclass(frozen=True)
class Check:
    """One comparison, left ≤ right, measured along a batch of runs.

    Arrays have the axes (records, batch, …), where each may be 1, or the axis (batch,) alone;
    further axes, such as layers, are searched for the smallest margin too.
    """

    left: ArrayLike
    right: ArrayLike
    part: str = ""
    """Name of the claim, for statements with several claims."""
    equality: bool = False
    """Whether the claim is left = right."""
    hypotheses: Mapping[str, ArrayLike | Hypothesis] = field(default_factory=dict)
    """Hypotheses in addition to those of the statement: name → whether it is met in each run, or
    its numbers."""
    where: ArrayLike = True
    """Where the claim applies (for example t ≥ 1)."""
    scale: ArrayLike | None = None
    """Size to which the tolerance is relative; the larger of |left| and |right| if None."""
    slack: ArrayLike = 0.0
    """Relative tolerance beyond rounding, with a reason given in the statement's code."""
    subtracted: ArrayLike = 0.0
    """Size of the terms whose difference a side is (see `tolerance`)."""
    condition: ArrayLike = 1.0
    """Factor by which their rounding is amplified."""
    measured: bool = False
    """Whether `left` is only reported, at its largest value, without a judgment."""
    granted: bool = False
    """Whether the claim is true by construction of the data, without numbers to compare."""

    def with_constant(self, c: float | None) -> Check:
        """Return the check as a certificate judges it, for a value of the open constant or none.

        Without a value hypotheses with an open constant exclude no run, so the claim is not judged:
        the factor by which the run exceeds its bound is measured.
        """
        if c is not None:
            given = self.hypotheses.items()
            known = {name: _with_constant(entry, c) for name, entry in given}
            return replace(self, hypotheses=known)
        if self.measured or not any(is_open(entry) for entry in self.hypotheses.values()):
            return self
        part = f"{self.part}: smallest factor".removeprefix(": ")
        return replace(self, left=ratio(self.left, self.right), part=part, measured=True)

    def allowed(self, batch: int) -> np.ndarray:
        """Return the largest c with which each run meets the hypotheses, (batch,); inf if any."""
        largest = np.full(batch, np.inf)
        for entry in self.hypotheses.values():
            if isinstance(entry, Hypothesis) and entry.constant:
                largest = np.minimum(largest, ratio(entry.value, entry.threshold))
        return largest

    def unmet(self, batch: int) -> list[tuple[Unmet, ...]]:
        """Return the hypotheses that fail, for each run."""
        found: list[tuple[Unmet, ...]] = [()] * batch
        for name, given in self.hypotheses.items():
            if is_open(given):
                continue
            if isinstance(given, Hypothesis):
                met, relation, sides = given.met(), given.relation, (given.value, given.threshold)
            else:
                met, relation, sides = given, "", (np.nan, np.nan)
            values, thresholds = (np.broadcast_to(side, batch).tolist() for side in sides)
            for run in np.flatnonzero(~np.broadcast_to(met, batch)):
                value, threshold = float(values[run]), float(thresholds[run])
                found[run] += (Unmet(name, value, relation, threshold),)
        return found


def is_open(hypothesis: Any) -> bool:
    """Return whether a hypothesis depends on a constant that is not known."""
    return isinstance(hypothesis, Hypothesis) and hypothesis.constant


def _with_constant(hypothesis: Any, c: float) -> Any:
    return hypothesis.with_constant(c) if is_open(hypothesis) else hypothesis


def ratio(left: ArrayLike, right: ArrayLike) -> np.ndarray:
    """Return left/right, 0 where left is 0."""
    left, right = np.asarray(left, float), np.asarray(right, float)
    return np.where(left == 0, 0.0, left / right)


def value(quantity: ArrayLike, part: str = "", **details: Any) -> Check:
    """Return a check that reports a number and judges nothing.

    For a definition, or for a constant that the paper leaves open.
    """
    return Check(quantity, np.nan, part, measured=True, **details)


@dataclass(frozen=True)
class Statement:
    """A numbered statement and the function that evaluates it on a context."""

    id: str
    title: str
    kind: str
    reference: str
    formula: str
    assess: Callable[[Any], Check | list[Check]]
    assumptions: tuple[Assumption, ...] = ()
    """Assumptions of all its claims."""
    any_loss: bool = False
    """Whether it holds for every convex loss rather than only for the squared one."""
    meaning: str = ""
    """What it says in words when it holds on a run."""
    scope: str = "run"
    """Whether it is about a run or its data, or ("theory") about neither; see `SCOPES`."""

    def checks(self, context: Context) -> list[Check]:
        """Return the statement's claims about a run, each with all its hypotheses."""
        if not self.any_loss and (loss := context.problem.loss) != "squared":
            name = loss if isinstance(loss, str) else "one of your own"
            raise NotApplicable(f"for squared loss; the loss of this problem is {name}")
        shared = {}
        for assumption in self.assumptions:
            shared |= assumption(context) or {}
        found = self.assess(context)
        found = found if isinstance(found, list) else [found]
        found = [replace(check, hypotheses={**shared, **check.hypotheses}) for check in found]
        return [check.with_constant(context.constants.c) for check in found]


STATEMENTS: dict[str, Statement] = {}
"""All statements by id; importing `deeplin.certificates.statements` fills it."""


def statement(id: str, *assumptions: Assumption, **entry: Any):
    """Register the decorated function as the evaluation of statement `id`.

    Each of the `assumptions` is a function of the context, such as `Context.one_target`: it raises
    `NotApplicable` if the statement does not apply, or returns hypotheses of all its claims. The
    `title`, `formula`, `kind`, `reference`, `meaning` and `any_loss` are those of
    `statements.toml`, or are passed. Kind and reference are those that the id names, if none are
    given: X-2 is an exact result, BO-L4.5 a lemma, with the reference "BO, Lemma 4.5". With
    `any_loss` it holds for every convex loss; other statements are not applicable to problems with
    another loss than the squared one. A statement that says nothing about a run has the `scope`
    "theory": `certify` evaluates it only when asked to.

    ```python
    from deeplin.certificates.context import Context
    from deeplin.certificates.registry import Check, statement

    @statement("MINE", Context.one_target, title="…", kind="lemma", reference="…", formula="…")
    def gap_bounds(context):
        return Check(0.0, context.gap)
    ```
    """
    entry = _named(id) | CATALOGUE.get(id, {}) | entry
    if entry["kind"] not in KINDS:
        raise ValueError(f"kind is {entry['kind']!r}; pass one of {', '.join(KINDS)}.")
    if entry.get("scope", "run") not in SCOPES:
        raise ValueError(f"scope is {entry['scope']!r}; pass one of {', '.join(SCOPES)}.")

    def register(assess):
        if id in STATEMENTS:
            raise ValueError(f"statement {id} is registered twice.")
        STATEMENTS[id] = Statement(id, **entry, assess=assess, assumptions=assumptions)
        return assess

    return register


def _named(id: str) -> dict[str, str]:
    """Return the kind and the reference of a statement that is named as in its paper."""
    paper, _, label = id.partition("-")
    if paper == "X":
        return {"kind": "exact result", "reference": f"exact results, {id}"}
    kind = LETTERS.get(label[:1], "")
    return {"kind": kind, "reference": f"{paper}, {kind.title()} {label[1:]}"}


THEOREMS = tuple(
    id
    for id, entry in CATALOGUE.items()
    if id[:2] in ("FM", "BO")
    and (_named(id) | entry)["kind"] in ("theorem", "proposition", "corollary")
)
"""The papers' twelve theorems, propositions and corollaries; lemmas and definitions are not."""

"""Text for a terminal or a log: a diagnosis, a finished training and a certificate.

The objects hold the numbers, and all sentences about them are written here. `diagnosis_page` has
the picture and the page of a diagnosis.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from deeplin.certificates.certificate import Certificate
    from deeplin.training.advice import Trials
    from deeplin.training.diagnosis import Diagnosis
    from deeplin.training.evaluation import Score
    from deeplin.training.recipe import TrainingReport

STARTS = {
    "torch": "PyTorch's default start",
    "xavier": "a Xavier start",
    "he": "a He start",
    "orthogonal": "an orthogonal start",
    "small": "a small start",
}
HEADINGS = {
    "minimal_sharpness": "S_min",
    "balanced_sharpness": "S_bal",
    "critical_learning_rate": "critical",
    "suggested_learning_rate": "small start",
    "largest_scale": "FM-A2 scale",
}
SYMBOLS = (
    "S_min is the smallest sharpness (largest eigenvalue of the Hessian of the loss) of any "
    "solution, `lower` and `upper` bracket it; S_bal is the sharpness where small starts end. "
    "`critical` is the learning rate above which nothing settles, `small start` the rate to use "
    "from a small start. Up to `FM-A2 scale` Gaussian weights are small in the sense of the theory "
    "of small initialization.",
    "Σ̂ = XᵀX/n is the second moment of the inputs, Λ and λ its largest and smallest eigenvalue, w* "
    "the least-squares solution; R_min is the mean squared error of w*, R_0 that of predicting 0.",
)
SHOWN = 12
"""Number of coefficients of a target that are printed."""
ABOUT_THE_RUN = ("violated", "holds", "measured")
"""Verdicts about the run, in the order in which they are shown."""
NOT_ABOUT_A_RUN = re.compile(
    r"FM-(toy|T1|L[456])|Talk-log|X-(3|9|11|12|13|18|21|32)"
    r"|BO-(D2\.[125]|D3\.3|A[1-5]|L4\.3|L5\.[67]|sigma-min|trace|disc)"
)
"""Statements about the data, the depth or fixed numbers, which are the same for every run."""


# --- a diagnosis ---------------------------------------------------------------------------------


def diagnosis_text(diagnosis: Diagnosis, width: int = 80, *, details: bool = False) -> str:
    """Return the diagnosis with the answer first; symbols and tables only with `details`."""
    lead, *others = summary(diagnosis)
    parts = [textwrap.fill(lead, width), _aligned(_figures(diagnosis), width)]
    compared = (_comparison(diagnosis), score_rows(diagnosis.scores, diagnosis.scores_left_out))
    parts += [_aligned(rows, width) for rows in compared if rows]
    lists = {"": others, "About the data": diagnosis.notes}
    if details:
        lists["Details"] = [*facts(diagnosis), *SYMBOLS]
    parts += [f"{name}\n{_bullets(them, width)}".lstrip() for name, them in lists.items() if them]
    if details:
        for name, table in tables(diagnosis):  # columns beyond the width follow below
            parts.append(f"{name}\n{table.to_string(index=False, line_width=width)}")
    else:
        parts.append("Spectrum, sharpness and tables by depth: --details")
    return "\n\n".join(parts)


def summary(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the answers in plain language, the most useful first."""
    remarks = dict.fromkeys(remark for advice in diagnosis.advice for remark in advice.remarks)
    return (
        answer(diagnosis),
        *remarks,
        *_explained(diagnosis),
        *_interpolation(diagnosis),
        *_conditioning(diagnosis),
    )


def answer(diagnosis: Diagnosis) -> str:
    """Return the learning rate to use, in one sentence."""
    better = diagnosis.standardized
    chosen = diagnosis if better is None else better
    ends = chosen.trials or _ends(chosen.advice)
    rates = " and ".join(f"{it.learning_rate:.3g} at depth {it.depth}" for it in ends)
    start = f"from {STARTS[chosen.trials[0].initialization if chosen.trials else 'small']}"
    several, classes = len(diagnosis.targets), bool(diagnosis.classes)
    summed = f", summed over the {several} targets" if several > 1 else ""
    summed = f", to predict the class of {diagnosis.targets[0]}" if classes else summed
    how = diagnosis.optimizer.described(diagnosis.loss)
    table = " on the standardized table" if diagnosis.prepared == "standardized" else ""
    use = f"se learning rate {rates}{table}, {start}, with {how}{summed}."
    if better is None:
        return f"U{use}"
    what = "inputs" if classes else "inputs and targets"
    return f"Standardize the {what} (--standardize), then u{use}"


def _ends(items: Sequence[Any]) -> list[Any]:
    return list({it.depth: it for it in (items[0], items[-1])}.values())


def _figures(it: Diagnosis) -> list[tuple[str, ...]]:
    """Return rate, steps and critical rate, next to those of the standardized table."""
    columns = [it] if it.standardized is None else [it, it.standardized]
    rows: list[tuple[str, ...]] = []
    if len(columns) > 1:
        rows.append(("", "as it is", "standardized"))
    certain = it.advice[0].certain
    beyond = (
        "above it almost no start settles" if certain else "above it the mean square error grows"
    )
    if it.optimizer.adaptive:
        beyond = "above it the last steps do not settle, however close they come"
    for k, end in enumerate(_ends(it.advice)):
        depth = f"depth {end.depth}: " if len(_ends(it.advice)) > 1 else ""
        found = [column.trials[k] if column.trials else None for column in columns]
        advised = [_ends(column.advice)[k] for column in columns]
        rate = [f"{(t or a).learning_rate:.3g}" for t, a in zip(found, advised, strict=True)]
        critical = [_number(a.critical_learning_rate, ".3g") for a in advised]
        single = len(columns) == 1
        remark = ("half the critical rate of the solution of small starts",) if single else ()
        if single and it.optimizer.adaptive:
            remark = ("the customary one; starts are simulated with --init",)
        if found[0] is not None:
            remark = (_runs(found[0]),) if single else ()
        rows.append((f"{depth}learning rate", *rate, *remark))
        if not single and found[0] is not None:
            rows.append(("steps", *(_steps(t) for t in found if t)))
        unknown = critical[0] == "–"
        rows.append(
            (f"{depth}critical rate", *critical, *([beyond * (not unknown)] if single else []))
        )
    if len(columns) > 1:
        numbers = [f"{column.condition_number:.1g}" for column in columns]
        rows.append(("condition number", *numbers))
    return rows


def _runs(trials: Trials) -> str:
    if trials.steps is None:
        slow = f"after {trials.most_steps} steps none has learned"
        return f"stable from {trials.starts} simulated starts, but slow: {slow}"
    which = "all" if trials.learned == trials.starts else f"{trials.learned} of"
    return f"{which} {trials.starts} simulated starts learn in at most {trials.steps} steps"


def _steps(trials: Trials) -> str:
    """Return the number of steps after which all simulated starts have learned."""
    return f"{trials.steps}" if trials.learned == trials.starts else f"> {trials.most_steps}"


def _explained(it: Diagnosis) -> list[str]:
    """Return a sentence on how much of the targets the inputs explain."""
    if not it.r_squared:
        return []
    found = []
    size = f"{it.samples} rows of {it.dimension} inputs"
    for name, value in it.r_squared.items():
        left = it.r_squared_left_out.get(name)
        beyond = "" if left is None else f"; on rows left out R² = {left:.3g}"
        found.append(
            f"Least squares on {size} explains {max(value, 0):.1%} of the variance of {name} "
            f"(R² = {value:.3g}){beyond}."
        )
    if min(it.r_squared.values()) < 0:
        found.append(
            "A negative R² is worse than predicting the mean: these networks have no intercept. "
            "Subtract the means (--intercept, or --standardize)."
        )
    return found


def _comparison(it: Diagnosis) -> list[tuple[str, ...]]:
    """Return R² on held-out rows of interpolation and of its alternatives, for d > n."""
    over = it.overfitting
    if over is None:
        return []
    errors = {
        "predicting the mean": over.zero_error,
        "ridge, tuned": over.ridge_error,
        f"best {over.selected_inputs} inputs": over.selected_error,
        "fitting every row exactly": over.leave_one_out,
    }
    if over.unstandardized_error is not None:
        errors["the same, not standardized"] = over.unstandardized_error
    rows = [(name, f"{1 - error / over.zero_error:.2f}") for name, error in errors.items()]
    return [("R² on rows left out", ""), *rows]


def _interpolation(it: Diagnosis) -> list[str]:
    """Return a sentence on whether fitting every sample is harmless, for d > n."""
    over = it.overfitting
    if over is None:
        return []
    more = "There are more inputs than rows, so networks fit every row exactly"
    worse = [
        "Standardizing made it worse: the table as it is predicts rows left out better. Leave "
        "--standardize out."
    ] * over.standardizing_hurts
    if not over.beats_zero:
        return [
            f"{more}. On rows left out that is no better than predicting the mean: interpolation "
            "is harmful here.",
            *worse,
        ]
    advice = {
        "benign": "interpolation is benign here",
        "tempered": "interpolation costs something: regularize or stop early",
        "harmful": "interpolation is harmful here: regularize, stop early, or choose inputs",
    }[over.verdict]
    cost = f"that loses {max(over.lost, 0):.0%} of what the best alternative explains"
    return [f"{more}. On rows left out {cost}; {advice}.", *worse]


def _conditioning(it: Diagnosis) -> list[str]:
    """Return advice where directions of the data need very different numbers of steps."""
    found = []
    if it.dependent:
        found.append(
            f"Nearly dependent inputs: {', '.join(it.dependent)}. Their coefficients are learned "
            "last; drop all but one of them."
        )
    return found + conditioning(it.condition_number) if it.standardized is None else found


def conditioning(condition_number: float) -> list[str]:
    """Return a sentence on what an ill-conditioned problem means for training."""
    if not condition_number > 1e4:
        return []
    return [
        "The problem is ill-conditioned: the slowest direction needs about "
        f"{condition_number:.1g} times the steps of the fastest. Standardize the inputs if they "
        "are not (--standardize), or drop nearly dependent ones."
    ]


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return the facts behind the answer, with the symbols of the tables."""
    eigenvalues = f"rank {diagnosis.rank}, Λ/λ = {diagnosis.condition_number:.3g}"
    size = f"{diagnosis.optimum_norm:.4g}".replace("inf", "∞")
    found = [
        f"Σ̂: {eigenvalues}; ‖w*‖ = {size}; "
        f"R_min = {diagnosis.minimal_risk:.4g}, R_0 = {diagnosis.zero_risk:.4g}."
    ]
    if diagnosis.classes:
        found.append(
            "R is the mean log-loss, w* that of logistic regression; S_min and S_bal have half of "
            "its Hessian at w* in the place of Σ̂ (X-14, X-17)."
        )
    over = diagnosis.overfitting
    if over is not None:
        found.append(
            "No tail of the spectrum is flat enough for benign overfitting by its theory (k = ∞)."
            if math.isinf(over.tail.index)
            else f"Beyond k = {over.tail.index:.0f} directions the effective rank is "
            f"{over.tail.large_rank:.3g}, so by the theory fitting the noise costs about "
            f"{over.noise_cost:.2g} of its variance."
        )
    if diagnosis.scale_obstacle and len(diagnosis.targets) == 1 and not diagnosis.classes:
        found.append(
            "The theory of small initialization (FM-A2) does not cover these data: "
            f"{diagnosis.scale_obstacle}. Training is not affected."
        )
    return found


def tables(diagnosis: Diagnosis) -> list[tuple[str, pd.DataFrame]]:
    """Return every table with its heading, with numbers to four digits."""
    import pandas as pd

    depth = diagnosis.advice[-1].depth
    by_depth = diagnosis.depths.dropna(axis="columns", how="all").rename(columns=HEADINGS)
    named = {
        "By depth": by_depth,
        f"Each target alone, at depth {depth}": pd.DataFrame(_targets(diagnosis)),
        "Largest coefficients of w*": pd.DataFrame(_coefficients(diagnosis)),
        "Interpolation": pd.DataFrame(_interpolation_table(diagnosis)),
    }
    return [
        (name, table.map(lambda cell: cell if isinstance(cell, str | int) else _number(cell)))
        for name, table in named.items()
        if len(table)
    ]


def _targets(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return each of several targets with a network of its own, at the greatest depth."""
    rows = []
    for name, value in diagnosis.r_squared.items() if len(diagnosis.targets) > 1 else ():
        row = {"target": name, "R²": value}
        if name in diagnosis.alone:
            advice = diagnosis.alone[name][-1]
            row["critical rate"] = advice.critical_learning_rate
            row["rate to use"] = advice.learning_rate
        rows.append(row)
    return rows


def _coefficients(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the largest coefficients of w*."""
    rows = [(name, np.atleast_1d(w)) for name, w in diagnosis.optimum.items()]
    several = diagnosis.targets if not diagnosis.classes else diagnosis.classes
    columns = ("coefficient",) if len(rows[0][1]) == 1 else several
    largest = sorted(rows, key=lambda row: -np.abs(row[1]).max())[:SHOWN]
    return [{"input": name, **dict(zip(columns, w, strict=True))} for name, w in largest]


def _interpolation_table(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return effective ranks, errors and bounds for d > n."""
    over = diagnosis.overfitting
    if over is None:
        return []
    rows = {
        "k (estimated)": over.tail.index,
        "s_k (estimated)": over.tail.tail_sum,
        "r_0 (estimated)": over.total_rank,
        "r_k (estimated)": over.tail.small_rank,
        "R_k (estimated)": over.tail.large_rank,
        "norm of the minimum-norm interpolant": over.interpolant_norm,
        "its leave-one-out error": over.leave_one_out,
        "that of the best ridge": over.ridge_error,
        "penalty of that ridge": over.ridge_penalty,
        f"cross-validated error of {over.selected_inputs} inputs": over.selected_error,
        "error of predicting zero": over.zero_error,
        "cost of fitting the noise, k/n + n/R_k": over.noise_cost,
        "bias term of BO-T3.1 (c = 1)": over.bias,
        "variance term of BO-T3.1 (c = 1)": over.variance,
    }
    return [{"quantity": name, "value": value} for name, value in rows.items()]


# --- a finished training -------------------------------------------------------------------------


def training_text(report: TrainingReport, run: str, width: int = 80) -> str:
    """Return the report of `deeplin train`: results, scores, and a comparison with the theory."""
    notes = [
        *(
            f"Learning rate {rate:.3g} diverged after {step} steps; it was halved."
            for rate, step in report.halvings
        ),
        *report.remarks,
        *report.reading.notes,
        f"Prediction: {report.prediction}.",
    ]
    if not report.prediction.passing and report.prediction.critical_learning_rate > 0:  # not NaN
        notes.append(f"After training, {report.verdict}.")
    left = report.left_out
    rows = score_rows(report.scores, left.scores if left else (), left.method if left else "")
    return "\n\n".join(
        [
            textwrap.fill(_headline(report), width),
            *([_aligned(rows, width)] if report.run.status != "diverged" else []),
            *(textwrap.fill(it, width, subsequent_indent="    ") for it in _equations(report)),
            _bullets(notes, width),
            f"Kept in {run}\nPredict new rows:   deeplin predict {run} TABLE\n"
            f"Check the theorems: deeplin certify {run}",
        ]
    )


def _headline(report: TrainingReport) -> str:
    status = str(report.run.status)
    if status == "stopped" and report.done:
        status = "on batches"
    settled = "every row is classified right" if report.separable else "the network settled"
    did = {
        "converged": f"Trained: {settled}",
        "on batches": "Trained on batches",
        "stopped": "Not finished: the network was still moving",
        "diverged": "Not trained: the network diverged",
    }[status]
    targets = len(report.reading.targets)
    summed = f" (summed over the {targets} targets)" if targets > 1 else ""
    text = (
        f"{did} after {report.run.steps} steps of {report.optimizer}{summed}, at learning rate "
        f"{report.learning_rate:.3g}."
    )
    if status == "diverged":
        critical = report.prediction.critical_learning_rate
        limit = "" if math.isnan(critical) else f" (above {critical:.3g} nothing can settle)"
        return f"{text} Use a smaller learning rate{limit}."
    problem = report.reading.problem
    if status == "stopped" and problem.has_minimizer and not report.spec.weight_decay:
        learned = 1 - float(report.run.evidence["gap"]) / problem.zero_gap
        best = "logistic regression" if problem.classes is not None else "least squares"
        if learned > 0:  # never 100%, since it is not finished
            text += f" It has learned {min(learned, 0.9999):.2%} of what {best} explains."
    return text


def score_rows(
    trained: Sequence[Score], left_out: Sequence[Score], method: str | None = None
) -> list[tuple[str, ...]]:
    """Return scores on training and held-out rows, next to a linear model and a constant.

    `method` describes how rows were left out; None omits this.
    """
    if not trained:
        return []
    classes = trained[0].measure != "R²"
    network = trained[0].network is not None
    heads = ("logistic regression", "most frequent") if classes else ("least squares", "the mean")
    rows: list[tuple[str, ...]] = [
        ("" if classes else "R²", *(["this network"] if network else []), *heads)
    ]
    several = len({score.target for score in trained}) > 1
    for k, one in enumerate(trained):
        for where, its in (("rows trained on", trained), ("rows left out", left_out)):
            if k < len(its):
                label = f"{one.measure}, {where}" if classes else where
                label += f" of {one.target}" if several else ""
                cells = (*([its[k].network] if network else []), its[k].linear, its[k].constant)
                tiny = 1e-6 if one.measure == "log-loss" else 0.0
                cells = (0 if cell is not None and 0 <= cell < tiny else cell for cell in cells)
                rows.append((label, *(_number(cell, ".3g") for cell in cells)))
    if method is None:
        return rows
    if left_out:
        return [*rows, (f"({method})", "", "", "")]
    return [*rows, ("rows left out", "not scored: too few rows, or not kept", "", "")]


def _equations(report: TrainingReport) -> Iterable[str]:
    """Return each output as a formula of the table's columns, with the largest coefficients."""
    formulas, prepared = report.formulas, report.reading.preparation
    names = [column.label for column in prepared.inputs]
    for output, weights, intercept in formulas:
        largest = np.argsort(-np.abs(weights), kind="stable")[:SHOWN]
        terms = [f"{intercept:.4g}"] if intercept else []
        terms += [f"{weights[j]:.4g}·{names[j]}" for j in sorted(largest)]
        formula = " + ".join(terms).replace("+ -", "− ")
        more = len(names) - len(largest)
        left = output
        if prepared.classes:
            left = f"log-odds of {output}" if len(formulas) == 1 else f"score of {output}"
        yield f"{left} = {formula}" + (f" + {more} smaller terms" if more else "")


# --- a certificate -------------------------------------------------------------------------------


def certificate_text(certificate: Certificate, *, width: int = 80, everything: bool = False) -> str:
    """Return a summary, a sentence for each statement about this run, and the rest on request.

    A violated statement is always shown.

    For several runs it is a table that counts the verdicts of each statement.
    """
    table: Any = certificate.table
    if len(set(table["run"])) > 1:
        return repr(certificate)
    counts = table["verdict"].value_counts()
    broken = counts.get("violated", 0)
    first = "No statement is violated" if not broken else f"{broken} statement(s) are VIOLATED"
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    parts = [textwrap.fill(f"{first} on this run, out of {len(table)}: {shown}.", width)]
    silent = [verdict for verdict in table["verdict"].unique() if verdict not in ABOUT_THE_RUN]
    for verdict in (*ABOUT_THE_RUN, *(silent if everything else ())):
        chosen = table["verdict"] == verdict
        if not everything and verdict != "violated":
            chosen &= ~table["id"].str.fullmatch(NOT_ABOUT_A_RUN)
        rows = table[chosen].to_dict("records")
        lines = [_sentence(row, width) for row in rows]
        parts += ["\n".join([verdict.capitalize(), *lines])] if lines else []
    if silent and not everything:
        parts.append("The statements that say nothing about this run, and why: --all")
    return "\n\n".join(parts)


def _sentence(row: Mapping[str, Any], width: int) -> str:
    """Return a statement with its two sides; a margin within rounding is 0, with its tolerance."""
    text, left, right = f"{row['id']}: {row['title']}", _number(row["left"]), _number(row["right"])
    if row["verdict"] in ("holds", "violated") and not math.isnan(row["left"]):
        equal = abs(row["margin"]) <= row["tolerance"]
        sign = "against" if row["verdict"] == "violated" else "≈" if equal else "≤"
        part = f" ({row['part']})" if row["part"] else ""
        within = f", margin 0 within {row['tolerance']:.1g}" if equal else ""
        text += f"{part}: {left} {sign} {right}{within}"
    elif row["verdict"] == "measured":
        text += f": {left}"
    if row["hypotheses"]:
        text += f" — {row['hypotheses']}"
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="      ")


# --- layout --------------------------------------------------------------------------------------


def _bullets(sentences: Iterable[str], width: int) -> str:
    return "\n".join(textwrap.fill(f"- {it}", width, subsequent_indent="  ") for it in sentences)


def _aligned(rows: Sequence[tuple[str, ...]], width: int) -> str:
    """Return rows of cells as aligned columns; a long last cell is wrapped in its column."""
    count = max(map(len, rows))
    full = [(*row, *[""] * (count - len(row))) for row in rows]
    sizes = [max(len(row[j]) for row in full) for j in range(count - 1)]
    lines = []
    for row in full:
        before = "  " + "".join(f"{cell:<{n + 2}}" for cell, n in zip(row, sizes, strict=False))
        space = max(width - len(before), 20)
        first, *more = textwrap.wrap(row[-1], space) or [""]
        lines.append((before + first).rstrip())
        lines += [" " * len(before) + line for line in more]
    return "\n".join(lines)


def _number(value: Any, style: str = ".4g") -> str:
    return "–" if value is None or value != value else f"{value:{style}}"

"""What people read of a diagnosis and of a finished training, as text for a terminal or a log.

The objects hold the numbers, and all sentences about them are written here.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from deeplin.training._train import TrainingReport
    from deeplin.training.diagnosis import Diagnosis
    from deeplin.training.scores import Score
    from deeplin.training.trials import Trials

STARTS = {
    "torch": "PyTorch's default start",
    "xavier": "a Xavier start",
    "he": "a He start",
    "orthogonal": "an orthogonal start",
    "gaussian": "a small Gaussian start",
    "zero_layer": "a small start with a first layer of zeros",
    "residual": "a residual start",
    "identity": "a start with identities in the middle",
    "balanced": "a small balanced start",
    "auto": "the default start of `deeplin train`",
    None: "a small start",
}
HEADINGS = {
    "depth": "depth",
    "lower": "lower",
    "minimal_sharpness": "S_min",
    "upper": "upper",
    "balanced_sharpness": "S_bal",
    "critical_learning_rate": "critical",
    "learning_rate": "rate to use",
}
SCIKIT_LEARN = "LogisticRegression is that of scikit-learn, with its default penalty (C = 1)."
WHY_LINEAR = (
    "A deep linear network learns a linear map, as {least} does at once: train one to study "
    "training (rates, sharpness, implicit bias), not to predict better."
)
SYMBOLS = (
    "S_min is the smallest sharpness (largest eigenvalue of the Hessian of the loss) of any "
    "solution, `lower` and `upper` bracket it; S_bal is the sharpness where small starts end. "
    "`critical` is the learning rate above which no solution is stable, `rate to use` that of the "
    "simulated starts.",
    "Σ̂ = XᵀX/n is the second moment of the inputs, Λ and λ its largest and smallest eigenvalue, w* "
    "the least-squares solution; R_min is the mean squared error of w*, R_0 that of predicting 0.",
)
SHOWN = 12
"""Number of coefficients that are printed of each output."""


# --- a diagnosis ---------------------------------------------------------------------------------


def diagnosis_text(diagnosis: Diagnosis, width: int = 80, *, details: bool = False) -> str:
    """Return the diagnosis with the answer first; symbols and tables only with `details`."""
    lead, *others = summary(diagnosis)
    parts = [_filled(lead, width), _aligned(_figures(diagnosis), width)]
    left = diagnosis.left_out.scores if diagnosis.left_out and diagnosis.classes else ()
    scored = score_rows(diagnosis.scores, left) if diagnosis.classes else []
    compared = (_comparison(diagnosis), scored)
    parts += [_aligned(rows, width) for rows in compared if rows]
    lists = {"": others, "About the data": diagnosis.notes}
    if details:
        lists["Details"] = [*_raw(diagnosis), *facts(diagnosis), *SYMBOLS]
    parts += [f"{name}\n{_bullets(them, width)}".lstrip() for name, them in lists.items() if them]
    if details:
        table = depths(diagnosis).to_string(index=False, line_width=width)
        parts.append(f"By depth\n{table}")
    else:
        parts.append("Spectrum, sharpness and tables by depth: --details")
    return "\n\n".join(parts)


def summary(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the answers in plain language, the most useful first."""
    remarks = dict.fromkeys(remark for advice in diagnosis.advice for remark in advice.remarks)
    least = "logistic regression" if diagnosis.classes else "least squares"
    return (
        answer(diagnosis),
        *_of_the_loss(diagnosis),
        *remarks,
        *_explained(diagnosis),
        *([SCIKIT_LEARN] if diagnosis.classes else []),
        *_interpolation(diagnosis),
        *_conditioning(diagnosis),
        WHY_LINEAR.format(least=least),
    )


def answer(diagnosis: Diagnosis) -> str:
    """Return the learning rate to use, in one sentence."""
    its = diagnosis.advice
    rates = " and ".join(f"{it.learning_rate:.3g} at depth {it.depth}" for it in its)
    rates = f"learning rate {rates}" if len(its) <= 2 else "the learning rate listed for each depth"
    several = len(diagnosis.targets)
    summed = f", summed over the {several} targets" if several > 1 else ""
    if diagnosis.classes:
        summed = f", to predict the class of {diagnosis.targets[0]}"
    how = diagnosis.optimizer.described(diagnosis.problem.loss)
    return (
        f"Use {rates}, {_network(diagnosis)}, from {STARTS[diagnosis.initialization]}, with "
        f"{how}{summed}{_columns(diagnosis)}."
    )


def _network(diagnosis: Diagnosis) -> str:
    """Return the hidden width, and whether the networks have biases."""
    if diagnosis.initialization is None:
        return "without biases"
    biases = "with biases" if diagnosis.biases else "without biases"
    return f"width {diagnosis.width}, {biases}"


def _columns(diagnosis: Diagnosis) -> str:
    """Return which columns the rate belongs to."""
    prepared = diagnosis.reading.preparation
    if not prepared.standardized:
        return ""
    what = "inputs" if diagnosis.classes else "columns"
    return f", on standardized {what} (StandardScaler)"


def _of_the_loss(diagnosis: Diagnosis) -> list[str]:
    """Return how PyTorch's loss of several targets differs."""
    count, spec = diagnosis.problem.outputs, diagnosis.optimizer
    averaged = diagnosis.problem.loss == "squared" and count > 1 and spec.reduction == "mean"
    if not averaged or spec.half or spec.adaptive:
        return []
    return [
        f"PyTorch's MSELoss also averages over the {count} targets: for it, multiply the rates by "
        f"{count}."
    ]


def _figures(it: Diagnosis) -> list[tuple[str, ...]]:
    """Return the rate to use, the simulated starts, and the critical rate of each depth."""
    first = it.advice[0]
    if len(it.advice) > 1:
        rows = [("depth", "learning rate", "critical rate", "simulated starts")]
        for advice in it.advice:
            critical = _number(advice.critical_learning_rate, ".3g")
            runs = _runs(advice.trials, "") if advice.trials else "none"
            rows.append((f"{advice.depth}", f"{advice.learning_rate:.3g}", critical, runs))
        return rows
    if first.trials is not None:
        remark = _runs(first.trials)
    elif it.optimizer.adaptive:
        remark = "the customary one; starts are simulated with --init"
    else:
        remark = "from the theory of small starts, not simulated"
    rows = [("learning rate", f"{first.learning_rate:.3g}", remark)]
    if not math.isnan(first.critical_learning_rate):
        beyond = "above it no solution is stable, and almost no start settles"
        if it.optimizer.adaptive:
            beyond = "above it the last steps do not settle, however close they come"
        elif not first.certain:
            beyond = "above it the mean square of the error grows"
        rows.append(("critical rate", f"{first.critical_learning_rate:.3g}", beyond))
    return rows


def _runs(trials: Trials, name: str = " simulated starts") -> str:
    """Return how many of the starts learn in how many steps."""
    if trials.steps is None:
        slow = f"after {count_of(trials.most_steps, 'step')} none has learned"
        return f"stable from all {trials.starts}{name}, but slow: {slow}"
    which = "all" if trials.learned == trials.starts else f"{trials.learned} of"
    return f"{which} {trials.starts}{name} learn in at most {count_of(trials.steps, 'step')}"


def _raw(it: Diagnosis) -> list[str]:
    """Return the learning rates for the columns as they are."""
    found = []
    for raw, advice in zip(it.raw, it.advice, strict=False):
        said = f"For the columns as they are (--raw) the learning rate at depth {raw.depth} would "
        said += f"be {raw.learning_rate:.3g}"
        if raw.trials and advice.trials:
            most = raw.trials.steps or raw.trials.most_steps
            more = "" if raw.trials.learned == raw.trials.starts else "more than "
            said += f", and training would take {more}{count_of(most, 'step')}"
        found.append(f"{said}.")
    return found


def _explained(it: Diagnosis) -> list[str]:
    """Return a sentence on how much of the targets the inputs explain."""
    if not it.r_squared:
        return []
    found = []
    problem = it.problem
    rows, inputs = count_of(problem.samples, "row"), count_of(problem.dimension, "input")
    size = f"{rows} of {inputs}"
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
            "Subtract the means (leave --no-intercept out)."
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
        "Standardizing made it worse: the table as it is (--raw) predicts rows left out better."
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
    standardized = it.reading.preparation.standardized
    return found + conditioning(it.condition_number, standardized=standardized)


def conditioning(condition_number: float, *, standardized: bool) -> list[str]:
    """Return a sentence on what an ill-conditioned problem means for training."""
    if not condition_number > 1e4:
        return []
    remedy = "Drop nearly dependent inputs." if standardized else "Standardize (leave --raw out)."
    return [
        "The problem is ill-conditioned: the slowest direction needs about "
        f"{condition_number:.1g} times the steps of the fastest. {remedy}"
    ]


def facts(diagnosis: Diagnosis) -> list[str]:
    """Return the facts behind the answer, with the symbols of the tables."""
    problem = diagnosis.problem
    rank = len(diagnosis.eigenvalues)
    eigenvalues = f"rank {rank}, Λ/λ = {diagnosis.condition_number:.3g}"
    size = f"{problem.optimum_norm:.4g}" if problem.has_minimizer else "∞"
    found = [
        f"Σ̂: {eigenvalues}; ‖w*‖ = {size}; "
        f"R_min = {problem.minimal_risk:.4g}, R_0 = {problem.zero_risk:.4g}."
    ]
    if diagnosis.classes:
        found.append(
            "R is the mean log-loss, w* its minimizer without a penalty; S_min and S_bal have half "
            "of its Hessian at w* in the place of Σ̂ (X-14, X-17)."
        )
    return found


def depths(diagnosis: Diagnosis) -> pd.DataFrame:
    """Return the table of all depths with its headings, and numbers to four digits."""
    table = diagnosis.depths.dropna(axis="columns", how="all").rename(columns=HEADINGS)
    return table.map(lambda cell: cell if isinstance(cell, int) else _number(cell))


# --- a finished training -------------------------------------------------------------------------


def training_text(report: TrainingReport, run: str, width: int = 80) -> str:
    """Return the report of `deeplin train`: results, scores, and a comparison with the theory."""
    halved: Any = report.run.evidence["halvings"]
    times = f" {halved} times" if halved > 1 else ""
    notes = [
        *([f"Training diverged at first; the learning rate was halved{times}."] if halved else []),
        *([SCIKIT_LEARN] if report.reading.problem.classes is not None else []),
        *report.remarks,
        *report.reading.notes,
        *_beside_the_theory(report),
    ]
    left = report.left_out
    rows = score_rows(report.scores, left.scores if left else (), left.method if left else "")
    return "\n\n".join(
        [
            _filled(_headline(report), width),
            *([_aligned(rows, width)] if report.run.status != "diverged" else []),
            *(_filled(it, width, "    ") for it in _equations(report)),
            _bullets(notes, width),
            f"Kept in {run}\nPredict new rows:   deeplin predict {run} TABLE\n"
            f"Check the theorems: deeplin certify {run}",
        ]
    )


def _headline(report: TrainingReport) -> str:
    status = str(report.run.status)
    problem = report.reading.problem
    settled = "the network settled"
    if report.separable:
        complete = problem.classes is not None and problem.minimal_risk < 1 / problem.samples / 2
        near = f"the loss came close to its lower limit, {problem.minimal_risk:.3g},"
        settled = "every row is classified right" if complete else near
    did = {
        "converged": f"Trained: {settled} after",
        "stopped": "Not finished: the network was still moving after",
        "diverged": "Not trained: the network diverged after",
    }[status]
    if status == "stopped" and report.done:
        did = "Trained for"
    targets = len(report.reading.targets)
    summed = f" (summed over the {targets} targets)" if targets > 1 else ""
    scaled = " on standardized columns" if report.reading.preparation.standardized else ""
    steps = count_of(int(report.run.steps), "step")
    text = (
        f"{did} {steps} of {report.optimizer}{summed}{scaled}, from "
        f"{STARTS[report.initialization]}, at learning rate {report.learning_rate:.3g}."
    )
    if status == "diverged":
        critical = report.advice.critical_learning_rate
        limit = "" if math.isnan(critical) else f" (above {critical:.3g} nothing can settle)"
        return f"{text} Use a smaller learning rate{limit}."
    if status == "stopped" and problem.has_minimizer and not report.spec.weight_decay:
        learned = 1 - float(report.run.evidence["gap"]) / problem.zero_gap
        if learned > 0:  # never 100%, since it is not finished
            best = "of what least squares explains"
            if problem.classes is not None:
                best = "of the way from equal chances to the smallest loss"
            text += f" It has learned {min(learned, 0.9999):.2%} {best}."
    return text


def _beside_the_theory(report: TrainingReport) -> list[str]:
    """Return how the learning rate and the sharpness at the end compare with the theory's."""
    rate, critical = report.learning_rate, report.advice.critical_learning_rate
    if math.isnan(critical):
        return []
    if rate > critical:
        what = "from almost no start does training settle"
        if report.spec.adaptive:
            what = "training comes close to a solution, but does not stay there"
        return [f"The learning rate is above the critical one, {critical:.3g}: {what}."]
    found = [f"The learning rate is below the critical one, {critical:.3g}."]
    least, limit = report.advice.minimal_sharpness, report.largest_stable_sharpness
    if report.run.status == "converged" and not math.isnan(limit):
        found.append(
            f"The sharpness at the end is {report.sharpness:.4g}. No solution is flatter than "
            f"S_min = {least:.4g}, and at this learning rate those sharper than {limit:.4g} are "
            "unstable."
        )
        if report.sharpness > limit:
            found.append("Training would leave this solution again.")
    return [" ".join(found)]


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
    heads = ("LogisticRegression", "most frequent") if classes else ("least squares", "the mean")
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


def count_of(number: int, name: str) -> str:
    """Return a number with its noun, such as "1 step" or "2 steps"."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


# --- layout --------------------------------------------------------------------------------------


def _filled(text: str, width: int, indent: str = "") -> str:
    """Wrap a sentence, and never an option such as --weight-decay within it."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


def _bullets(sentences: Iterable[str], width: int) -> str:
    return "\n".join(_filled(f"- {it}", width, "  ") for it in sentences)


def _aligned(rows: Sequence[tuple[str, ...]], width: int) -> str:
    """Return rows of cells as aligned columns; a long last cell is wrapped in its column."""
    count = max(map(len, rows))
    full = [(*row, *[""] * (count - len(row))) for row in rows]
    sizes = [max(len(row[j]) for row in full) for j in range(count - 1)]
    lines = []
    for row in full:
        before = "  " + "".join(f"{cell:<{n + 2}}" for cell, n in zip(row, sizes, strict=False))
        space = max(width - len(before), 20)
        first, *more = textwrap.wrap(row[-1], space, break_on_hyphens=False) or [""]
        lines.append((before + first).rstrip())
        lines += [" " * len(before) + line for line in more]
    return "\n".join(lines)


def _number(value: Any, style: str = ".4g") -> str:
    return "–" if value is None or value != value else f"{value:{style}}"

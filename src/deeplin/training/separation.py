"""Classes that a hyperplane separates from the others, so that the loss has no minimum (X-16)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deeplin.problems import Problem

LARGEST_SEPARATION = 10**6
"""Most numbers, of all classes, for which separated classes are looked for."""


def remark_on_separation(problem: Problem) -> str:
    """Return which classes a hyperplane separates, and what follows."""
    follows = (
        "No rate is critical, but one that is too large still diverges on the way. Weight decay "
        "gives a minimum (--weight-decay)."
    )
    if problem.classes is None:
        return f"The loss has no minimum on these data: weights grow without end. {follows}"
    if problem.minimal_risk < math.log(2) / problem.samples:
        how = "A hyperplane separates the classes"
        if problem.outputs > 1:
            how = "Linear functions of the inputs classify every row correctly"
        return (
            f"{how}, so that there is no minimum: the loss tends to 0 as the weights grow without "
            f"end, and the sharpness with it. {follows}"
        )
    rest = f"the loss falls towards {problem.minimal_risk:.3g} without a minimum"
    names = [str(name) for name in separated_classes(problem)]
    if not names:
        return (
            "A hyperplane separates some rows from those of other classes: their weights grow "
            f"without end, and {rest}. {follows}"
        )
    one = len(names) == 1
    return (
        f"A hyperplane separates {'the class' if one else 'each of the classes'} "
        f"{', '.join(names)} from all others, and the other classes overlap: the weights of "
        f"{'this class' if one else 'these classes'} grow without end, and {rest}. {follows}"
    )


def separated_classes(problem: Problem) -> tuple[Any, ...]:
    """Return the classes that a hyperplane separates from all others; () if there are many rows.

    A linear program looks for a direction v with s_i vᵀx_i ≥ 1 for all rows, s_i the sign of the
    class.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import separated_classes
    x = np.array([[0.0], [1.0], [2.0], [1.5], [2.5]])
    rows, labels = np.hstack([x, np.ones((5, 1))]), ["a", "b", "b", "c", "c"]
    assert separated_classes(dl.Problem.from_data(rows, labels, loss="softmax")) == ("a",)
    ```
    """
    from scipy.optimize import linprog

    X, Y = problem.require_data("the separation of classes")
    assert problem.classes is not None
    if X.size * len(problem.classes) > LARGEST_SEPARATION:
        return ()
    labels = (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(axis=1)
    found = []
    for k, name in enumerate(problem.classes.tolist()):
        signs = np.where(labels == k, 1.0, -1.0)
        size, rows = np.zeros(X.shape[1]), -signs[:, None] * X
        answer = linprog(size, A_ub=rows, b_ub=-np.ones(len(X)), bounds=(None, None))
        if answer.status == 0:
            found.append(name)
    return tuple(found)

"""The statements of the papers, executable: bounds, exact values, certificates."""

from deeplin.theory.certificate import Certificate, certify
from deeplin.theory.minimal_sharpness import (
    MinimalSharpness,
    balanced_sharpness,
    critical_learning_rate,
    minimal_sharpness,
    minimizer_lower_bound,
)
from deeplin.theory.statements import STATEMENTS, Check, NotApplicable, Statement, statement

__all__ = [
    "STATEMENTS",
    "Certificate",
    "Check",
    "MinimalSharpness",
    "NotApplicable",
    "Statement",
    "balanced_sharpness",
    "certify",
    "critical_learning_rate",
    "minimal_sharpness",
    "minimizer_lower_bound",
    "statement",
]

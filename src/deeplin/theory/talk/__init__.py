"""What the talk adds to the paper."""

from deeplin.theory.talk.logistic import logistic_descent

__all__ = ["logistic_descent"]

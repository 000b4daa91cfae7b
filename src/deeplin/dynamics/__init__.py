"""Dynamics: gradient descent, gradient flow, exact reduction of wide networks."""

from deeplin.dynamics.descent import gradient_descent
from deeplin.dynamics.run import Records, Run

__all__ = ["Records", "Run", "gradient_descent"]

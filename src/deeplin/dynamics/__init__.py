"""Dynamics: gradient descent, gradient flow, exact reduction of wide networks."""

from deeplin.dynamics._central_flow import central_flow
from deeplin.dynamics.descent import gradient_descent
from deeplin.dynamics.flow import Gap, GradientNorm, gradient_flow
from deeplin.dynamics.reduction import Reduction, reduce
from deeplin.dynamics.run import Records, Run
from deeplin.dynamics.wide import simulate_wide
from deeplin.dynamics.wide_run import UnstableStep, WideRun

__all__ = [
    "Gap",
    "GradientNorm",
    "Records",
    "Reduction",
    "Run",
    "UnstableStep",
    "WideRun",
    "central_flow",
    "gradient_descent",
    "gradient_flow",
    "reduce",
    "simulate_wide",
]

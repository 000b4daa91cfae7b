# ruff: noqa: I001 (several names on one line)
#
# The public names, and the modules that define them (`as` makes a name public in a stub).

from . import (
    papers as papers,
    plot as plot,
    problems as problems,
    sweep as sweep,
    theory as theory,
    training as training,
)
from .certificates.certificate import certify as certify
from .dynamics import (
    Gap as Gap,
    GradientNorm as GradientNorm,
    central_flow as central_flow,
    gradient_descent as gradient_descent,
    gradient_flow as gradient_flow,
    reduce as reduce,
    simulate_wide as simulate_wide,
)
from .dynamics.saved import load_run as load_run, save_run as save_run
from .errors import InputError as InputError
from .hessian import (
    SharpnessMonitor as SharpnessMonitor,
    TorchLoss as TorchLoss,
    hessian_spectrum as hessian_spectrum,
    hessian_trace as hessian_trace,
    sharpness as sharpness,
    sharpness_along as sharpness_along,
    spectral_density as spectral_density,
    unflatten as unflatten,
)
from .networks import Network as Network, initialize as initialize, stack as stack
from .networks.torch import from_arrays as from_arrays, from_torch as from_torch
from .problems import (
    Population as Population,
    Problem as Problem,
    population_risk as population_risk,
)
from .sklearn import (
    DeepLinearClassifier as DeepLinearClassifier,
    DeepLinearRegressor as DeepLinearRegressor,
)
from .tables.reading import read_problem as read_problem
from .theory import (
    critical_learning_rate as critical_learning_rate,
    double_descent as double_descent,
    minimal_sharpness as minimal_sharpness,
)
from .training import diagnose as diagnose, train as train

__version__: str

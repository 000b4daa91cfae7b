"""Compiled code and nothing else, behind one table.

Every kernel repeats what a few lines of NumPy say; those lines are its oracle in the tests, and
`make bench` measures what it gains over NumPy or JAX. A kernel that gains less than twice goes.
Descent and exact sharpness treat several networks at once with `lanes`; tracking, where each one
needs its own number of products, takes them one by one; the rotations of the singular values run
over a longer trailing axis of matrices.
"""

from typing import NamedTuple


class Kernel(NamedTuple):
    """One row of the table."""

    operation: str
    """What is computed."""
    kernel: str
    """Module and function."""
    oracle: str
    """The test that compares it with plain NumPy, LAPACK or automatic differentiation."""
    measured: str
    """Row of `make bench` that tells what it gains."""


TABLE = (
    Kernel(
        "descent of linear networks, in lanes",
        "linear",
        "tests/dynamics/test_kernels.py::test_kernels_follow_autodiff_for_any_shape",
        "descent, linear",
    ),
    Kernel(
        "descent of GELU and ReLU networks on their rows, in lanes",
        "rows",
        "tests/dynamics/test_kernels.py::test_gelu_kernel_follows_autodiff_for_any_number_of_rows",
        "descent, GELU",
    ),
    Kernel(
        "Hessian-vector products of linear networks with one output",
        "hessian.multiply_members",
        "tests/sharpness/test_operators.py::test_products_are_those_of_the_dense_hessian",
        "kernel: Hessian-vector products",
    ),
    Kernel(
        "the largest eigenvalue of any operators that move",
        "tracking.advance_members",
        "tests/sharpness/test_follower.py::test_value_is_accurate_to_the_square_of_the_tolerance",
        "tracked_sharpness",
    ),
    Kernel(
        "sharpness of linear networks along their records",
        "sharpness_along.along_kernel",
        "tests/sharpness/test_tracking.py::test_error_covers_the_truth_at_every_record",
        "sharpness of 200 networks at every step",
    ),
    Kernel(
        "sharpness of narrow networks at minimisers (X-1)",
        "exact_sharpness.exact_kernel",
        "tests/sharpness/test_exact.py::test_kernel_and_matrices_give_the_same_value_and_error",
        "exact_sharpness",
    ),
    Kernel(
        "extreme singular values and vectors of many small matrices",
        "singular_values.extreme_singular",
        "tests/theory/test_small_initialization.py::test_extreme_singular_values_are_those_of_lapack",
        "kernel: singular values",
    ),
    Kernel(
        "imbalance of neighbouring layers of many small networks (FM-L1)",
        "imbalance.subtract_squares",
        "tests/networks/test_products.py::test_imbalance_is_that_of_numpy_for_every_width",
        "kernel: imbalance",
    ),
)
"""`lanes`, `activations` and `compiling` are what they are made of."""

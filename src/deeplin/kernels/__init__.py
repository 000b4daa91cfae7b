"""Compiled code and nothing else, behind one table.

Every kernel repeats what a few lines of NumPy say; those lines are its oracle in the tests, and
`make bench` measures what it gains over NumPy or JAX. A kernel that gains less than twice goes.
What treats several networks or matrices at once does it with `lanes`.
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
        "descent of ReLU networks one by one on their rows, units in lanes",
        "rectified",
        "tests/dynamics/test_kernels.py::test_relu_kernel_of_units_follows_autodiff_for_any_shape",
        "descent, ReLU of 50 units over JAX",
    ),
    Kernel(
        "GELU and ReLU with their slopes, and powers of two, in lanes",
        "activations",
        "tests/dynamics/test_kernels.py::test_gelu_and_its_slope_are_accurate_to_rounding",
        "descent, GELU",
    ),
    Kernel(
        "weights and values of lanes at many steps of a descent, written where records are kept",
        "snapshots",
        "tests/dynamics/test_kernels.py::test_a_snapshot_of_lanes_is_what_was_packed_into_them",
        "descent of 200 networks with risk and sharpness at every step, over tracking alone",
    ),
    Kernel(
        "momentum, weight decay, rates of layers and schedules, in lanes (at most 1.1 of plain)",
        "moving",
        "tests/dynamics/test_optimizers.py::test_every_option_is_a_plain_loop",
        "descent, weight decay over plain",
    ),
    Kernel(
        "mini-batches without replacement for every network and step",
        "batches.draw_all",
        "tests/dynamics/test_optimizers.py::test_the_rows_are_the_shuffle_they_are_said_to_be",
        "kernel: mini-batches",
    ),
    Kernel(
        "descent of one wide linear network by updates of rank q",
        "wide.descend",
        "tests/dynamics/test_rank_steps.py::test_steps_are_those_of_dense_descent",
        "kernel: descent of one wide network",
    ),
    Kernel(
        "gradient flow of linear networks, each with its own steps",
        "flow.flow_members",
        "tests/dynamics/test_flow_limit.py::test_the_flow_ends_where_that_of_scipy_does",
        "kernel: gradient flow",
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
        "sharpness_along.along",
        "tests/sharpness/test_tracking.py::test_error_covers_the_truth_at_every_record",
        "sharpness of 200 networks at every step",
    ),
    Kernel(
        "sharpness of narrow networks at minimisers (X-1)",
        "exact_sharpness.largest_eigenvalues",
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
"""`lanes`, `products`, `units`, `pursuit`, `ritz` and `compiling` are what they are made of."""

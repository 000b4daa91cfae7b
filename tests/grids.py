"""Tables for tests: one row for each combination of the values of some columns."""

from itertools import product

import pandas as pd


def grid(**columns):
    """`grid(depth=(2, 3), repetition=range(4))` has eight rows; the last column runs fastest."""
    return pd.DataFrame(list(product(*columns.values())), columns=[*columns])

"""The former place of `deeplin.sklearn`, where estimators pickled by version 0.2 are looked up."""

from deeplin.sklearn import DeepLinearRegressor as DeepLinearRegressor

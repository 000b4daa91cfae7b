"""Every statement of the papers and of the exact results, evaluated on a context."""

from deeplin.certificates.registry import CATALOGUE, STATEMENTS
from deeplin.certificates.statements import (
    benign_overfitting as benign_overfitting,
)
from deeplin.certificates.statements import (
    exact as exact,
)
from deeplin.certificates.statements import (
    flat_minima as flat_minima,
)
from deeplin.certificates.statements import (
    wide_networks as wide_networks,
)

for _id in CATALOGUE:  # in the order in which certificates list them
    STATEMENTS[_id] = STATEMENTS.pop(_id)

"""The two memory layouts of descent, both to be tried on small networks."""

import pytest

from deeplin.networks import batch_last

LAYOUTS = {"batch last": 16, "batch first": 0}


@pytest.fixture(params=LAYOUTS)
def layout(request, monkeypatch):
    """Train narrow linear networks in this layout."""
    monkeypatch.setattr(batch_last, "NARROW", LAYOUTS[request.param])
    return request.param

"""beartype for annotations that state shapes (`Float[Array, "samples inputs"]`), and only those.

Other annotations say what a caller should pass; what happens when something else comes is for
`deeplin.errors` to say in a sentence, and for the tests to see.
"""

import re

from beartype import beartype

SHAPE = re.compile(r"\b(Shaped|Bool|Num|Inexact|Float|Complex|Integer|Int|UInt|Real)\d*\[")


def check(function):
    """The function with its shapes checked at every call."""
    annotations = getattr(function, "__annotations__", {})
    stated = {name: kind for name, kind in annotations.items() if SHAPE.search(str(kind))}
    if isinstance(function, type) or not stated:
        return function
    function.__annotations__ = stated
    return beartype(function)

"""The papers and the talk: their figures, quotes, errata, and the report.

`quotes()` lists every quoted sentence with its verdict; `figure(name, ...)` varies a figure, or
draws it for data of one's own.
"""

_HOMES = {"figure": "catalogue", "quotes": "sentences"}
__all__ = ["figure", "quotes"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    """Import the list of quotes or the figures when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'deeplin.papers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"deeplin.papers.{_HOMES[name]}"), name)

"""The papers and the talk: their figures, quotes, errata, and the report.

`quotes()` lists every quoted sentence with its verdict, `figure(name, ...)` varies a figure;
`catalogue` lists the figures.
"""


def __getattr__(name: str):
    """Import the list of quotes or the figures when they are first used."""
    if name not in ("figure", "quotes"):
        raise AttributeError(f"module 'deeplin.papers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("deeplin.papers.catalogue"), name)

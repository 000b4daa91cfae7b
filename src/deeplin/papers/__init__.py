"""The papers and the talk: their figures, what they say, errata, and the report.

`quotes()` lists every quoted sentence with its verdict; `catalogue` lists the figures.
"""


def __getattr__(name: str):
    """Import the list of quotes, and with it all figures, when it is first used."""
    if name != "quotes":
        raise AttributeError(f"module 'deeplin.papers' has no attribute {name!r}")
    from deeplin.papers.catalogue import quotes

    return quotes

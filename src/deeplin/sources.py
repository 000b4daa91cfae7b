"""Sources of statements and figures: the papers, the talk and this library."""

from __future__ import annotations

SOURCES = {
    "FM": {
        "key": "marion2024flat",
        "type": "inproceedings",
        "author": "Marion, Pierre and Chizat, Lénaïc",
        "title": "Deep linear networks for regression are implicitly regularized "
        "towards flat minima",
        "booktitle": "Advances in Neural Information Processing Systems",
        "year": "2024",
        "doi": "10.52202/079017-2445",
        "url": "https://arxiv.org/abs/2405.13456",
    },
    "BO": {
        "key": "chatterji2023benign",
        "type": "article",
        "author": "Chatterji, Niladri S. and Long, Philip M.",
        "title": "Deep linear networks can benignly overfit when shallow ones do",
        "journal": "Journal of Machine Learning Research",
        "volume": "24",
        "number": "117",
        "pages": "1--39",
        "year": "2023",
        "url": "https://arxiv.org/abs/2209.09315",
    },
    "Talk": {
        "key": "marion2024three",
        "type": "misc",
        "author": "Marion, Pierre",
        "title": "Three stories on deep linear networks",
        "note": "Slides, SIGMA 2024 workshop, CIRM, Marseille",
        "year": "2024",
        "url": "https://pierremarion23.github.io",
    },
    "X": {
        "key": "deeplin",
        "type": "software",
        "author": "{The deeplin authors}",
        "title": "deeplin: deep linear networks as an exact instrument",
        "year": "2026",
    },
}


def reference(source: dict[str, str]) -> str:
    """Return a source as one line of a list of references, without its address."""
    people = [" ".join(reversed(name.split(", "))) for name in source["author"].split(" and ")]
    place = source.get("journal") or source.get("booktitle") or source.get("note", "")
    volume = source.get("volume", "") + (f"({source['number']})" if "number" in source else "")
    pages = source.get("pages", "").replace("--", "–")
    where = ", ".join(filter(None, [" ".join(filter(None, [place, volume])), pages]))
    return f"{' and '.join(people)}: {source['title']}. {where}, {source['year']}."

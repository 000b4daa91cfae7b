"""Check that every quoted sentence stands in the texts of the papers.

`python docs/check_quotes.py FOLDER`, where the folder has the papers and the talk as text files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deeplin.papers.sentences import LEFT_OUT, QUOTES, missing

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sentences = [*QUOTES, *LEFT_OUT]
    lost = missing(sentences, folder)
    for quote in lost:
        print(f"Not found: {quote.paper}, {quote.place}: “{quote.text}”")
    print(f"{len(sentences) - len(lost)} of {len(sentences)} quoted sentences stand in {folder}.")
    raise SystemExit(bool(lost))

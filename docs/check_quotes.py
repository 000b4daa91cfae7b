"""Check that every quoted sentence stands in the texts of the papers.

`python docs/check_quotes.py FOLDER`, where the folder has the papers and the talk as text files.
"""

import re
import sys
import unicodedata
from pathlib import Path

from deeplin.papers.sentences import LEFT_OUT, QUOTES

ELISION = "[…]"
"""Mark of an omission in a quote."""
LIGATURES = re.compile(r"ff[il]?|f[il]")
APART, PIECE = 4_000, 15
"""Maximum number of letters of an interruption by a figure or footnote, and minimum on each side of
it."""


def main(folder: Path) -> int:
    """Print the sentences that stand in no text; return 1 if there is one."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".md"))
    texts = [letters(path.read_text(encoding="utf-8", errors="replace")) for path in paths]
    quotes = [*QUOTES, *LEFT_OUT]
    lost = [quote for quote in quotes if not any(stands(quote.text, text) for text in texts)]
    for quote in lost:
        print(f"Not found: {quote.paper}, {quote.place}: “{quote.text}”")
    print(f"{len(quotes) - len(lost)} of {len(quotes)} quoted sentences stand in {folder}.")
    return int(bool(lost))


def letters(text: str) -> str:
    """Reduce a text to the letters that every extraction from a PDF keeps.

    ASCII letters in lower case; letters that extractions lose (Greek, ligatures) become `*`.
    """
    kept = "".join(
        char.lower() if char.isascii() and char.isalpha()
        else "*" if char == "\ufffd" or unicodedata.category(char).startswith("L")
        else ""
        for char in unicodedata.normalize("NFC", text)
    )  # fmt: skip
    return re.sub(r"\*+", "*", LIGATURES.sub("*", kept))


def stands(quote: str, text: str) -> bool:
    """Return whether the pieces between elisions follow one another in the letters of a text."""
    place = 0
    for piece in map(letters, quote.split(ELISION)):
        place = after(piece, text, place)
        if place < 0:
            return False
    return True


def after(piece: str, text: str, place: int) -> int:
    """Return where a piece ends in the text; −1 if not found.

    A page break may put a figure or a footnote into it once.
    """
    found = text.find(piece, place)
    if found >= 0:
        return found + len(piece)
    for cut in range(len(piece) - PIECE, PIECE - 1, -1):
        first = text.find(piece[:cut], place)
        if first >= 0:
            rest = text.find(piece[cut:], first + cut, first + cut + APART)
            return -1 if rest < 0 else rest + len(piece) - cut
    return -1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))

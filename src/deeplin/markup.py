"""Tables as LaTeX, Markdown and HTML: escaped text, aligned columns."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0307": "dot"}
GREEK = {
    letter: unicodedata.name(letter).split()[-1].lower().replace("lamda", "lambda")
    for letter in "αβγδεζηθικλμνξπρστφχψω"
}
CAPITALS = {unicodedata.lookup(f"GREEK CAPITAL LETTER {n}"): n.title() for n in
            ("GAMMA", "DELTA", "THETA", "XI", "PI", "SIGMA", "PHI", "PSI", "OMEGA")}  # fmt: skip
SIGNS = {
    "Λ": r"\Lambda", "‖": r"\|", "ℒ": r"\mathcal{L}", "←": r"\leftarrow", "→": r"\to",
    "↦": r"\mapsto", "∇": r"\nabla", "−": "-", "√": r"\surd", "∞": r"\infty", "∫": r"\int",
    "≠": r"\neq", "≤": r"\leq", "≥": r"\geq", "⊆": r"\subseteq", "⊥": r"\perp", "⋯": r"\cdots",
    "⌊": r"\lfloor", "⌋": r"\rfloor", "⟨": r"\langle", "⟩": r"\rangle", "⪯": r"\preceq",
    "⪰": r"\succeq", "·": r"\cdot", "×": r"\times", "±": r"\pm", "½": r"\frac{1}{2}",
    "ᵀ": r"^{\top}", "∈": r"\in", "≈": r"\approx", "ℓ": r"\ell", "∑": r"\sum", "⊗": r"\otimes",
    "<": "<", ">": ">", "|": "|", "′": "'",
}  # fmt: skip
TEXT = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "—": "---", "…": r"\dots{}", "“": "``", "”": "''", "’": "'", "ß": r"\ss{}",
    "æ": r"\ae{}", "ø": r"\o{}", "Ł": r"\L{}", "ł": r"\l{}", "\u00a0": "~",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip
LETTER_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0307": ".", "\u0308": '"',
    "\u030c": "v", "\u0327": "c",
}  # fmt: skip


def latex(text: str) -> str:
    """Return text as ASCII for LaTeX, including mathematics.

    A character without a LaTeX name becomes its code point: `\\texttt{U+2603}`.
    """
    found = []
    for cluster in re.findall(r".[\u0300-\u036f]*", text, re.DOTALL):
        base, *marks = unicodedata.normalize("NFD", cluster)
        if len(cluster) > 1 and all(mark in ACCENTS for mark in marks):  # as in Σ̂: mathematics
            inner = _symbol(base) or base
            for mark in marks:
                inner = f"\\{ACCENTS[mark]}{{{inner}}}"
            found.append(rf"\ensuremath{{{inner}}}")
        elif len(marks) == 1 and base.isascii() and marks[0] in LETTER_ACCENTS:
            found.append(f"\\{LETTER_ACCENTS[marks[0]]}{{{base}}}")
        else:
            found.append("".join(map(_single, cluster)))
    return "".join(found)


def _single(character: str) -> str:
    if character in TEXT:
        return TEXT[character]
    symbol = _symbol(character)
    if symbol:
        return rf"\ensuremath{{{symbol}}}"
    if character.isascii():
        return character if character.isprintable() else " "
    return rf"\texttt{{U+{ord(character):04X}}}"


def _symbol(character: str) -> str:
    """Return the name of a mathematical sign in LaTeX, or nothing."""
    names = GREEK | CAPITALS
    if character in names:
        return f"\\{names[character]}"
    if character in SIGNS:
        return SIGNS[character]
    kind, _, plain = unicodedata.decomposition(character).partition(" ")
    if kind in ("<super>", "<sub>"):
        inner = chr(int(plain, 16)).replace("−", "-")
        return f"{'^' if kind == '<super>' else '_'}{{{inner}}}"
    return ""


def latex_table(head: Sequence[str], rows: Iterable[Sequence[str]], columns: str) -> str:
    """Return a `tabular` with rules of booktabs; `columns` is its column specification."""
    lines = [" & ".join(map(latex, row)) + r" \\" for row in (head, *rows)]
    body = "\n".join(lines[1:])
    start, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return f"{start}\n\\toprule\n{lines[0]}\n\\midrule\n{body}\n\\bottomrule\n{end}\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in GitHub's Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"\s", " ", c).replace("|", r"\|") for c in cells) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)]) + "\n"


def html_table(rows: Mapping[str, str], caption: str = "") -> str:
    """Return a table of names and values, for a notebook."""
    cells = (
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    head = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{head}{''.join(cells)}</table>"

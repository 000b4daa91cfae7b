"""While the site is built: formulas become MathML (no script, no network), the explorer goes in."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?:\\\(|\\\[)(?P<latex>.*?)(?:\\\)|\\\])</(?P=tag)>',
    re.DOTALL,
)


LONG = 40
"""Characters of LaTeX from which a formula in a line may be wider than a phone: it then scrolls."""


def on_page_content(page_html: str, **_) -> str:
    """Replace every formula that the arithmatex extension marked."""

    def mathml(match: re.Match) -> str:
        latex = html.unescape(match["latex"])
        if match["tag"] == "div":
            return convert(latex, display="block")
        formula = convert(latex, display="inline")
        return f'<span class="formula">{formula}</span>' if len(latex) > LONG else formula

    return FORMULA.sub(mathml, page_html)


def on_post_build(config, **_) -> None:
    """Put the explorer beside the page that shows it in a frame."""
    from deeplin.explorer.build import page

    Path(config["site_dir"], "explorer-page.html").write_text(page(), encoding="utf-8")

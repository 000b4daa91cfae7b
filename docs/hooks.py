"""While the site is built: formulas become MathML (no script, no network), the explorer goes in."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?:\\\(|\\\[)(?P<latex>.*?)(?:\\\)|\\\])</(?P=tag)>',
    re.DOTALL,
)


def on_page_content(page_html: str, **_) -> str:
    """Replace every formula that the arithmatex extension marked."""

    def mathml(match: re.Match) -> str:
        display = "block" if match["tag"] == "div" else "inline"
        return convert(html.unescape(match["latex"]), display=display)

    return FORMULA.sub(mathml, page_html)


def on_post_build(config, **_) -> None:
    """Put the explorer beside the page that shows it in a frame."""
    from deeplin.explorer.build import page

    Path(config["site_dir"], "explorer-page.html").write_text(page(), encoding="utf-8")

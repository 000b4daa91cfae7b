"""While the site is built: formulas become MathML, notebooks pages, the explorer goes in."""

import html
import json
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

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


def on_files(files, config, **_):
    """Add a page for each notebook, with its outputs."""
    for path in sorted((Path(config["docs_dir"]).parent / "examples").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        text = "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


def _cell(cell):
    """The Markdown of a cell and of what it shows."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source.replace(".ipynb)", ".md)")
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            yield f"![The plot of the cell above](data:image/png;base64,{picture})"
        elif "text/html" in data:
            table = re.sub(
                "<table[^>]*>", "<table>", "".join(data["text/html"])
            )  # the site's style
            yield f'<div class="output">{table}</div>'.replace("\n", "")
        else:
            yield f"```text\n{''.join(output.get('text') or data['text/plain'])}\n```"


def on_post_build(config, **_) -> None:
    """Put the explorer beside the page that shows it in a frame."""
    from deeplin.explorer.build import page

    Path(config["site_dir"], "explorer-page.html").write_text(page(), encoding="utf-8")

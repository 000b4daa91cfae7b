"""Run the scripts of `examples/gallery` and make their pages: `make gallery`.

Each page has the question, the code, what the script prints and its picture; the same cells are
saved as a notebook. With `--check` nothing is written, and what a script prints is compared with
its page.
"""

import argparse
import ast
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
CELL = re.compile(r"^# %%\n((?:#[^\n]*\n)*)", re.MULTILINE)
SAVE = """import sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.rcParams.update({"figure.figsize": (6.4, 4.2), "font.size": 13, "legend.fontsize": 12})
plt.show = lambda: plt.savefig(sys.argv[2], dpi=110)
import runpy
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def names():
    """The names of the scripts, in alphabetical order."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py"))


def parts(name):
    """The title, the text below it, and the cells (text, code) of a script."""
    source = (SCRIPTS / f"{name}.py").read_text("utf-8")
    title, _, text = ast.get_docstring(ast.parse(source)).partition("\n")
    body = source.split('"""\n', 2)[2]
    pieces = CELL.split(body)
    cells = [("", pieces[0].strip())]
    for comment, code in zip(pieces[1::2], pieces[2::2], strict=True):
        words = "\n".join(line.removeprefix("#").strip() for line in comment.splitlines())
        cells.append((words, code.strip()))
    return title, text.strip().lstrip("=").strip(), cells


def run(name, picture):
    """Run a script, save its picture, and return what it prints."""
    command = [sys.executable, "-c", SAVE, str(SCRIPTS / f"{name}.py"), str(picture)]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{name}.py failed:\n{done.stderr}")
    return done.stdout


def page(name, printed):
    """The page of a script, in Markdown."""
    title, text, cells = parts(name)
    lines = [f"# {title}", "", text, ""]
    for words, code in cells:
        lines += ([words, ""] if words else []) + ["```python", code, "```", ""]
    lines += ["Output:", "", "```text", printed.rstrip(), "```", ""]
    lines += [f"![The picture that the script draws]({name}.png)", ""]
    lines += [f"[Notebook]({name}.ipynb) · script: `examples/gallery/{name}.py`", ""]
    return "\n".join(lines)


def notebook(name):
    """The script as a notebook, not run."""
    title, text, cells = parts(name)
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_markdown_cell(f"# {title}\n\n{text}")]
    for words, code in cells:
        book.cells += [nbformat.v4.new_markdown_cell(words)] if words else []
        book.cells += [nbformat.v4.new_code_cell(code)]
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"  # the same file every time
    return nbformat.writes(book)


def recorded(name):
    """What the page says that the script prints."""
    text = (PAGES / f"{name}.md").read_text("utf-8")
    return text.split("Output:\n\n```text\n")[1].split("\n```")[0]


def agree(found, shown):
    """Whether two texts have the same words, and numbers within two percent (of what is large).

    Runs at the edge of stability are chaotic, and a gap of 1e-30 is rounding.
    """
    if NUMBER.sub("#", found).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(map(float, NUMBER.findall(found)), map(float, NUMBER.findall(shown)), strict=True)
    return all(math.isclose(a, b, rel_tol=0.02, abs_tol=1e-6) for a, b in pairs)


def index():
    """The page that shows all pictures."""
    lines = [
        "# Gallery",
        "",
        "One question, one script, one picture. Copy a script and change it.",
        "",
    ]
    lines += ['<div class="gallery" markdown>', ""]
    for name in names():
        title = parts(name)[0]
        lines += [f'[![]({name}.png){{ alt="" }}<br>{title}]({name}.md)', ""]
    return "\n".join([*lines, "</div>", ""])


def main():
    """Run the scripts that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scripts, by name; all if none is given")
    parser.add_argument("--check", action="store_true", help="compare with the pages")
    arguments = parser.parse_args()
    PAGES.mkdir(exist_ok=True)
    for name in arguments.names or names():
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "picture.png" if arguments.check else PAGES / f"{name}.png"
            printed = run(name, picture)
        if arguments.check:
            if not agree(printed, recorded(name)):
                raise SystemExit(f"{name}.py prints:\n{printed}\nIts page has:\n{recorded(name)}")
            continue
        (PAGES / f"{name}.md").write_text(page(name, printed), "utf-8")
        (PAGES / f"{name}.ipynb").write_text(notebook(name), "utf-8")
        print(f"{name}\n{printed}")
    if not arguments.check:
        (PAGES / "index.md").write_text(index(), "utf-8")


if __name__ == "__main__":
    main()

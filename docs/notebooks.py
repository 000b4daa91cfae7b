"""Run the notebooks of examples/ and keep what they show: `python docs/notebooks.py [name …]`."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples"


def main(names):
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        NotebookClient(
            notebook, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
        ).execute()
        for cell in notebook["cells"]:  # when a cell ran is no part of what it shows
            cell["metadata"].pop("execution", None)
        notebook["metadata"]["language_info"] = {"name": "python"}  # nor which Python it was
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])

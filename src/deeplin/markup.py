"""Tables of names and values for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping


def html_table(rows: Mapping[str, str], caption: str = "") -> str:
    """Return a table of names and values, for a notebook."""
    cells = (
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    head = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{head}{''.join(cells)}</table>"

"""The page as one self-contained HTML file with modules, style and settings.

The modules keep to a small part of the language (imports by name from `./file.js`, exports in
front of declarations, no cycles), so that bundling only wraps each module in a function. A worker
runs the same text with another entry point.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

PAGE = files("deeplin.explorer") / "page"
IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./(\w+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
INDENT = re.compile(r"^ +", re.MULTILINE)
COMMENT = re.compile(r"^ *(?://[^\n]*|/\*\*.*?\*/)\n", re.MULTILINE | re.DOTALL)
"""A comment on separate lines; strings of the modules do not span lines."""
START = """const modules = {};
const define = (name, body) => { let made; modules[name] = () => (made ??= body()); };
const use = (name) => modules[name]();
"""


def page() -> str:
    """Return the whole page."""
    settings = {"inputs": inputs(), "presets": presets()}
    script, style = bundle(), read("style.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "worker-src blob:",
            "img-src data: blob:",
            "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    data = json.dumps(settings, ensure_ascii=False, separators=(",", ":"))
    data = data.replace("</", "<\\/").replace("<!", "\\u003c!")  # could end the block
    parts = {
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{style}</style>",
        "settings": f'<script type="application/json" id="settings">{data}</script>',
        "modules": f'<script type="module" id="modules">{script}</script>',
    }
    html = read("index.html")
    for name, part in parts.items():
        html = html.replace(f"<!-- {name} -->", part)
    return html


def inputs() -> dict[str, Any]:
    """Return every input of the page: label, bounds, default."""
    return json.loads(read("inputs.json"))


def presets() -> dict[str, Any]:
    """Return every preset: title, the inputs that differ from their defaults, story."""
    return json.loads(read("presets.json"))


@cache
def bundle() -> str:
    """Return all modules as one text, each as a function that runs when it is first used."""
    names = sorted(entry.name for entry in PAGE.iterdir() if entry.name.endswith(".js"))
    defined = [f'define("{name}", () => {{\n{_module(read(name))}}});\n' for name in names]
    return START + "".join(defined) + 'use(globalThis.entry ?? "main.js").start();\n'


def _module(source: str) -> str:
    """Return a module as the body of a function that returns its exports."""

    def use(match: re.Match[str]) -> str:
        names, everything, path = match.groups()
        wanted = everything or "{" + names.replace(" as ", ": ") + "}"
        return f'const {wanted} = use("{path}");\n'

    exported = ", ".join(name for _, name in EXPORT.findall(source))
    body = EXPORT.sub(r"\1 \2", IMPORT.sub(use, source))
    body = INDENT.sub("", COMMENT.sub("", body))  # a third of the file
    return f"{body}return {{ {exported} }};\n"


@cache
def read(name: str) -> str:
    """Return the text of a file of the page."""
    return (PAGE / name).read_text("utf-8")


def _hash(text: str) -> str:
    """Return the hash of a script for the content security policy, which allows no other script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

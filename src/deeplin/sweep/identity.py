"""What a function depends on besides its arguments, as hashes by name.

These are the source of the function and, recursively, of the user's functions and classes that it
names, and the values of the other globals, closures and default arguments that it reads. Installed
packages are identified by their names.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import hashlib
import importlib
import inspect
import pickle
import sys
import textwrap
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from deeplin.errors import InputError

PLAIN = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict)
CODE = ("code", "consts", "names", "varnames", "freevars", "cellvars", "flags")
"""Attributes of a code object that stand for a source that cannot be read."""


def dependencies(function: types.FunctionType) -> dict[str, str]:
    """Return a hash for everything of the user's that a function depends on, by name.

    Raises InputError for a value that cannot be compared with that of an earlier call.

    ```python
    from deeplin.sweep.identity import dependencies

    factor = 2
    def double(x):
        return factor * x

    before = dependencies(double)
    factor = 3
    after = dependencies(double)
    assert before["double"] == after["double"]
    assert before["factor"] != after["factor"]
    ```
    """
    found = _Dependencies()
    found.digest(function, function.__name__)
    return found.hashes


class _Dependencies:
    """Hashes by name; `digest` adds those of the user's functions and classes in a value."""

    def __init__(self):
        self.hashes: dict[str, str] = {}
        self._known: dict[int, Any] = {}
        """Functions and classes by id; kept so that no id is used twice."""
        self._read: set[tuple[int, str]] = set()
        """Globals that were read: the id of their namespace, and their name."""

    def digest(self, value: Any, name: str) -> str:
        """Return a hash that is the same for equal values; `name` is that of the global."""
        content = hashlib.blake2b(digest_size=12)
        try:
            _ValuePickler(types.SimpleNamespace(write=content.update), self, name).dump(value)
        except InputError:
            raise
        except Exception as error:  # objects may raise anything when they are taken apart
            raise InputError(
                f"the function depends on {name}, a {type(value).__name__}, which cannot be "
                f"compared with that of an earlier call ({error}); pass what it needs of it as an "
                "argument, or make it inside the function."
            ) from error
        return content.hexdigest()

    def add(self, value: Any) -> None:
        """Add the hashes of a function or class of the user's, and of what it names."""
        if id(value) in self._known:
            return
        self._known[id(value)] = value
        name = value.__qualname__
        source, code = _source(value)
        if isinstance(value, type):
            if code is None:
                raise InputError(
                    f"the function depends on the class {name}, whose source cannot be read; "
                    "define it by `class` in a file or notebook, or inside the function."
                )
            space = vars(sys.modules[value.__module__])
            parts = [source, *(self.digest(base, name) for base in value.__bases__)]
        else:
            space, code = value.__globals__, code or value.__code__
            parts = [source or self.digest(value.__code__, name)]
            parts += [
                f"{key} {self.digest(part, f'{key} of {name}')}" for key, part in _captured(value)
            ]
        for key, where in _globals_read(code, space):
            if (id(where), key) not in self._read:
                self._read.add((id(where), key))
                digest = self.digest(where[key], key)
                if not isinstance(where[key], type | types.FunctionType):
                    self._record(key, digest)
        self._record(name, "".join(parts))

    def _record(self, name: str, text: str) -> None:
        """Record a hash; things of the same name in several modules share one."""
        self.hashes[name] = self.digest(self.hashes.get(name, "") + text, name)


class _ValuePickler(pickle.Pickler):
    """Pickles equal values to equal bytes, whether or not they share parts."""

    def __init__(self, file: Any, found: _Dependencies, name: str):
        super().__init__(file, protocol=5)
        self.fast = True  # no references to earlier parts
        self._found, self._name = found, name

    def persistent_id(self, value: Any) -> Any:
        """Return what is pickled in place of a value; None for the value itself."""
        if type(value) in PLAIN:
            return None
        module = str(getattr(value, "__module__", ""))
        qualified = str(getattr(value, "__qualname__", ""))
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if (isinstance(value, type) or is_named(value)) and not _is_own(module):
            return module, qualified
        if isinstance(value, type | types.FunctionType) and _is_own(module):
            self._found.add(value)
            return type(value).__qualname__, qualified
        if isinstance(value, types.FunctionType):  # made by a package, such as optax.sgd(0.1)
            return module, qualified, list(_captured(value))
        if isinstance(value, types.CodeType):
            return "code", [getattr(value, f"co_{part}") for part in CODE]
        if hasattr(value, "__wrapped__"):  # by jax.jit, functools.cache, …
            return type(value).__qualname__, value.__wrapped__
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "key", jax.random.key_data(value)
        if isinstance(value, set | frozenset):  # their order differs between processes
            return "set", sorted(self._found.digest(part, self._name) for part in value)
        return None

    def reducer_override(self, value: Any) -> Any:
        """Return the fields of a dataclass alone, without what its properties have cached."""
        if not dataclasses.is_dataclass(value):
            return NotImplemented
        fields = dataclasses.fields(cast(Any, value))
        return type(value), (), {it.name: getattr(value, it.name, None) for it in fields}


def _source(value: Any) -> tuple[str, types.CodeType | None]:
    """Return the source without comments and layout, and its code, as far as they can be read."""
    try:
        source = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):  # typed at a prompt, or made by a function
        return "", None
    try:
        tree = ast.parse(source)
        return ast.unparse(tree), compile(tree, "<source>", "exec")
    except (SyntaxError, ValueError):  # half a line with a lambda, or `nonlocal`
        return source, None


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield default arguments and the variables of a closure."""
    yield "default arguments", (function.__defaults__, function.__kwdefaults__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a name that is not bound yet
            yield name, cell.cell_contents


def _globals_read(code: types.CodeType, space: dict[str, Any]) -> Iterator[tuple[str, dict]]:
    """Yield name and namespace of each global that code reads, also in the user's modules.

    From a user's module, code may read any attribute whose name it mentions.
    """
    modules = []
    for instruction in dis.get_instructions(code):
        name = str(instruction.argval)
        if instruction.opname == "IMPORT_NAME":
            with suppress(ImportError, ValueError):
                modules.append(importlib.import_module(name))
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in space:
            yield name, space
            modules.append(space[name])
    for module in modules:
        if isinstance(module, types.ModuleType) and _is_own(module.__name__):
            yield from ((name, vars(module)) for name in code.co_names if name in vars(module))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_read(constant, space)


def is_named(value: Any) -> bool:
    """Return whether a loaded module has this object under its own name."""
    found = sys.modules.get(str(getattr(value, "__module__", "")))
    for part in str(getattr(value, "__qualname__", "")).split("."):
        found = None if found is None else inspect.getattr_static(found, part, None)
    return found is value


@functools.cache
def _is_own(module: str) -> bool:
    """Return whether a module is the user's: not of Python, not installed, not of deeplin."""
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == "deeplin":
        return False
    found = sys.modules.get(module)
    places = [getattr(found, "__file__", None) or "", *getattr(found, "__path__", ())]
    parts = {part for place in places for part in Path(place).parts}
    return not parts & {"site-packages", "dist-packages"}

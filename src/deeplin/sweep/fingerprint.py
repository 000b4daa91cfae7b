"""What the result of a function depends on besides its arguments, as hashes that can be compared.

The user's own code (the function and what it reaches outside installed packages) is hashed as
bytecode, with default arguments, closures and the values of the globals it reads, recursively;
packages count by their version. Files that a function reads are not seen: pass something that
changes with their content as an argument.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.errors import InputError

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented))
UNSEEN = {"eval", "exec", "globals", "__import__"}
"""Builtins with which a function reads what its code does not name."""
GENERATED = {
    *("__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"),
    *("__dataclass_fields__", "__dataclass_params__", "__match_args__"),
    *("__slotnames__", "__static_attributes__", "_abc_impl"),
}
"""Attributes of a class that change no result, or that follow from the others."""
HOLDERS = (property, functools.cached_property, classmethod, staticmethod, types.MethodType)
HOLDS_FUNCTIONS = ("fget", "fset", "fdel", "func", "__func__", "__self__", "__wrapped__")
"""Attributes of methods, properties and compiled functions in which their functions are."""


def dependencies(function: Callable[..., Any]) -> dict[str, str]:
    """Return a hash for each function, class and global that `function` depends on, by name.

    Raises InputError for what cannot be compared with that of an earlier call.

    ```python
    from deeplin.sweep.fingerprint import dependencies

    factor = 2
    def double(x):
        return factor * x

    before = dependencies(double)
    factor = 3
    assert dependencies(double)["factor"] != before["factor"]
    ```
    """
    found = _Dependencies(getattr(function, "__module__", ""))
    found.describe(function)
    return dict(sorted(found.hashes.items()))


class _Dependencies:
    """The hashes of what is reached from one function."""

    def __init__(self, home: str):
        self.hashes: dict[str, str] = {}
        self._home = home
        self._described: dict[int, tuple[Any, list]] = {}
        """Descriptions by id; the objects are kept so that no id is given to a second one."""
        self._read: set[tuple[int, str]] = set()
        """Globals that were looked at: the id of their namespace, and their name."""
        self._open: list[int] = []
        """Ids of the objects that are being described: a cycle refers back to one of them."""

    def describe(self, value: Any) -> list:
        """Return a short list of text; equal lists mean equal behavior."""
        if isinstance(value, PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, types.ModuleType):
            return self._module(value.__name__)
        if id(value) in self._described:
            return self._described[id(value)][1]
        if id(value) in self._open:
            return ["cycle", self._open.index(id(value))]
        self._open.append(id(value))
        description = self._parts(value)
        self._open.pop()
        self._described[id(value)] = value, description
        return description

    def _parts(self, value: Any) -> list:
        module, name = (getattr(value, key, None) for key in ("__module__", "__qualname__"))
        module, name = str(module), str(name)
        foreign = not _is_own(module)
        if foreign and (isinstance(value, type) or _resolve(module, name) is value):
            return [name, self._module(module)]
        if isinstance(value, types.FunctionType):
            if foreign:  # made by a function of a package, for example optax.sgd
                return [name, self._module(module), _digest(self._captured(value))]
            return self._entry(value, self._function)
        if isinstance(value, type):
            return self._entry(value, self._class)
        return [self.describe(type(value)), _digest(self._content(value))]

    def _label(self, module: str, name: str) -> str:
        return name if module == self._home else f"{module}.{name}"

    def _free(self, label: str) -> str:
        """A label that nothing has yet: two things may have one name."""
        return self._free(f"{label}'") if label in self.hashes else label

    def _entry(self, value: Any, describe: Callable[[Any], Any]) -> list:
        """Describe a function or class under its name, which a refusal can then mention."""
        label = self._free(self._label(value.__module__, value.__qualname__))
        self.hashes[label] = ""
        self._described[id(value)] = value, ["entry", label]
        self.hashes[label] = _digest(describe(value))
        return ["entry", label]

    def _function(self, function: types.FunctionType) -> list:
        for name, variables in _globals_read(function.__code__, function.__globals__):
            if variables is None:
                self._module(name)
            elif (id(variables), name) not in self._read:
                self._read.add((id(variables), name))
                label = self._label(str(variables.get("__name__")), name)
                described = self._named(name, variables[name])
                if described != ["entry", label]:
                    self.hashes[self._free(label)] = _digest(described)
        return [_code(function.__code__), self._captured(function)]

    def _captured(self, function: types.FunctionType) -> list:
        """Default arguments and closure."""
        names = function.__code__.co_freevars
        cells = dict(zip(names, map(_contents, function.__closure__ or ()), strict=True))
        defaults = [self.describe(value) for value in function.__defaults__ or ()]
        return [defaults, self._items(function.__kwdefaults__ or {}), self._items(cells)]

    def _class(self, kind: type) -> list:
        members = {name: value for name, value in vars(kind).items() if name not in GENERATED}
        if issubclass(kind, enum.Enum):
            members = {name: member.value for name, member in kind.__members__.items()}
        if dataclasses.is_dataclass(kind):
            members["factories"] = [field.default_factory for field in dataclasses.fields(kind)]
        described = {
            name: value
            for name, value in members.items()
            if not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
        }
        return [[self.describe(base) for base in kind.__bases__], self._items(described)]

    def _content(self, value: Any) -> Any:
        """Describe an object by its parts."""
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return self.describe(jax.random.key_data(value))
        if isinstance(value, np.ndarray | np.generic | jax.Array) and value.dtype != object:
            array = np.asarray(value)
            content = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16)
            return [str(array.dtype), array.shape, content.hexdigest()]
        if isinstance(value, enum.Enum):
            return value.name
        if isinstance(value, set | frozenset):
            return sorted(_digest(self.describe(entry)) for entry in value)
        if (
            isinstance(value, dict | types.MappingProxyType)
            and type(value).__module__ == "builtins"
        ):
            return self._items(value)
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return [self.describe(part) for part in value]
        if isinstance(value, HOLDERS) or hasattr(value, "__wrapped__"):
            names = [name for name in HOLDS_FUNCTIONS if hasattr(value, name)]
            return [self.describe(getattr(value, name)) for name in names]
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            return self._items({name: getattr(value, name) for name in fields})
        return [self.describe(part) for part in _reduced(value)]

    def _items(self, mapping: Mapping[Any, Any]) -> list:
        return [[self.describe(k), self._named(str(k), value)] for k, value in mapping.items()]

    def _named(self, name: str, value: Any) -> list:
        """Describe a value; one that cannot be is an error that mentions its name."""
        try:
            return self.describe(value)
        except InputError:
            raise
        except Exception as error:  # whatever an object raises that cannot be taken apart
            raise InputError(
                f"the function depends on {name}, a {type(value).__name__}, which cannot be "
                f"compared with that of an earlier call ({error}); pass what it needs of it as an "
                "argument, or make it inside the function."
            ) from error

    def _module(self, name: str) -> list:
        package = name.partition(".")[0]
        if not _is_own(name) and package not in sys.stdlib_module_names:
            self.hashes[f"version of {package}"] = _version(package)
        return ["module", name]


def _globals_read(
    code: types.CodeType, variables: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Yield the name and the namespace of each global that code reads; None for a module."""
    for instruction in dis.get_instructions(code):
        name = str(instruction.argval)
        if instruction.opname == "IMPORT_NAME":
            module = _imported(name, variables)
            if module is not None:
                yield module.__name__, None
                yield from _attributes(module, code, set())
        elif instruction.opname.startswith("LOAD_") and instruction.opname.endswith(
            ("GLOBAL", "GLOBALS", "NAME")
        ):
            if name in variables:
                yield name, variables
                yield from _attributes(variables[name], code, set())
            elif name in UNSEEN:
                raise InputError(
                    f"{code.co_name} calls {name}, with which it could read anything; pass what it "
                    "needs as arguments."
                )
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_read(constant, variables)


def _attributes(value: Any, code: types.CodeType, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield what code may take from a module of the user's: each of its names that is used."""
    if not isinstance(value, types.ModuleType) or not _is_own(value.__name__) or id(value) in seen:
        return
    seen.add(id(value))
    for name in code.co_names:
        if name in vars(value):
            yield name, vars(value)
            yield from _attributes(vars(value)[name], code, seen)


def _imported(name: str, variables: Mapping[str, Any]) -> types.ModuleType | None:
    """The module that an import inside a function names; None if there is none."""
    for full in (name, f"{variables.get('__package__') or ''}.{name}"):
        try:
            return importlib.import_module(full)
        except (ImportError, ValueError, TypeError):
            continue
    return None


def _reduced(value: Any) -> list:
    """What `pickle` would keep of an object, without cached properties."""
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return [reduced]
    make, arguments, state, *entries = (*reduced, None, None, None)[:5]
    if isinstance(state, dict):
        kinds = type(value).__mro__
        members = {name: member for kind in kinds for name, member in vars(kind).items()}
        state = {
            name: part
            for name, part in state.items()
            if not isinstance(members.get(name), functools.cached_property)
        }
    return [make, arguments, state, *(None if part is None else list(part) for part in entries)]


def _code(code: types.CodeType) -> list:
    """Bytecode with its names and constants, without lines and layout."""
    constants = [
        _code(constant) if isinstance(constant, types.CodeType) else _constant(constant)
        for constant in code.co_consts
    ]
    numbers = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    return [code.co_code.hex(), numbers, names, constants]


def _constant(value: Any) -> list[str]:
    entries = sorted(map(repr, value)) if isinstance(value, frozenset) else value
    return [type(value).__name__, repr(entries)]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _digest(description: Any) -> str:
    return hashlib.blake2b(repr(description).encode(), digest_size=8).hexdigest()


def _resolve(module: str, name: str) -> Any:
    """The object of that name in a loaded module, or None."""
    value = sys.modules.get(module)
    for part in name.split("."):
        value = None if value is None else inspect.getattr_static(value, part, None)
    return value


@functools.cache
def _is_own(module: str) -> bool:
    """Whether a module is the user's: neither part of Python, nor installed, nor of deeplin."""
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names or package == "deeplin":
        return False
    found = sys.modules.get(module)
    places = [getattr(found, "__file__", None) or "", *getattr(found, "__path__", ())]
    parts = {part for place in places for part in Path(place).parts}
    return not parts & {"site-packages", "dist-packages"}


@functools.cache
def _version(package: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str):
        return version
    names = metadata.packages_distributions().get(package, ())
    return ", ".join(metadata.version(name) for name in sorted(set(names)))

"""Sweeps of user-defined functions over a grid of arguments, which can be interrupted.

The dependencies of the function besides its arguments are compared with those with which the folder
was made: the user's own code (the function and what it uses outside installed packages) is hashed
as bytecode, with default arguments, closures and the values of the globals it reads, recursively;
packages are identified by version. Values are hashed as pickles. Files that a function reads are
not detected: pass something that changes with their content as an argument.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import inspect
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from deeplin.errors import InputError, whole_number
from deeplin.sweep.executors import Cluster, Executor
from deeplin.sweep.experiment import Experiment, Unit, coordinate_words, run_key
from deeplin.sweep.progress import Progress
from deeplin.sweep.store import Outcome, Shard, run

OWN: dict[str, Callable[..., Any]] = {
    "key": run_key,
    "rng": lambda seed, **run: np.random.default_rng(coordinate_words(seed, **run)),
    "repetition": lambda seed, repetition, **point: repetition,
}
"""Arguments that are passed to a function if it has them, different for each run."""
PLAIN = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, np.ndarray}
CODE = ("code", "consts", "names", "varnames", "freevars", "cellvars", "flags",
        "argcount", "posonlyargcount", "kwonlyargcount")  # fmt: skip
"""Attributes of a code object that are compared."""
UNSEEN = {"eval", "exec", "globals", "__import__"}
"""Builtins with which a function can read names that are not in its code."""
GENERATED = {
    *("__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"),
    *("__dataclass_fields__", "__dataclass_params__", "__match_args__"),
    *("__slotnames__", "__static_attributes__", "_abc_impl"),
}
"""Attributes of a class that do not affect results, or follow from the others."""


@dataclass(frozen=True)
class Grid:
    """Config of a sweep of a function over all combinations of `values`."""

    function: Callable[..., Any]
    code: Any
    """The fingerprint of the function, by its name."""
    values: Any
    """Lists of values by argument."""
    repetitions: int = 1
    seed: int = 0


def grid(
    function: Callable[..., Any],
    values: Mapping[str, Sequence[Any]],
    folder: str | os.PathLike,
    *,
    repetitions: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Call `function` with every combination of `values` and collect the results in one table.

    It may return a number, columns by name (a dict of numbers or of equally long lists), or a
    DataFrame. The table has a row for each call, or for each row returned, together with the
    arguments and the repetition. An argument named `key` (JAX), `rng` (NumPy) or `repetition` gets
    a value for each run, which depends only on `seed`, the other arguments and the repetition.

    Finished calls are kept in `folder`: after an interruption, or with more values or repetitions,
    only missing calls are computed; the table of the outcome has the rows of this call. A folder
    made with another function raises an error, as does one made with other globals, helpers,
    default arguments or package versions (see `deeplin.sweep.functions`). `executor`, `shard` and
    `progress` are as for `run`. Worker processes import the function, so it must then be at the top
    level of a module or script.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.flat_minima(seed=0).problem

    def final_risk(scale, eta, key):
        net = dl.initialize.gaussian(key, widths=(5, 5, 1), scale=scale)
        return dl.gradient_descent(problem, net, eta, steps=100).evidence["risk"]

    values = {"scale": [0.1, 0.3], "eta": [0.01, 0.02]}
    outcome = dl.sweep.grid(final_risk, values, "results/mine", repetitions=2)
    outcome.table()
    ```
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise InputError(f"function is {function!r}; pass a function defined by `def`.")
    if function.__module__ == "__main__" and isinstance(executor, Cluster):
        raise InputError(
            f"workers cannot import {function.__name__} from __main__; define it at the top level "
            "of a module that they can import."
        )
    config = Grid(
        function,
        {f"{function.__name__} or what it depends on": fingerprint(function)},
        _checked(function, values),
        whole_number("repetitions", repetitions),
        whole_number("seed", seed, minimum=0),
    )
    return run(GRID, config, folder, executor=executor, shard=shard, progress=progress)


def units(config: Grid) -> list[Unit]:
    """Return one unit for each combination of values and each repetition."""
    return [
        Unit({"point": dict(zip(config.values, point, strict=True)), "repetition": repetition})
        for *point, repetition in product(*config.values.values(), range(config.repetitions))
    ]


def run_unit(config: Grid, unit: Unit) -> pd.DataFrame:
    """Call the function once."""
    function = config.function
    _check_same(function, *config.code.values())
    point, repetition = unit.coordinates["point"], unit.coordinates["repetition"]
    wanted = OWN.keys() & inspect.signature(function).parameters.keys()
    own = {name: OWN[name](config.seed, **point, repetition=repetition) for name in wanted}
    return _rows({**point, "repetition": repetition}, function(**point, **own))


GRID = Experiment("grid", Grid, units, run_unit, grid=("values", "repetitions"), subsets=True)


def _rows(run: Mapping[str, Any], returned: Any) -> pd.DataFrame:
    """Return the result of a call as tidy rows, with the run's coordinates first."""
    named = returned if isinstance(returned, Mapping | pd.DataFrame) else {"value": returned}
    columns = {str(name): np.asarray(column) for name, column in named.items()}
    clash = sorted(columns.keys() & run.keys())
    if clash:
        raise InputError(
            f"the function returns {', '.join(clash)}, which it was called with; rename."
        )
    if any(column.ndim > 1 for column in columns.values()):
        raise InputError("the function returns an array with several axes; return columns by name.")
    lengths = {len(column) for column in columns.values() if column.ndim}
    if len(lengths) > 1:
        raise InputError(
            f"the function returns columns of lengths {sorted(lengths)}; make them one."
        )
    rows = max(lengths, default=1)
    spread = {name: np.broadcast_to(column, rows) for name, column in columns.items()}
    return pd.DataFrame({**run, **spread}, index=range(rows))


@functools.cache
def _check_same(function: Callable[..., Any], expected: str) -> None:
    """Raise InputError unless a worker has imported the function with which the sweep began."""
    if fingerprint(function) != expected:
        raise InputError(
            f"a worker that imports {function.__name__} finds another function, or other globals "
            "or helpers; pass what differs as an argument, or make it the same wherever the module "
            "is imported."
        )


def _checked(function: Callable[..., Any], values: Mapping[str, Sequence[Any]]) -> dict[str, list]:
    """Return the values by argument as lists, or raise InputError if the function rejects them."""
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"values is {values!r}; pass lists of values by argument.")
    taken = sorted(values.keys() & OWN.keys())
    if taken:
        raise InputError(f"values has {', '.join(taken)}, which every run gets of its own; rename.")
    lists = {str(name): _listed(str(name), column) for name, column in values.items()}
    signature = inspect.signature(function)
    own = dict.fromkeys(OWN.keys() & signature.parameters.keys())
    try:
        signature.bind(**dict.fromkeys(lists), **own)
    except TypeError as error:
        raise InputError(
            f"{getattr(function, '__name__', function)}{signature} cannot be called with "
            f"{', '.join(lists)}: {error}."
        ) from error
    return lists


def _listed(name: str, values: Any) -> list:
    """Return the values of one argument, all of them integers or all floats."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InputError(f"values of {name} are {values!r}; pass a list.")
    found = [value.item() if isinstance(value, np.generic) else value for value in values]
    strange = [value for value in found if not isinstance(value, bool | int | float | str)]
    if strange:
        raise InputError(f"values of {name} have {strange[0]!r}; pass numbers or strings.")
    if {type(value) for value in found} == {int, float}:
        found = [float(value) for value in found]
    if not found or any(value in found[:index] for index, value in enumerate(found)):
        raise InputError(f"values of {name} are {found}; pass at least one, each once.")
    return found


# --- what a function depends on ---------------------------------------------------------------


def fingerprint(value: Any, name: str = "") -> str:
    """Return a hash of a value and, for a function or class of the user's, of all it depends on.

    Raises InputError for dependencies that cannot be compared with those of an earlier call.

    ```python
    from deeplin.sweep.functions import fingerprint

    factor = 2
    def double(x):
        return factor * x

    before = fingerprint(double)
    factor = 3
    assert fingerprint(double) != before
    ```
    """
    pickler = _Pickler()
    pickler.parts.append((name, value))
    for name, part in pickler.parts:  # grows during the loop: functions add their own parts
        try:
            pickler.dump((name, part))
        except InputError:
            raise
        except Exception as error:  # pickling may raise anything
            raise InputError(
                f"the function depends on {name}, a {type(part).__name__}, which cannot be "
                f"compared with that of an earlier call ({error}); pass what it needs of it as an "
                "argument, or make it inside the function."
            ) from error
    pickler.dump(sorted(pickler.versions.items()))
    return pickler.hash.hexdigest()


class _Pickler(pickle.Pickler):
    """Pickler of values that can be compared; `persistent_id` replaces others by their parts."""

    def __init__(self):
        self.hash = hashlib.blake2b(digest_size=16)
        file: Any = types.SimpleNamespace(write=self.hash.update)
        super().__init__(file, protocol=4)
        self.fast = True  # no memo, so that equal values have equal pickles
        self.parts: list[tuple[str, Any]] = []
        """Values to be pickled, by name."""
        self.versions: dict[str, str] = {}
        """Versions of the packages that are used."""
        self._numbers: dict[int, tuple[int, Any]] = {}
        """Functions and classes with their number, by id; kept so that no id is used twice."""
        self._read: set[tuple[int, str]] = set()
        """Globals that were read: the id of their namespace, and their name."""

    def persistent_id(self, value: Any) -> Any:
        if type(value) in PLAIN:
            return None
        if isinstance(value, types.CodeType):  # without lines and layout
            return [getattr(value, f"co_{name}") for name in CODE]
        module = str(getattr(value, "__module__", ""))
        name = str(getattr(value, "__qualname__", None))
        if isinstance(value, types.ModuleType):
            self._count_version(value.__name__)
            return "module", value.__name__
        named = isinstance(value, type) or _resolve(module, name) is value
        if named and not _is_own(module):
            self._count_version(module)
            return module, name
        if isinstance(value, type | types.FunctionType) and _is_own(module):
            if id(value) not in self._numbers:
                self._numbers[id(value)] = len(self._numbers), value
                self.parts += _class(value) if isinstance(value, type) else self._function(value)
            return "own", self._numbers[id(value)][0]
        if isinstance(value, types.FunctionType):  # made by a package, such as optax.sgd
            return module, name, _captured(value)
        if isinstance(value, jax.Array):
            is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
            return "array", np.asarray(jax.random.key_data(value) if is_key else value)
        if isinstance(value, set | frozenset):
            return "set", sorted(fingerprint(entry, "an entry of a set") for entry in value)
        if isinstance(value, property | functools.cached_property) or hasattr(value, "__wrapped__"):
            names = ("fget", "fset", "fdel", "func", "__wrapped__")
            return type(value), [getattr(value, name, None) for name in names]
        return _without_caches(value)

    def _function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield code, default arguments, closure and globals of a function."""
        yield function.__qualname__, function.__code__
        yield from _captured(function)
        for name, variables in _globals_read(function.__code__, function.__globals__):
            if (id(variables), name) not in self._read:
                self._read.add((id(variables), name))
                yield name, variables[name]

    def _count_version(self, module: str) -> None:
        """Record the version of a module's package, unless it is the user's or Python's."""
        package = module.partition(".")[0]
        if not _is_own(module) and package not in sys.stdlib_module_names:
            self.versions[package] = _version(package)


def _captured(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Return default arguments and the variables of a closure."""
    found = [("a default argument", (function.__defaults__, function.__kwdefaults__))]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a name that is not bound yet
            found.append((name, cell.cell_contents))
    return found


def _class(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what tells a class from another: bases, members, default factories."""
    yield kind.__qualname__, kind.__bases__
    if issubclass(kind, enum.Enum):
        members = {name: member.value for name, member in kind.__members__.items()}
    else:
        members = {name: value for name, value in vars(kind).items() if name not in GENERATED}
    if dataclasses.is_dataclass(kind):
        factories = [field.default_factory for field in dataclasses.fields(kind)]
        members["factories"] = [None if it is dataclasses.MISSING else it for it in factories]
    for name, value in members.items():
        if not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            yield name, value


def _without_caches(value: Any) -> Any:
    """Return class and attributes of an object that keeps what it has computed, else None."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return kind, {name: getattr(value, name, None) for name in names}
    members = [item for base in kind.__mro__ for item in vars(base).items()]
    cached = {name for name, member in members if isinstance(member, functools.cached_property)}
    if not cached:
        return None
    return kind, {name: part for name, part in vars(value).items() if name not in cached}


def _globals_read(
    code: types.CodeType, variables: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the namespace of each global and module that code reads.

    From a user's module, code may use any attribute whose name it mentions anywhere.
    """
    modules: list[Any] = []
    for instruction in dis.get_instructions(code):
        name, space = str(instruction.argval), variables
        if instruction.opname == "IMPORT_NAME":
            name, space = _imported(name, variables), sys.modules
        elif instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            continue
        if name in space:
            yield name, space
            modules.append(space[name])
        elif name in UNSEEN:
            raise InputError(
                f"{code.co_name} calls {name}, with which it could read anything; pass what it "
                "needs as arguments."
            )
    for module in modules:  # grows by the modules inside them
        if isinstance(module, types.ModuleType) and _is_own(module.__name__):
            space = vars(module)
            used = [name for name in code.co_names if name in space]
            yield from ((name, space) for name in used)
            modules += [space[name] for name in used if not any(space[name] is m for m in modules)]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_read(constant, variables)


def _imported(name: str, variables: Mapping[str, Any]) -> str:
    """Return the full name of the module that an import inside a function means, or nothing."""
    for full in (name, f"{variables.get('__package__') or ''}.{name}"):
        with suppress(ImportError, ValueError, TypeError):
            return importlib.import_module(full).__name__
    return ""


def _resolve(module: str, name: str) -> Any:
    """Return the object of that name in a loaded module, or None."""
    value = sys.modules.get(module)
    for part in name.split("."):
        value = None if value is None else inspect.getattr_static(value, part, None)
    return value


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


@functools.cache
def _version(package: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str):
        return version
    names = metadata.packages_distributions().get(package, ())
    return ", ".join(metadata.version(name) for name in sorted(set(names)))

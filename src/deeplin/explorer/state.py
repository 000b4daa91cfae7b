"""Everything a visitor can choose, bounded on the server, and as a link."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from deeplin.checks import InputError

LONGEST_LINK = 4000
"""Characters of a link; longer ones are refused unread."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`, on a logarithmic slider where `log`."""

    label: str
    low: int
    high: int
    log: bool = False

    def check(self, name: str, value: Any) -> int:
        """Return `value` as an int inside the bounds, or raise."""
        number = _number(name, value, f"a whole number from {self.low} to {self.high}")
        if not number.is_integer() or not self.low <= number <= self.high:
            raise InputError(
                f"{name} is {number:g}; pass a whole number from {self.low} to {self.high}."
            )
        return int(number)


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; with `zero` also exactly 0, the left end of its slider."""

    label: str
    low: float
    high: float
    log: bool = False
    zero: bool = False

    def check(self, name: str, value: Any) -> float:
        """Return `value` as a float inside the bounds, or raise."""
        wanted = f"a number from {self.low:g} to {self.high:g}" + (", or 0" if self.zero else "")
        number = _number(name, value, wanted)
        if not (self.low <= number <= self.high or (self.zero and number == 0)):
            raise InputError(f"{name} is {number:g}; pass {wanted}.")
        return number


@dataclass(frozen=True)
class Choice:
    """One of a few words, each with the text shown for it."""

    label: str
    options: Mapping[str, str]

    def check(self, name: str, value: Any) -> str:
        """Return `value` if it is one of the options, or raise."""
        if not isinstance(value, str) or value not in self.options:
            shown = repr(value)[:60]
            raise InputError(f"{name} is {shown}; pass one of {', '.join(self.options)}.")
        return value


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    label: str

    def check(self, name: str, value: Any) -> bool:
        """Return `value` as a bool (links say yes or no), or raise."""
        if value in (True, "yes"):
            return True
        if value in (False, "no"):
            return False
        raise InputError(f"{name} is {str(value)[:60]!r}; pass yes or no.")


@dataclass(frozen=True)
class Saved:
    """A kept run: the link that computes it again, or nothing."""

    label: str

    def check(self, name: str, value: Any) -> str:
        """Return the link in its shortest form, or raise when it is not a valid one."""
        if not isinstance(value, str):
            raise InputError(f"{name} is not a link; keep a run with the button.")
        return State.from_link(value).only(*DATA, *NETWORK, *DESCENT).link() if value else ""


def _number(name: str, value: Any, wanted: str) -> float:
    if isinstance(value, bool):
        raise InputError(f"{name} is {value!r}; pass {wanted}.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {repr(value)[:60]}; pass {wanted}.") from None
    if not math.isfinite(number):
        raise InputError(f"{name} is {number}; pass {wanted}.")
    return number


def _input(default: Any, bound: Any) -> Any:
    return field(default=default, metadata={"bound": bound})


DATA = ("data", "data_seed", "samples", "dimension", "condition", "noise")
NETWORK = ("architecture", "depth", "width", "initialisation", "scale")
DESCENT = ("learning_rate", "steps", "seeds", "seed")
AXES = ("flow", "horizontal", "horizontal_scale", "vertical_scale")
PHASE = ("phase_over", "phase_shows")
THEOREMS = ("theorems_of",)
WIDE = (
    "wide_width", "wide_depth", "alpha", "beta", "wide_dimension", "wide_samples", "wide_outputs",
    "spectrum", "spikes", "epsilon", "exponent", "wide_noise", "wide_rate", "wide_steps",
    "wide_seed",
)  # fmt: skip

TABS = {
    "training": "Training",
    "phase": "Phase diagram",
    "wide": "Wide networks",
    "theorems": "Theorems",
}


@dataclass(frozen=True)
class State:
    """All inputs of the explorer. Creating one checks every value against its bound.

    ```python
    from deeplin.explorer.state import State
    state = State(depth=20, learning_rate=0.05)
    assert State.from_link(state.link()) == state
    ```
    """

    tab: str = _input("training", Choice("Page", TABS))
    data: str = _input(
        "synthetic", Choice("Data", {"synthetic": "synthetic", "file": "my CSV file"})
    )
    data_seed: int = _input(0, Whole("Data seed", 0, 999))
    samples: int = _input(50, Whole("Samples n", 2, 500))
    dimension: int = _input(5, Whole("Inputs d", 1, 20))
    condition: float = _input(1.0, Real("Condition number", 1, 1e4, log=True))
    noise: float = _input(1.0, Real("Noise", 0, 3))
    architecture: str = _input(
        "perceptron",
        Choice("Network", {"perceptron": "linear", "residual": "residual", "gelu": "GELU"}),
    )
    depth: int = _input(10, Whole("Depth L", 1, 40))
    width: int = _input(5, Whole("Hidden width", 1, 20))
    initialisation: str = _input(
        "gaussian",
        Choice(
            "Initialisation",
            {
                "gaussian": "Gaussian",
                "zero_layer": "Gaussian, first layer 0",
                "rank_one": "balanced, rank one",
            },
        ),
    )
    scale: float = _input(0.35, Real("Initial scale", 0.01, 3, log=True, zero=True))
    learning_rate: float = _input(0.02, Real("Learning rate η", 1e-4, 3, log=True))
    steps: int = _input(500, Whole("Steps", 10, 100_000, log=True))
    seeds: int = _input(5, Whole("Runs (seeds)", 1, 20))
    seed: int = _input(0, Whole("First seed", 0, 999))
    flow: bool = _input(True, Flag("Gradient flow beside it"))
    horizontal: str = _input("steps", Choice("Horizontal", {"steps": "steps", "time": "η·steps"}))
    horizontal_scale: str = _input(
        "linear", Choice("Horizontal axis", {"linear": "linear", "log": "log"})
    )
    vertical_scale: str = _input("log", Choice("Vertical axes", {"log": "log", "linear": "linear"}))
    phase_over: str = _input("scale", Choice("Over", {"scale": "scale × η", "depth": "depth × η"}))
    phase_shows: str = _input(
        "distance",
        Choice(
            "Shows",
            {"distance": "final distance", "sharpness": "sharpness", "diverged": "divergence"},
        ),
    )
    theorems_of: str = _input(
        "descent",
        Choice("Certify", {"descent": "gradient descent", "flow": "gradient flow"}),
    )
    wide_width: int = _input(10_000, Whole("Width m", 10, 10**9, log=True))
    wide_depth: int = _input(3, Whole("Depth L", 2, 8))
    alpha: float = _input(1e-3, Real("First layer α", 1e-6, 1, log=True, zero=True))
    beta: float = _input(1.0, Real("Last layer β", 1e-6, 10, log=True, zero=True))
    wide_dimension: int = _input(500, Whole("Inputs d", 20, 2000, log=True))
    wide_samples: int = _input(50, Whole("Samples n", 5, 200))
    wide_outputs: int = _input(3, Whole("Outputs q", 1, 5))
    spectrum: str = _input(
        "spike", Choice("Spectrum", {"spike": "k spikes, rest ε", "power": "power law"})
    )
    spikes: int = _input(10, Whole("Spikes k", 0, 50))
    epsilon: float = _input(0.01, Real("Tail ε", 1e-4, 1, log=True))
    exponent: float = _input(1.0, Real("Decay exponent", 0, 3))
    wide_noise: float = _input(1.0, Real("Noise", 0, 3))
    wide_rate: float = _input(0.3, Real("Step, share of the stable limit", 0.01, 3, log=True))
    wide_steps: int = _input(5000, Whole("Most steps", 100, 20_000, log=True))
    wide_seed: int = _input(0, Whole("Seed", 0, 999))
    saved_a: str = _input("", Saved("Kept run A"))
    saved_b: str = _input("", Saved("Kept run B"))

    def __post_init__(self):
        for name, bound in BOUNDS.items():
            object.__setattr__(self, name, bound.check(bound.label, getattr(self, name)))
        if self.scale == 0 and self.architecture != "residual":
            raise InputError(
                "Initial scale is 0, where every gradient of this network vanishes; pass at "
                "least 0.01, or choose the residual network."
            )

    def change(self, **values: Any) -> State:
        """The state with some values replaced and checked."""
        unknown = sorted(set(values) - set(BOUNDS))
        if unknown:
            raise InputError(f"there is no input {unknown[0][:40]!r}.")
        return dataclasses.replace(self, **values)

    def link(self) -> str:
        """The query part of a link that restores this state: what differs from the default."""
        default = State()
        return urlencode(
            {
                name: _text(getattr(self, name))
                for name in BOUNDS
                if getattr(self, name) != getattr(default, name)
            }
        )

    @classmethod
    def from_link(cls, query: str) -> State:
        """The state of a link; every value is checked, unknown names are refused."""
        if len(query) > LONGEST_LINK:
            raise InputError(f"the link has {len(query)} characters; at most {LONGEST_LINK}.")
        query = query.removeprefix("?")
        try:
            values = dict(parse_qsl(query, strict_parsing=bool(query)))
        except ValueError:
            raise InputError("the link is not of the form name=value&name=value.") from None
        return cls().change(**values)

    def only(self, *names: str) -> State:
        """The state with every input but these at its default: what a computation depends on."""
        return State(**{name: getattr(self, name) for name in names})


BOUNDS: dict[str, Any] = {f.name: f.metadata["bound"] for f in dataclasses.fields(State)}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)

"""Deep linear networks as an exact instrument.

Importing this package turns on JAX's float64, unless the environment sets `JAX_ENABLE_X64`.

Public names are listed in `__init__.pyi` and imported when they are first used: JAX alone takes a
second, which neither a wrong file name nor `deeplin --help` should wait for.
"""

import os
import sys

import lazy_loader

if "JAX_ENABLE_X64" not in os.environ:
    os.environ["JAX_ENABLE_X64"] = "1"  # JAX reads it when it is imported, here or in a worker
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str):
    """Import a public name on first use."""
    if name != "__version__":
        return _import_name(name)
    from importlib.metadata import version  # takes as long as everything else here

    return version("deeplin")

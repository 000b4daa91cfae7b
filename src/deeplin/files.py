"""Files that are there entirely or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, temporary_folder: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write; it appears at `path`, or replaces what is there, once it is complete.

    Written under another name in `temporary_folder`, of the same disk (by default the folder of
    `path`), and renamed: a reader never sees half a file, and after an error nothing is left.
    Not forced to the disk, which would cost more than most files are worth.
    """
    name = f".{path.name}.{os.getpid()}-{threading.get_ident()}"
    temporary = os.path.join(temporary_folder or path.parent, name)
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise

"""Write the page of the errata: `python -m deeplin.theory.errata docs/errata.md`."""

import sys
from pathlib import Path

from deeplin.theory.errata import page

Path(sys.argv[1]).write_text(page(), encoding="utf-8")

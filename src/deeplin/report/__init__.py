"""The report: every figure with its claims, data and protocol on one page that works offline."""

from deeplin.report.files import write_figure
from deeplin.report.page import write_page

__all__ = ["write_figure", "write_page"]

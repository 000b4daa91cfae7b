"""The closing lines of a run: the slowest tests, and those that were skipped.

Tests that need Chromium, node or PyTorch skip themselves on a machine without it. With
`DEEPLIN_NO_SKIPS=1`, which `.ci/run` sets, every skip is a failure; `DEEPLIN_WITHOUT_TORCH=1`
excepts those of PyTorch.
"""

import os
from collections import Counter

import pytest

SLOWEST = 10


def _forbidden(reason: str) -> bool:
    excepted = os.environ.get("DEEPLIN_WITHOUT_TORCH") == "1" and "'torch'" in reason
    return os.environ.get("DEEPLIN_NO_SKIPS") == "1" and not excepted


def _reason(report) -> str:
    """Why a test was skipped; pytest keeps (path, line, reason)."""
    return str(report.longrepr[2]).removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and _forbidden(_reason(report)):
        report.longrepr = f"skipped where nothing may be skipped: {_reason(report)}"
        report.outcome = "failed"
    return report


def pytest_terminal_summary(terminalreporter):
    seconds = Counter()
    for report in (it for reports in terminalreporter.stats.values() for it in reports):
        if hasattr(report, "duration"):
            seconds[report.nodeid.rpartition("/")[2]] += report.duration
    listed = (f"{time:.1f} s {name}" for name, time in seconds.most_common(SLOWEST))
    terminalreporter.write_line(f"slowest: {'; '.join(listed)}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped if isinstance(report.longrepr, tuple))
    if reasons:
        listed = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {listed}")

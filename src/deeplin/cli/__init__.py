"""The command line. Importing a command's module registers it on the application."""

from deeplin.cli import (
    bench,
    certify,
    cite,
    diagnose,
    explore,
    predict,
    reproduce,
    status,
    sweep,
    train,
)
from deeplin.cli.app import app, main

__all__ = [
    "app",
    "bench",
    "certify",
    "cite",
    "diagnose",
    "explore",
    "main",
    "predict",
    "reproduce",
    "status",
    "sweep",
    "train",
]

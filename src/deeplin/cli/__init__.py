"""The command line. Importing a command's module registers it on the application."""

from deeplin.cli import bench, certify, diagnose, reproduce, sweep, train
from deeplin.cli.app import app, main

__all__ = ["app", "bench", "certify", "diagnose", "main", "reproduce", "sweep", "train"]

"""The command line. Importing the module of a command registers it with the application."""

from deeplin.cli import bench, certify, reproduce, sweep, tables
from deeplin.cli.app import app, main

__all__ = ["app", "bench", "certify", "main", "reproduce", "sweep", "tables"]

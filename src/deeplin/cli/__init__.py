"""The command line. Importing a command's module registers it on the application."""

from deeplin.cli import bench, cite, diagnose, status, sweep
from deeplin.cli.app import app, main

__all__ = ["app", "bench", "cite", "diagnose", "main", "status", "sweep"]

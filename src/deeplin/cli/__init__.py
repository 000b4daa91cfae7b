"""The command line. Importing the module of a command registers it with the application."""

from deeplin.cli import certify, explore, reproduce, tables
from deeplin.cli.app import app, main

__all__ = ["app", "certify", "explore", "main", "reproduce", "tables"]

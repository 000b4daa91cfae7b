"""The statements, one module for each group of results. Importing a module registers its own."""

from deeplin.theory.registry import gradients

__all__ = ["gradients"]

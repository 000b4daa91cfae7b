"""Compiled code and nothing else."""

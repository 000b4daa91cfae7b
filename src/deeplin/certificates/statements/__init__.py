"""Statements, one file for each group; `deeplin.certificates.registry` loads them."""

"""Certificates: statements of the papers evaluated on a problem and its runs."""

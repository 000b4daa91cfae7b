"""The papers and the talk: their figures, what they say, errata, and the report.

Import from the modules: `catalogue` lists the figures.
"""

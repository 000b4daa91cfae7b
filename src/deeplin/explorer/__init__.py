"""The explorer: a local page where a moved slider shows the whole training at once.

Start it with `deeplin explore`. `state` holds every input with its bound, `compute` and its
neighbours turn a state into numbers, a module for each page shows them, `server` serves it.
"""

"""The explorer: one static page whose numerics run in the browser.

`page/` holds it as plain ES modules; `build` makes one self-contained HTML file of them.
"""

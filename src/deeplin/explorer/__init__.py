"""The explorer: one static page whose numerics run in the browser.

`page/` holds it as plain ES modules, each file one idea. `build` makes one self-contained HTML
file of them, `serve` shows that file on the loopback and answers what needs the library
(`answers`: certificates, large tables, the page's random numbers in Python).
"""

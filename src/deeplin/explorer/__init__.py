"""The explorer: one static page whose numerics run in the browser.

`page/` holds it as plain ES modules. `build` makes one self-contained HTML file of them, `serve`
serves that file on the loopback address and answers requests that need the library (`answers`:
certificates, large tables, the page's random numbers in Python).
"""

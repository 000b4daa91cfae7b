"""What people read: the report of a reproduction, a diagnosis and a certificate in words.

Import from the modules: the page of a diagnosis need not wait for the figures of the papers.
"""

"""`python -m deeplin` is the command line."""

from deeplin.cli import main

main()

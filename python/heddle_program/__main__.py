"""`python -m heddle_program`: the command `heddle`."""

from . import main

main()

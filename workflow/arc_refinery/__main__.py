"""`python -m arc_refinery`: the same as `arc-refinery`."""

from arc_refinery.cli import main

main()

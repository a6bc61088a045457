"""`python -m wsbench.cli` is the command `wsbench`."""

from wsbench.cli import main

main()

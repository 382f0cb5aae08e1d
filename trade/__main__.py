"""``python -m trade``."""

from trade.cli import main

main()

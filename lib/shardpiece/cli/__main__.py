"""``python -m shardpiece.cli``."""

from shardpiece.cli import main

main()

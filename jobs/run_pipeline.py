"""spark-submit entry point of ``shardpiece run``, which it takes the arguments of."""

import sys

from shardpiece.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])

"""spark-submit entry point of ``shardpiece encode``, which it takes the arguments of."""

import sys

from shardpiece.cli import main

if __name__ == "__main__":
    main(["encode", *sys.argv[1:]])

"""spark-submit entry point of ``shardpiece evaluate``, which it takes the arguments of."""

import sys

from shardpiece.cli import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])

"""spark-submit entry point of ``shardpiece count``, which it takes the arguments of."""

import sys

from shardpiece.cli import main

if __name__ == "__main__":
    main(["count", *sys.argv[1:]])

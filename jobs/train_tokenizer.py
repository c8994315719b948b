"""spark-submit entry point of ``shardpiece train``, which it takes the arguments of."""

import sys

from shardpiece.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])

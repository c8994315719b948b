"""Put the demo corpus (Python's sources and documentation) into the object store, making its buckets."""

import sys

from shardpiece import storage
from shardpiece.corpus.stdlib import write_corpus

target = sys.argv[1]
fs, inner = storage.filesystem(target)
for bucket in (inner.split("/")[0], "results"):
    if not fs.exists(bucket):
        fs.mkdir(bucket)
for path in write_corpus(target):
    print(path)

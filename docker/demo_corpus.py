"""Put the demo corpus (Python's sources and documentation) into the object store, making its buckets."""

import sys
import time

from shardpiece import storage
from shardpiece.corpus.stdlib import write_corpus

target = sys.argv[1]
fs, inner = storage.filesystem(target)
for bucket in (inner.split("/")[0], "results"):
    for attempt in range(30):  # the store may have been started a moment ago
        try:
            if not fs.exists(bucket):
                fs.mkdir(bucket)
            break
        except Exception:
            if attempt == 29:
                raise
            time.sleep(1)
for path in write_corpus(target):
    print(path)

"""The tails of shards (see ``packing``), kept beside the journal until all are packed into the last shard."""

import numpy as np
import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.manifest import JOURNAL
from shardpiece.shards.rows import from_arrow, to_arrow


def write_tails(directory: str, name: str, tails: dict[str, TokenBatch]) -> list[dict]:
    """The tails of one shard, by side, each in a file of its own; their entries for the journal."""
    entries = []
    for split, tail in tails.items():
        rows = to_arrow(tail)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema.with_metadata({"dtype": tail.tokens.dtype.str})) as writer:
            writer.write(rows)
        data = sink.getvalue().to_pybytes()
        file = storage.join(JOURNAL, f"{name}{split and '.'}{split}.tail.arrow")
        storage.write_bytes(storage.join(directory, file), data)
        entries.append(
            {
                "name": file,
                "split": split,
                "bytes": len(data),
                "checksum": storage.checksum_bytes(data),
                "rows": len(tail),
            }
        )
    return entries


def read_tail(directory: str, entry: dict) -> TokenBatch:
    """Raises FormatError when the file is not the one that was written."""
    path = storage.join(directory, entry["name"])
    try:
        data = storage.read_bytes(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    if storage.checksum_bytes(data) != entry["checksum"]:
        raise FormatError(f"{path}: changed while the job ran")
    with pa.ipc.open_file(pa.BufferReader(data)) as file:
        return from_arrow(file.get_batch(0), np.dtype(file.schema.metadata[b"dtype"].decode()))

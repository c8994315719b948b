"""Reading shards back, document by document, as the manifest lists them."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.errors import FormatError


def iter_documents(directory: str, manifest: dict) -> Iterator[tuple[str | None, np.ndarray]]:
    """(id, token ids) of every document in order; ids are None where the format has none.

    Raises FormatError naming a file that is missing, truncated or does not hold what the manifest says.
    """
    read = {"parquet": _read_parquet, "bin": _read_bin}.get(manifest["shard_format"])
    if read is None:
        raise FormatError(f"{directory}: unknown shard format {manifest['shard_format']!r}")
    for shard in manifest["shards"]:
        count = 0
        try:
            _verify(directory, shard)
            for document in read(directory, shard, manifest):
                yield document
                count += 1
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FormatError(f"{directory}, shard {shard['name']}: cannot be read ({error})") from None
        if count != shard["documents"]:
            raise FormatError(
                f"{directory}, shard {shard['name']}: {count} documents, the manifest says {shard['documents']}"
            )


def _verify(directory: str, shard: dict) -> None:
    """Raises ValueError when a file is not the one that was written."""
    for file in shard["files"]:
        if storage.checksum(storage.join(directory, file["name"])) != file["checksum"]:
            raise ValueError(f"{file['name']} is not what the manifest's checksum was taken of: it was changed")


def _read_parquet(directory: str, shard: dict, manifest: dict) -> Iterator[tuple[str, np.ndarray]]:
    fs, inner = storage.filesystem(storage.join(directory, shard["files"][0]["name"]))
    with fs.open(inner, "rb") as file, closing(pq.ParquetFile(file)) as parquet:
        for batch in parquet.iter_batches(1024):
            tokens = batch["tokens"]
            values = tokens.values.to_numpy()
            offsets = tokens.offsets.to_numpy()
            for i, name in enumerate(batch["id"].to_pylist()):
                yield name, values[offsets[i] : offsets[i + 1]]


def _read_bin(directory: str, shard: dict, manifest: dict) -> Iterator[tuple[None, np.ndarray]]:
    names = {file["name"].rsplit(".", 1)[-1]: storage.join(directory, file["name"]) for file in shard["files"]}
    fs, inner = storage.filesystem(names["npy"])
    with fs.open(inner, "rb") as file:
        ends = np.lib.format.read_array(file, allow_pickle=False)
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    fs, inner = storage.filesystem(names["bin"])
    with fs.open(inner, "rb") as file:
        start = 0
        for end in ends.tolist():
            size = (end - start) * dtype.itemsize
            raw = file.read(size) if size else b""
            if len(raw) != size:
                raise ValueError(f"{names['bin']} ends in the middle of a document")
            yield None, np.frombuffer(raw, dtype)
            start = end

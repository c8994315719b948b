"""Whether shards are what their manifest says: files, rows, ids, indexes, and sums.

Nothing is trusted but the manifest, and that is compared with itself. Every function returns what is wrong, a line each.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import xxhash

from shardpiece import storage
from shardpiece.corpus.order import Validation
from shardpiece.errors import FormatError, ShardpieceError
from shardpiece.shards import formats
from shardpiece.shards.builder import ShardLayout, finish_formats
from shardpiece.shards.formats.base import Row
from shardpiece.shards.manifest import files_of, spec_of
from shardpiece.shards.statistics import Statistics, read_statistics

_CHUNK_TOKENS = 1 << 20
_SHOWN = 5


@dataclass
class Checked:
    """What was found of one shard. ``rows``, ``tokens``: as read; ``frequencies``: int64 [vocab_size], None when the shard
    could not be read."""

    name: str
    problems: list[str] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    frequencies: np.ndarray | None = None


def check_shard(directory: str, manifest: dict, shard: dict) -> Checked:
    """``manifest`` needs no shards in it. Reads every file of every format once for its checksum and once for its rows."""
    found = Checked(shard["name"])
    found.problems = [problem for file in shard["files"] if (problem := file_problem(directory, file))]
    if found.problems:
        return found
    found.frequencies = np.zeros(manifest["vocab_size"], np.int64)
    for split, side in shard.get("splits", {"": shard}).items():
        contents = []
        for name in manifest["formats"]:
            files = [file for file in shard["files"] if file["format"] == name and file.get("split", "") == split]
            where = " ".join(filter(None, (shard["name"], split, f"as {name}")))
            try:
                content = _read(formats.get(name).read(directory, files, spec_of(manifest)), manifest["vocab_size"])
            except (OSError, ValueError, LookupError, pa.ArrowException, ShardpieceError) as error:
                found.problems.append(f"{where}: cannot be read ({_one_line(error)})")
                continue
            contents.append(content)
            found.problems += [f"{where}: {problem}" for problem in content.problems(side, manifest["vocab_size"])]
        if len({content.hash for content in contents}) > 1:
            where = f"{shard['name']} {split}".strip()
            found.problems.append(f"{where}: its formats hold different tokens")
        if contents:
            found.rows += contents[0].rows
            found.tokens += contents[0].tokens
            found.frequencies += contents[0].frequencies
    return found


def file_problem(directory: str, file: dict) -> str | None:
    path = storage.join(directory, file["name"])
    fs, inner = storage.filesystem(path)
    try:
        size = int(fs.info(inner)["size"] or 0)
        if size != file["bytes"]:
            return f"{file['name']}: {size:,} bytes, the manifest says {file['bytes']:,}"
        if storage.checksum(path) != file["checksum"]:
            return f"{file['name']}: changed since it was written, its checksum is another one"
    except FileNotFoundError:
        return f"{file['name']}: missing"
    except OSError as error:
        return f"{file['name']}: cannot be read ({error.strerror or error})"
    return None


@dataclass(frozen=True)
class _Content:
    """What one format holds of a shard. ``outside``: ids beyond the vocabulary; ``hash``: of all ids and lengths."""

    rows: int
    tokens: int
    outside: int
    hash: str
    frequencies: np.ndarray

    def problems(self, side: dict, vocab_size: int) -> list[str]:
        """``side``: the shard's entry, or that of its part for training or validation."""
        problems = []
        if self.outside:
            problems.append(f"{self.outside:,} ids outside the vocabulary of {vocab_size:,}")
        expected = side.get("rows", side["documents"])
        if self.rows != expected:
            problems.append(f"{self.rows:,} rows, the manifest says {expected:,}")
        tokens = side["tokens"]
        if "packing" in side:
            tokens = side["packing"]["packed_tokens"] + side["packing"]["pad_tokens"]
        if self.tokens != tokens:
            problems.append(f"{self.tokens:,} tokens, the manifest says {tokens:,}")
        return problems


def _read(rows: Iterator[Row], vocab_size: int) -> _Content:
    frequencies = np.zeros(vocab_size, np.int64)
    state = xxhash.xxh3_64()
    lengths: list[int] = []
    outside = 0
    for together in _gathered(rows, lengths):
        state.update(together)
        inside = (together >= 0) & (together < vocab_size)
        outside += len(together) - int(inside.sum())
        frequencies += np.bincount(together[inside], minlength=vocab_size)
    state.update(np.array(lengths, np.int64))
    return _Content(len(lengths), sum(lengths), outside, state.hexdigest(), frequencies)


def _gathered(rows: Iterator[Row], lengths: list[int]) -> Iterator[np.ndarray]:
    """The ids of many rows at once, int64; adds the rows' lengths to ``lengths``."""
    pending: list[np.ndarray] = []
    size = 0
    for row in rows:
        lengths.append(len(row.tokens))
        pending.append(row.tokens)
        size += len(row.tokens)
        if size >= _CHUNK_TOKENS:
            yield np.concatenate(pending).astype(np.int64)
            pending, size = [], 0
    if pending:
        yield np.concatenate(pending).astype(np.int64)


def check_manifest(directory: str, manifest: dict) -> list[str]:
    """The manifest with itself: sums, names, and that the shards together hold every input file once."""
    problems = []
    shards = manifest["shards"]
    for name in ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens"):
        total, found = manifest["totals"].get(name), sum(shard.get(name, 0) for shard in shards)
        if found != total:
            problems.append(f"manifest: {found:,} {name.replace('_', ' ')} in its shards, {total} in its totals")
    for what, names in (("shard", [shard["name"] for shard in shards]),
                        ("file", [file["name"] for file in files_of(manifest)])):  # fmt: skip
        problems += [f"manifest: the {what} {name} is listed {n} times" for name, n in Counter(names).items() if n > 1]
    return problems + check_beside(directory, manifest)


def check_beside(directory: str, manifest: dict) -> list[str]:
    """The files beside the shards: as the manifest says, and as the shards make them."""
    listed = [file for described in manifest["formats"].values() for file in described["files"]]
    problems = [problem for file in listed if (problem := file_problem(directory, file))]
    # Which documents are set apart is of no matter here, only that some are.
    validation = Validation(0.5) if any("splits" in shard for shard in manifest["shards"]) else None
    layout = ShardLayout(tuple(manifest["formats"]), spec_of(manifest), validation)
    scratch = f"memory://shardpiece-verify-{uuid.uuid4().hex}"
    try:
        made = finish_formats(scratch, manifest["shards"], layout)
        for name, described in manifest["formats"].items():
            if made[name]["files"] != described["files"]:
                problems.append(f"manifest: the files beside the shards of {name} are not what its shards make")
    except (OSError, LookupError, ValueError, ShardpieceError) as error:
        problems.append(f"manifest: what stands beside the shards cannot be made of it ({_one_line(error)})")
    finally:
        storage.remove(scratch)
    return problems


def check_statistics(directory: str, manifest: dict, frequencies: np.ndarray | None) -> list[str]:
    """The statistics' files, their sums against the manifest's, and against ``frequencies`` as counted in the shards."""
    problems = []
    total = Statistics.empty(manifest["vocab_size"])
    for file in manifest["statistics"]:
        problem = file_problem(directory, file)
        if problem:
            problems.append(problem)
            continue
        try:
            total.merge(read_statistics(storage.join(directory, file["name"])))
        except FormatError as error:
            problems.append(str(error))
    if problems:
        return problems
    totals = manifest["totals"]
    for what, found in (("documents", total.documents), ("tokens", total.tokens)):
        if found != totals[what]:
            problems.append(f"statistics: {found:,} {what}, the manifest says {totals[what]:,}")
    if frequencies is not None and (differing := np.flatnonzero(total.frequencies != frequencies)).size:
        shown = ", ".join(map(str, differing[:_SHOWN].tolist()))
        problems.append(f"statistics: {differing.size:,} tokens occur more or less often in the shards ({shown})")
    return problems


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

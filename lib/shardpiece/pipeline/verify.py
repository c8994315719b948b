"""``shardpiece verify``: shards against their manifest, a tokenizer and the input, in processes without Spark."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context

import numpy as np

from shardpiece import storage
from shardpiece.corpus.base import Columns, InputPlan, Sample, Selection
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input
from shardpiece.errors import ShardpieceError, one_line
from shardpiece.lock import LOCK, read_lock
from shardpiece.pipeline.outputs import STARTED
from shardpiece.pipeline.progress import StageProgress
from shardpiece.pipeline.source_check import (
    Compared,
    Digest,
    Source,
    compare_in_order,
    digest,
    hashes_of_batches,
    hashes_of_rows,
    members,
    named_differences,
)
from shardpiece.shards import formats
from shardpiece.shards.manifest import JOURNAL, MANIFEST, files_of, read_manifest
from shardpiece.shards.readers import shard_rows
from shardpiece.shards.verify import Checked, check_manifest, check_shard, check_statistics
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.tokenizer import Tokenizer

# What starting processes takes longer than.
_SMALL_BYTES = 64 << 20
_CACHE_BYTES = 64 << 20
_NAMED_BUCKETS = 16


@dataclass
class Verified:
    """``problems``: what is wrong, a line each; ``notes``: what is not wrong but worth knowing; ``compared``: documents of
    the input that were compared, ``exact``: how many of these decode to their text byte for byte."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shards: int = 0
    documents: int = 0
    tokens: int = 0
    compared: int = 0
    exact: int = 0


def verify(
    directory: str, tokenizer: Tokenizer | None = None, inputs: list[str] | None = None, workers: int | None = None
) -> Verified:
    """Everything there is to check. ``inputs``: patterns, compared with the shards document by document; they need the
    ``tokenizer``. ``workers``: processes; default: as many as there are cores, none for little.

    Raises FormatError when there is no manifest that can be read, InputError when the input cannot.
    """
    directory = storage.absolute(directory)
    manifest = read_manifest(directory)
    shards = manifest["shards"]
    done = Verified(shards=len(shards), documents=manifest["totals"]["documents"], tokens=manifest["totals"]["tokens"])
    done.problems += check_manifest(directory, manifest)
    done.notes += _beside(directory, manifest)
    if tokenizer is not None and tokenizer.fingerprint != manifest["tokenizer"]:
        done.problems.append(
            f"the shards were encoded with the tokenizer {manifest['tokenizer'][:12]}…, this one is "
            f"{tokenizer.fingerprint[:12]}…"
        )
        tokenizer = None
    splits: dict[str, list[dict]] = {}
    selection = None
    if inputs:
        plan = _plan(manifest, inputs)
        selection = plan.selection
        splits, problems = _listed(manifest, plan)
        done.problems += problems
    mode = _mode(manifest, splits, done) if inputs and tokenizer is not None else ""
    job = _Job(
        directory,
        {**manifest, "shards": [], "input": []},
        None if tokenizer is None else packed.pack(tokenizer),
        selection,
        max(manifest["formats"], key=lambda name: len(formats.get(name).carries)),
    )
    if workers is None:
        small = sum(file["bytes"] for shard in shards for file in shard["files"]) <= _SMALL_BYTES
        workers = 1 if small else os.cpu_count() or 1
    with _workers(job, workers) as run:
        _check_shards(run, manifest, mode, set(splits), done)
        if mode == "order":
            done.problems += _covered(manifest, splits)
        elif mode == "set":
            _compare_sets(run, manifest, list(splits.values()), done)
    if mode and done.compared and done.exact < done.compared:
        done.notes.append(
            f"{done.compared - done.exact:,} of {done.compared:,} documents decode to another text than they have: the "
            f"tokenizer normalizes, or has no token for some of it"
        )
    done.problems = list(dict.fromkeys(done.problems))
    return done


def _mode(manifest: dict, splits: dict[str, list[dict]], done: Verified) -> str:
    """How to compare with the input: "order", "set", or "" where it cannot be done, which is noted."""
    made_with = manifest["settings"]
    for key in ("packing", "mixture"):
        if made_with.get(key):
            done.notes.append(f"not compared with the input: encode.{key} leaves no document for document to compare")
            return ""
    if made_with.get("validation") or made_with.get("shuffle"):
        missing = [file["path"] for file in manifest["input"] if file["path"] not in splits]
        if missing:
            done.notes.append(
                f"not compared with the input: shuffled shards need all of it, and {missing[0]} is not given"
            )
            return ""
        return "set"
    return "order"


def _plan(manifest: dict, inputs: list[str]) -> InputPlan:
    """The input as these shards read it."""
    made_with = manifest["settings"]
    columns = Columns(**{**made_with["columns"], "metadata": tuple(made_with["columns"]["metadata"])})
    sample = None if made_with["sample"] is None else Sample(**made_with["sample"])
    selection = Selection(columns, made_with["where"], sample, made_with["text_documents"], made_with["bad_rows"])
    return plan_input(list_files(inputs), selection, "skip" if "skipped_files" in manifest else "error")


def _listed(manifest: dict, plan: InputPlan) -> tuple[dict[str, list[dict]], list[str]]:
    """The splits of the given files that are in the shards, by path; and what is wrong with the others."""
    known = {file["path"]: file for file in manifest["input"]}
    problems, splits = [], {}
    for entry in plan.ledger():
        path = entry["path"]
        if path not in known:
            problems.append(f"{path}: in the input, but not in the shards")
        elif known[path] != entry:
            problems.append(f"{path}: changed since it was encoded")
        else:
            splits[path] = []
    for split in plan.splits:
        if split.path in splits:
            splits[split.path].append(asdict(split))
    return splits, problems


def _covered(manifest: dict, splits: dict[str, list[dict]]) -> list[str]:
    """Whether each split of these files is in one shard, and in one alone."""
    want = Counter(storage.canonical_json(split) for of_file in splits.values() for split in of_file)
    have = Counter(
        storage.canonical_json(source)
        for shard in manifest["shards"]
        for source in shard["sources"]
        if source["path"] in splits
    )
    problems = []
    for what, differing in (("in no shard", want - have), ("in several shards, or no part of the input", have - want)):
        for raw in sorted(differing)[:_NAMED_BUCKETS]:
            split = json.loads(raw)
            place = ", ".join(f"{key} {value}" for key, value in split.items() if key not in ("path", "text_bytes"))
            problems.append(f"{split['path']} ({place}): {what}")
    return problems


def _beside(directory: str, manifest: dict) -> list[str]:
    """What is in the directory and not in the manifest."""
    notes = []
    listed = {MANIFEST, STARTED, LOCK, *(file["name"] for file in files_of(manifest))}
    names = storage.tree(directory)
    more = [name for name in names if name not in listed and not name.startswith(f"{JOURNAL}/")]
    if more:
        notes.append(
            f"{len(more):,} files that the manifest does not list, such as {more[0]}; to remove them: shardpiece clean "
            f"{directory}"
        )
    if STARTED in names and storage.read_json(storage.join(directory, STARTED)).get("key") != manifest["key"]:
        notes.append("an increment was begun and not finished; the same encode command goes on with it")
    if LOCK in names and (holder := read_lock(directory)) is not None:
        notes.append(f"held by {holder.describe()}")
    return notes


def _check_shards(run: "_Run", manifest: dict, mode: str, available: set[str], done: Verified) -> None:
    """Every shard with its entry, and in mode "order" with its splits where all of their files are available."""
    shards = manifest["shards"]
    frequencies: np.ndarray | None = np.zeros(manifest["vocab_size"], np.int64)
    state = {"shards": 0, "documents": 0}
    left_out = 0
    with StageProgress("verify", lambda: (state["shards"] / max(1, len(shards)), dict(state))):
        work = []
        for shard in shards:
            compare = mode == "order" and all(source["path"] in available for source in shard["sources"])
            left_out += mode == "order" and not compare
            work.append((shard, compare))
        for found, compared in run(_examine, work):
            state["shards"] += 1
            state["documents"] += found.rows
            done.problems += found.problems
            frequencies = None if frequencies is None or found.frequencies is None else frequencies + found.frequencies
            if compared is not None:
                done.problems += compared.problems
                done.compared += compared.documents
                done.exact += compared.exact
    if left_out:
        done.notes.append(f"{left_out:,} shards were not compared: not all of their input is given, or as it was")
    if any("rows" in side for shard in shards for side in shard.get("splits", {"": shard}).values()):
        frequencies = None  # padding is no document's
    directory = run.job.directory
    done.problems += check_statistics(directory, manifest, frequencies)


def _compare_sets(run: "_Run", manifest: dict, parts: list[list[dict]], done: Verified) -> None:
    source, shards = Digest(), Digest()
    with StageProgress("verify: input", lambda: (0.0, {"documents": done.compared})):
        for found, documents, exact in run(_digest_of_source, [(part,) for part in parts]):
            source.merge(found)
            done.compared += documents
            done.exact += exact
    for found in run(_digest_of_shard, [(shard,) for shard in manifest["shards"]]):
        shards.merge(found)
    buckets = source.differing(shards)[:_NAMED_BUCKETS]
    if buckets.size:
        counted = [Counter(), Counter()]
        for counts, function, work in (
            (counted[0], _members_of_source, parts),
            (counted[1], _members_of_shard, manifest["shards"]),
        ):
            for found in run(function, [(one, buckets) for one in work]):
                counts.update(found)
        done.problems += named_differences(*counted)


@dataclass(frozen=True)
class _Job:
    """What every process needs. ``manifest``: without its shards; ``format``: the one to read documents from."""

    directory: str
    manifest: dict
    tokenizer: bytes | None
    selection: Selection | None
    format: str


class _Run:
    """Calls functions with arguments, in processes or in this one; results come as they are done."""

    def __init__(self, job: _Job, pool: ProcessPoolExecutor | None):
        self.job, self._pool = job, pool

    def __call__(self, function: Callable, work: list[tuple]) -> Iterator:
        if self._pool is None:
            yield from (function(*arguments) for arguments in work)
        else:
            for done in as_completed([self._pool.submit(function, *arguments) for arguments in work]):
                yield done.result()


@contextmanager
def _workers(job: _Job, workers: int) -> Iterator[_Run]:
    if workers <= 1:
        _begin(job)
        yield _Run(job, None)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (job,)) as pool:
        try:
            yield _Run(job, pool)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_JOB: list[_Job] = []
_SOURCE: list[Source] = []


def _begin(job: _Job) -> None:
    _JOB[:] = [job]
    _SOURCE[:] = []


def _source() -> Source:
    [job] = _JOB
    if not _SOURCE:
        _SOURCE.append(Source(job.manifest, job.selection, packed.unpack(job.tokenizer, _CACHE_BYTES)))
    return _SOURCE[0]


def _examine(shard: dict, compare: bool) -> tuple[Checked, Compared | None]:
    [job] = _JOB
    found = check_shard(job.directory, job.manifest, shard)
    if not compare or found.problems:
        return found, None
    try:
        return found, compare_in_order(job.directory, job.manifest, shard, job.format, _source())
    except ShardpieceError as error:
        found.problems.append(f"{shard['name']}: cannot be compared ({one_line(error)})")
        return found, None


def _digest_of_source(part: list[dict]) -> tuple[Digest, int, int]:
    source = _source()
    before = source.exact
    found = digest(hashes_of_batches(source.batches(part), source.with_ids))
    return found, int(found.counts.sum()), source.exact - before


def _rows_of(shard: dict):
    [job] = _JOB
    return hashes_of_rows(shard_rows(job.directory, job.manifest, shard, job.format), _source().with_ids)


def _digest_of_shard(shard: dict) -> Digest:
    return digest(_rows_of(shard))


def _members_of_source(part: list[dict], buckets: np.ndarray) -> Counter:
    source = _source()
    return members(hashes_of_batches(source.batches(part), source.with_ids), buckets)


def _members_of_shard(shard: dict, buckets: np.ndarray) -> Counter:
    return members(_rows_of(shard), buckets)

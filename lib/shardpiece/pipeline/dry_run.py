"""``--dry-run``: what a command would do, found out without Spark and without writing anything.

The plan is the one that the run would make, with the same errors. Sizes are estimates: documents from places all over the
input are encoded and written to shards in memory.
"""

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import FormatError
from shardpiece.lock import read_lock
from shardpiece.pipeline import count, train
from shardpiece.pipeline.encode import plan as encode
from shardpiece.pipeline.outputs import STARTED, OutputKind
from shardpiece.pipeline.source_check import Source
from shardpiece.shards.builder import ShardBuilder
from shardpiece.shards.manifest import journal_path

_SAMPLED_SPLITS = 8
_SAMPLED_BYTES = 1 << 20
# Without a tokenizer to try: what byte-level vocabularies of 32,000 tokens and more have, text of many languages.
_BYTES_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Estimate:
    """Of what is to be encoded. ``bytes``: format → bytes of its files; ``sampled``: bytes of text this was found with, 0
    for a rule of thumb."""

    tokens: float
    bytes: dict[str, float]
    sampled: int


def show(config: JobConfig, stages: Sequence[str]) -> Iterator[str]:
    """Lines for people about each of "count", "train", "encode"."""
    stage_lines = {"count": _count, "train": _train, "encode": _encode}
    for stage in stages:
        for line in stage_lines[stage](config, alone=len(stages) == 1):
            yield f"{stage}: {line}"
    yield "dry run: nothing was done"


def _count(config: JobConfig, alone: bool) -> Iterator[str]:
    planned = count.plan_count(config)
    yield _input(planned.plan)
    if count.OUTPUT.finished(planned.output, planned.key, config.overwrite) is not None:
        yield f"{planned.output} is done and unchanged: nothing to do"
        return
    yield from _output(count.OUTPUT, planned.output, config, planned.plan.files)


def _train(config: JobConfig, alone: bool) -> Iterator[str]:
    """As far as it can be said: the word table may be still to come."""
    sizes = ", ".join(f"{size:,}" for size in config.tokenizer_paths)
    yield f"{config.train.algorithm} with {sizes} tokens from {storage.absolute(config.words_source)}"
    for path in config.tokenizer_paths.values():
        yield from _output(train.OUTPUT, storage.absolute(path), config, ())


def _encode(config: JobConfig, alone: bool) -> Iterator[str]:
    if not alone and not _is_there(train.OUTPUT, config.tokenizer_source):
        files = count.plan_count(config).plan
        yield _input(files)
        tokens = files.text_bytes / _BYTES_PER_TOKEN
        yield (
            f"the tokenizer is still to come: about {_number(tokens)} tokens, if one has {_BYTES_PER_TOKEN:.0f} bytes; "
            f"{_size(4 * tokens)} at 4 bytes a token, in each of {', '.join(config.encode.format)}"
        )
        yield from _output(encode.OUTPUT, storage.absolute(config.shards_path), config, files.files)
        return
    planned = encode.plan_encode(config)
    plan = planned.plan
    if planned.finished is not None:
        yield f"{planned.why_finished}: nothing to do"
        return
    seen = len(planned.found.ledger)
    yield _input(plan) + (f", beside {seen:,} files that are in the shards already" if seen else "")
    first, last = (planned.shards[0].name, planned.shards[-1].name) if planned.shards else ("", "")
    yield f"{len(planned.shards):,} shards, {first} to {last}, of {', '.join(planned.layout.formats)}"
    resumed = sum(_journaled(planned.output, shard.name, planned.key) for shard in planned.shards)
    if resumed:
        yield f"{resumed:,} of them were finished by an earlier run and are kept, if their checksums hold"
    estimate = estimated(planned)
    if planned.shares:
        yield "what follows is of all documents; how much of each group the mixture takes is measured when the run begins"
    found = f"from {_size(estimate.sampled)} of it, encoded" if estimate.sampled else "no text to try"
    yield f"about {_number(estimate.tokens)} tokens (estimated {found})"
    for name, size in estimate.bytes.items():
        yield f"about {_size(size)} of {name}"
    yield from _output(encode.OUTPUT, planned.output, config, plan.files, sum(estimate.bytes.values()))


def estimated(planned: encode.Planned) -> Estimate:
    """What the shards will hold, from documents of some splits all over the input."""
    splits, layout = planned.plan.splits, replace(planned.layout, seed=None, validation=None)  # order is no matter here
    chosen = (
        [splits[i] for i in sorted({int(i) for i in np.linspace(0, len(splits) - 1, _SAMPLED_SPLITS)})]
        if splits
        else []
    )
    manifest = {
        "settings": planned.made_with,
        "formats": dict.fromkeys(layout.formats),
        "vocab_size": planned.tokenizer.vocab_size,
        "tokenizer": planned.tokenizer.fingerprint,
    }
    source = Source(manifest, planned.plan.selection, planned.tokenizer)
    scratch = f"memory://shardpiece-dry-run-{uuid.uuid4().hex}"
    builder = ShardBuilder(scratch, "shard-00000", layout)
    planned_bytes = 0  # of what was sampled, as the plan counts text
    sampled = 0
    try:
        for split in chosen:
            taken = 0
            beginning = split.beginning(_SAMPLED_BYTES) or split
            for encoded in source.encode(beginning):
                builder.add(encoded.written())
                taken += int(encoded.text_bytes.sum())
            sampled += taken
            part = 1.0
            if split.rows > 0:
                part = beginning.rows / split.rows
            elif beginning is not split:
                part = min(1.0, taken / max(1, split.text_bytes))
            planned_bytes += part * split.text_bytes
        entry = builder.finish()
    finally:
        builder.discard()
        storage.remove(scratch)
    scale = planned.plan.text_bytes / planned_bytes if planned_bytes else 0.0
    sizes = {
        name: scale * sum(file["bytes"] for file in entry["files"] if file["format"] == name) for name in layout.formats
    }
    return Estimate(scale * entry["tokens"], sizes, sampled)


def _input(plan) -> str:
    return (
        f"{len(plan.files):,} files, {'' if plan.rows is None else f'{plan.rows:,} documents in '}{len(plan.splits):,} "
        f"splits, about {_size(plan.text_bytes)} of text"
    )


def _output(kind: OutputKind, directory: str, config: JobConfig, files, size: float | None = None) -> Iterator[str]:
    """Where it goes, what is in the way, and whether there is room."""
    kind.check_place(directory, config.input, files)
    names = storage.list_names(directory)
    state = "new"
    if kind.manifest in names:
        state = (
            "is added to"
            if kind is encode.OUTPUT and config.encode.incremental and not config.overwrite
            else "is replaced"
        )
    elif STARTED in names:
        state = "was begun by an unfinished run"
    yield f"into {directory} ({state})"
    holder = read_lock(directory)
    if holder is not None:
        yield f"now {'left locked by' if holder.gone else 'in use by'} {holder.describe()}"
    if size is not None and storage.is_local(directory):
        place = Path(directory)
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        yield f"{_size(free)} are free there" + ("" if size < free else ": NOT ENOUGH")


def _is_there(kind: OutputKind, path: str) -> bool:
    try:
        kind.read(storage.absolute(path))
    except FormatError:
        return False
    return True


def _journaled(directory: str, name: str, key: str) -> bool:
    try:
        return storage.read_json(journal_path(directory, name)).get("key") == key
    except FormatError:
        return False


def _number(value: float) -> str:
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}"
    return f"{value:.0f}"


def _size(value: float) -> str:
    number = _number(value)
    return f"{number[:-1]} {number[-1]}B" if number[-1].isalpha() else f"{number} bytes"

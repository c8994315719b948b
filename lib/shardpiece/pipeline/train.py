"""The train stage: word table in, tokenizer artifacts out. Runs on the driver; reads the table with pyarrow, not through
the JVM (but for the cut of a table that the driver cannot hold).

A tokenizer is a directory. Several vocabulary sizes make a directory each, named by the size, below the output. While the
training runs, the directory of the largest one holds a checkpoint, and after an interruption, in ``partial/``, a tokenizer
of the merges so far.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import FormatError, TrainingError
from shardpiece.lock import RunLock
from shardpiece.pipeline.checkpoint import CHECKPOINT_FILE, Checkpoint, read_checkpoint
from shardpiece.pipeline.interrupt import stop_on_signal
from shardpiece.pipeline.kernels import prepare_kernels, prepare_training
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.reduce import reduce_and_learn
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.tasks import plan_key
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats import sentencepiece_tokenizer
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.training import bpe, report, trainers
from shardpiece.training.monitor import Monitor
from shardpiece.training.prepare import elsewhere
from shardpiece.training.trained import Trained
from shardpiece.words import table as words

PARTIAL = "partial"
_FILES = (artifact.TOKENIZER_FILE, *artifact.OPTIONAL_FILES, CHECKPOINT_FILE)
OUTPUT = OutputKind(
    what="a tokenizer",
    manifest=artifact.METADATA_FILE,
    names="|".join([*(name.replace(".", r"\.") for name in _FILES), f"{PARTIAL}/.*"]),
    read=artifact.read_metadata,
    key=lambda metadata: metadata["provenance"].get("key"),
    files=lambda metadata: metadata["files"],
)


def train(config: JobConfig, session: Callable | None = None) -> StageReport:
    """Train from ``config.train.words`` (or count's output) into ``config.tokenizer_path``; does nothing when that was done
    before. ``session`` is called, and Spark started, for ``cut.where: spark`` only.

    Raises KeyboardInterrupt after an interruption, when what there is has been written.
    """
    with ExitStack() as held:
        return _train(config, session, held)


def _train(config: JobConfig, session: Callable | None, held: ExitStack) -> StageReport:
    source = storage.absolute(config.words_source)
    manifest = words.read_manifest(source)
    engine = TextEngine.from_spec(manifest["engine"])
    engine.check_setting(config.engine_settings, f"the word table {source}")
    base = None
    if config.train.continue_from:
        base = load(config.train.continue_from, config.train.continue_pretokenizer)
    settings = config.train.model_dump(
        mode="json",
        exclude={
            "words",
            "output",
            "vocab_size",
            "vocab_sizes",
            "continue_from",
            "continue_pretokenizer",
            "threads",
            "checkpoint_seconds",
        },
    )
    if base is not None:
        settings["continue_from"] = base.fingerprint
    outputs = {size: storage.absolute(path) for size, path in config.tokenizer_paths.items()}
    keys = {
        size: plan_key(stage="train", words=manifest["fingerprint"], settings={**settings, "vocab_size": size})
        for size in outputs
    }
    finished = {size: OUTPUT.finished(path, keys[size], config.overwrite) for size, path in outputs.items()}
    largest = max(outputs)
    if None not in finished.values():
        log(f"train: {', '.join(outputs.values())}: done and unchanged, skipped")
        return _report(finished[largest], 0.0, skipped=True)
    for path in outputs.values():
        OUTPUT.check(path)
    locks = {
        size: held.enter_context(OUTPUT.lock(path, partial(OUTPUT.finished, path, keys[size], config.overwrite)))
        for size, path in outputs.items()
    }
    prepare_kernels(engine)
    prepare_training(config.train)
    _say_what_is_text(config, manifest)
    began = time.monotonic()
    spark = config.train.cut is not None and config.train.cut.where == "spark"
    table = None
    if not spark:
        table = words.WordTable.read(source)
        if table.fingerprint != manifest["fingerprint"]:
            raise FormatError(f"{source}: the rows are not those that {words.MANIFEST} was written for; count again")
        log(f"train: {len(table):,} distinct words read from {source}")

    initial = _checkpoint_to_resume(config, outputs[largest], keys[largest])

    def start() -> None:
        """Nothing that is there is touched before there is something to put in its place."""
        for size, lock in locks.items():
            OUTPUT.start(lock, keys[size], resume=initial is not None)

    checkpoint = Checkpoint(outputs[largest], keys[largest], config.train.checkpoint_seconds, start)
    with _shown() as (on_progress, stop):
        monitor = Monitor(on_progress, checkpoint.offer, stop, lambda line: log(f"train: {line}"))
        if spark:
            trained = _train_on_cluster(config, engine, manifest, source, session, monitor, initial)
        else:
            trained = trainers.train_sizes(table, config.train, base=base, monitor=monitor, initial=initial)
    if not trained.complete:
        if trained.checkpoint is not None:
            checkpoint.write(trained.checkpoint)
        checkpoint.start()
        _keep_partial(trained, outputs[largest], keys[largest])
        raise KeyboardInterrupt
    for size in sorted(outputs, reverse=True):
        tables = _checked_parts(source, manifest) if table is None else [table]
        metadata = _write(trained, size, tables, locks[size], keys[size], config.train.threads, checkpoint.start)
        finished[size] = metadata
    return _report(finished[largest], time.monotonic() - began, figures=trained.figures)


@contextmanager
def _shown() -> Iterator[tuple[Callable, Callable]]:
    """Progress for people: gives what the trainer tells it to, and what asks whether to stop."""
    state: dict = {"fraction": 0.0, "figures": {}}

    def on_progress(fraction: float, figures: dict) -> None:
        state.update(fraction=fraction, figures=figures)

    def read() -> tuple[float, dict]:
        figures = dict(state["figures"])
        if "pair" in figures:
            left, right = figures.pop("pair")
            figures["now"] = f"{readable(left)}+{readable(right)} ({figures.pop('count'):,})"
        return state["fraction"], figures

    with stop_on_signal() as stop, StageProgress("train", read, stopped=stop):
        yield on_progress, stop


def _train_on_cluster(config: JobConfig, engine, manifest, source, session, monitor, initial) -> Trained:
    """The table stays with the executors, which hand over what is left of it when all that is rare is cut away."""

    def learn(prepared, start, n_merges, reserved, known, monitor):
        cut = config.train.cut
        if not manifest["distinct_words"]:
            raise TrainingError("the word table is empty: nothing to train on")
        result, certificate = reduce_and_learn(
            session, source, start.alphabet, n_merges, floor=cut.floor, max_symbols=cut.max_symbols,
            **bpe.loop_settings(prepared, start, reserved, known, monitor),
        )  # fmt: skip
        return result, {"cut": bpe.certified(certificate)}

    origin = {
        "fingerprint": manifest["fingerprint"],
        "distinct": manifest["distinct_words"],
        "total": manifest["statistics"]["words"],
    }
    return bpe.train_sizes(elsewhere(engine, config.train, origin), monitor, initial=initial, learn=learn)


def _write(
    trained: Trained,
    size: int,
    tables: Iterable[words.WordTable],
    lock: RunLock,
    key: str,
    threads: int,
    start: Callable,
) -> dict:
    """The artifact of one size; returns its metadata."""
    tokenizer = trained.tokenizers[size]
    tokenizer.provenance["key"] = key
    transplant = trained.transplant if tokenizer is trained.largest else None
    problem = sentencepiece_tokenizer.problem(tokenizer)
    if problem and tokenizer.provenance["settings"].get("style") == "sentencepiece":
        log(f"train: no tokenizer.model is written: {problem}")
    frequencies = trained.frequencies if tokenizer is trained.largest else None
    if frequencies is None:
        frequencies = report.token_frequencies(tokenizer, tables, threads)
    files = artifact.to_files(tokenizer, _reports(tokenizer, frequencies, transplant))
    del files[artifact.METADATA_FILE]
    start()
    for name, content in files.items():
        storage.write_bytes(storage.join(lock.directory, name), content)
    metadata = artifact.metadata(tokenizer, files)
    OUTPUT.finish(lock, metadata)
    return metadata


def _reports(tokenizer: Tokenizer, frequencies: np.ndarray, transplant) -> dict[str, bytes]:
    unused = report.never_used(tokenizer, frequencies)
    tokenizer.provenance["tokens_never_used"] = unused
    if unused:
        log(f"train: {unused:,} of {tokenizer.vocab_size:,} tokens are in no word of the table as it is cut in the end")
    files = {artifact.VOCABULARY_FILE: report.vocabulary_table(tokenizer, frequencies)}
    if transplant is not None:
        buffer = io.BytesIO()
        pq.write_table(transplant, buffer)
        files[artifact.TRANSPLANT_FILE] = buffer.getvalue()
    return files


def _checked_parts(source: str, manifest: dict) -> Iterator[words.WordTable]:
    """The parts of a table that was not read as a whole. Raises FormatError at the end when they are not those that were
    counted."""
    sums = np.zeros(2, np.uint64)
    for part in words.WordTable.read_parts(source, manifest):
        sums += words.content_sums(part.table)
        yield part
    if words.fingerprint(sums, manifest["engine_fingerprint"]) != manifest["fingerprint"]:
        raise FormatError(f"{source}: the rows are not those that {words.MANIFEST} was written for; count again")


def _checkpoint_to_resume(config: JobConfig, output: str, key: str):
    if not config.resume:
        return None
    if not bpe.has_checkpoint(config.train):
        log(f"train: algorithm {config.train.algorithm} with these settings has no checkpoint, it begins anew")
        return None
    found = read_checkpoint(output, key)
    log(f"train: {len(found):,} merges of a checkpoint" if found is not None else "train: no checkpoint to resume")
    return found


def _keep_partial(trained: Trained, output: str, key: str) -> None:
    tokenizer = trained.largest
    tokenizer.provenance["key"] = key
    artifact.save(tokenizer, storage.join(output, PARTIAL))
    more = (
        "; the same command with --resume goes on"
        if trained.checkpoint is not None
        else "; the training cannot go on from it"
    )
    log(f"train: stopped; {storage.join(output, PARTIAL)} is a tokenizer of {tokenizer.vocab_size:,} tokens{more}")


def _say_what_is_text(config: JobConfig, manifest: dict) -> None:
    counted_as_text = sorted(set(config.train.special_tokens) - set(manifest["special_tokens"]))
    if counted_as_text:
        log(
            f"train: {', '.join(counted_as_text)}: counted as ordinary text where the corpus spells it; give count "
            f"the same special tokens to leave it out"
        )


def _report(metadata: dict, seconds: float, skipped: bool = False, figures: dict | None = None) -> StageReport:
    provenance = metadata["provenance"]
    shown = {"vocabulary": metadata["vocab_size"]}
    if provenance.get("merges") is not None:
        shown = {"merges": provenance["merges"], **shown}
    if provenance.get("last_merge_count") is not None and "scale" not in provenance["words"]:
        shown["count of the last merge"] = provenance["last_merge_count"]
    return StageReport("train", seconds, skipped, {**shown, **(figures or {})})

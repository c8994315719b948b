"""The demo: the main job on Python's own sources (or the user's Parquet), checked and summarized."""

import time

import click

from shardpiece import storage
from shardpiece.config import JobConfig, load_config
from shardpiece.corpus.base import Columns
from shardpiece.corpus.splits import read_batches
from shardpiece.corpus.stdlib import write_corpus
from shardpiece.errors import ShardpieceError
from shardpiece.pipeline import report, run
from shardpiece.pipeline.inputs import plan_job
from shardpiece.pipeline.java import find_java
from shardpiece.pipeline.progress import log
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.pieces import show_pieces
from shardpiece.tokenizer.shard_decoding import decoded_documents

_DEFAULT_OUTPUT = "runs/demo"
_SAMPLE = 2_000


def run_demo(
    inputs: list[str],
    text_column: str | None,
    output: str | None,
    vocab_size: int,
    overwrite: bool,
    master: str | None,
) -> None:
    """Make the corpus if none is given, run every stage, compare decoded documents with the input. Only its own
    default place is replaced without being told to."""
    find_java()
    overwrite = overwrite or output is None
    output = storage.absolute(output or _DEFAULT_OUTPUT)
    # Shards small enough that a few tens of megabytes give every core work.
    overrides = {
        "output": output,
        "train.vocab_size": vocab_size,
        "encode.shard_size": "8MB",
        "overwrite": overwrite,
    }
    if text_column:
        overrides["text_column"] = text_column
    if master:
        overrides["master"] = master
    if not inputs:
        corpus = storage.join(output, "corpus")
        storage.check_writable(corpus)
        began = time.monotonic()
        paths = write_corpus(corpus)
        log(
            f"demo: wrote Python's sources and documentation as {len(paths)} Parquet files to {corpus} "
            f"in {time.monotonic() - began:.1f} s"
        )
        inputs = [corpus]
        overrides |= {"id_column": "id", "group_column": "lang"}
    config = load_config(None, overrides | {"input": inputs})
    reports = run.run_all(config)
    checked = _check_sample(config)
    report.print_summary(reports, {"corpus": ", ".join(map(storage.absolute, inputs)), **run.places(config)})
    click.echo(f"     checked: the first {checked:,} documents, decoded, equal their input byte for byte")
    tokenizer = artifact.load(config.tokenizer_path)
    example = "def count_words(text: str) -> int:\n    return len(text.split())"
    click.echo(f"\nAn example, as `shardpiece tokenize` shows it:\n{show_pieces(tokenizer, tokenizer.encode(example))}")


def _check_sample(config: JobConfig) -> int:
    """Compare the first documents of the shards with the input. Raises ShardpieceError at a difference."""
    tokenizer = artifact.load(config.tokenizer_path)
    decoded = decoded_documents(config.shards_path, tokenizer)
    columns = Columns(config.text_column)
    checked = 0
    plan = plan_job(config, columns)
    for batch in read_batches(plan.splits, plan.selection):
        documents = Documents.from_arrow(batch[columns.text])
        for d in range(len(documents)):
            _, _, raw = next(decoded, (None, 0, None))
            if raw != documents.data[documents.offsets[d] : documents.offsets[d + 1]].tobytes():
                raise ShardpieceError(f"{batch.place(d)}: the decoded document differs from the input")
            checked += 1
        if checked >= _SAMPLE:
            return checked
    return checked

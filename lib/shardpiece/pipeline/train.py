"""The train stage: word table in, tokenizer artifact out. Runs on the driver; reads the table with pyarrow, not
through the JVM."""

import re
import time

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import FormatError
from shardpiece.pipeline.kernels import prepare_kernels
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.progress import StageProgress, log
from shardpiece.pipeline.report import StageReport
from shardpiece.pipeline.tasks import plan_key
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer import artifact
from shardpiece.training.bpe import train_bpe
from shardpiece.words import table as words

OUTPUT = OutputKind(
    what="a tokenizer",
    manifest=artifact.METADATA_FILE,
    names=re.escape(artifact.TOKENIZER_FILE),
    read=artifact.read_metadata,
    key=lambda metadata: metadata["provenance"].get("key"),
    files=lambda metadata: metadata["files"],
)


def train(config: JobConfig) -> StageReport:
    """Train from ``config.train.words`` (or count's output) into ``config.tokenizer_path``; does nothing when that
    was done before."""
    source = storage.absolute(config.words_source)
    output = storage.absolute(config.tokenizer_path)
    manifest = words.read_manifest(source)
    engine = TextEngine.from_spec(manifest["engine"])
    engine.check_setting(config.engine_settings, f"the word table {source}")
    settings = config.train.model_dump(exclude={"words", "output"})
    key = plan_key(stage="train", words=manifest["fingerprint"], settings=settings)
    finished = OUTPUT.finished(output, key, config.overwrite)
    if finished is not None:
        log(f"train: {output} is done and unchanged, skipped")
        return _report(finished, 0.0, skipped=True)
    OUTPUT.check(output)
    prepare_kernels(engine)
    counted_as_text = sorted(set(config.train.special_tokens) - set(manifest["special_tokens"]))
    if counted_as_text:
        log(
            f"train: {', '.join(counted_as_text)}: counted as ordinary text where the corpus spells it; give count "
            f"the same special tokens to leave it out"
        )
    began = time.monotonic()
    table = words.WordTable.read(source)
    if table.fingerprint != manifest["fingerprint"]:
        raise FormatError(f"{source}: the rows are not those that {words.MANIFEST} was written for; count again")
    log(f"train: {len(table):,} distinct words read from {source}")
    done = [0]

    def on_merge(merges: int, total: int) -> None:
        done[0] = merges

    total = max(1, config.train.vocab_size - 256 - len(config.train.special_tokens))
    with StageProgress("train", lambda: (done[0] / total, {"merges": done[0]})):
        tokenizer = train_bpe(
            table,
            config.train.vocab_size,
            tie_break=config.train.tie_break,
            alphabet_order=config.train.alphabet_order,
            min_frequency=config.train.min_frequency,
            max_token_length=config.train.max_token_length,
            special_tokens=config.train.special_tokens,
            progress=on_merge,
            log=lambda message: log(f"train: {message}"),
        )
    tokenizer.provenance["key"] = key
    content = artifact.to_files(tokenizer)[artifact.TOKENIZER_FILE]
    OUTPUT.start(output, key)
    storage.write_bytes(storage.join(output, artifact.TOKENIZER_FILE), content)
    metadata = artifact.metadata(tokenizer, content)
    OUTPUT.finish(output, metadata)
    return _report(metadata, time.monotonic() - began)


def _report(metadata: dict, seconds: float, skipped: bool = False) -> StageReport:
    provenance = metadata["provenance"]
    figures = {"merges": provenance["merges"], "vocabulary": metadata["vocab_size"]}
    if provenance["last_merge_count"] is not None:
        figures["count of the last merge"] = provenance["last_merge_count"]
    return StageReport("train", seconds, skipped, figures)

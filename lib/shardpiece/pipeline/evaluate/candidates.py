"""The tokenizers of an evaluation, and what it is to show of them."""

import numpy as np

from shardpiece import storage
from shardpiece.config import JobConfig
from shardpiece.errors import ConfigError, FormatError
from shardpiece.evaluation import build, schema
from shardpiece.evaluation.cost import DEFAULT_SHAPES
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.loading import load
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.training.report import token_frequencies
from shardpiece.words import table as words


def load_candidates(config: JobConfig) -> list[build.Candidate]:
    """The tokenizers, with different names. Raises ConfigError when there are none."""
    chosen = config.evaluate.tokenizers
    if not chosen:
        raise ConfigError("no tokenizer to evaluate: pass --tokenizer, once for each")
    found: list[build.Candidate] = []
    for one in chosen:
        path = storage.absolute(one.path)
        tokenizer = load(path, one.pretokenizer)
        name = one.name or _name(path)
        taken = {candidate.name for candidate in found}
        if name in taken and one.name:
            raise ConfigError(f"evaluate.tokenizers: two tokenizers are named {name!r}")
        unique = next(n for n in (name, *(f"{name} {i}" for i in range(2, len(chosen) + 2))) if n not in taken)
        found.append(build.Candidate(unique, one.path, tokenizer, _frequencies(path, tokenizer)))
    return found


_PLAIN_NAMES = ("tokenizer", "shardpiece", "vocab", "merges", "model", "spiece", "tekken")


def _name(path: str) -> str:
    """The file's name, or that of its directory where files are all named alike."""
    parts = [part for part in path.rstrip("/").split("/") if part]
    stem = parts[-1].rsplit(".", 1)[0] if "." in parts[-1][1:] else parts[-1]
    return parts[-2] if stem in _PLAIN_NAMES and len(parts) > 1 else stem


def _frequencies(path: str, tokenizer: Tokenizer) -> np.ndarray | None:
    """int64 [vocab_size]: the counts of the training table, where shardpiece train left them; else None."""
    table = storage.join(path, artifact.VOCABULARY_FILE)
    if not storage.is_directory(path) or not storage.exists(table):
        return None
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    try:
        for line in storage.read_bytes(table).decode().splitlines()[1:]:
            number, frequency, _ = line.split("\t", 2)
            counts[int(number)] = int(frequency)
    except (ValueError, IndexError):
        raise FormatError(f"{table}: not the table of frequencies of the tokenizer beside it") from None
    return counts


def with_table(one: build.Candidate, source: str, manifest: dict) -> build.Candidate:
    """With the counts of the word table that is said to be the training's, where it has the tokenizer's words."""
    if one.training is not None or manifest["engine_fingerprint"] != one.tokenizer.engine.fingerprint:
        return one
    parts = words.WordTable.read_parts(storage.absolute(source), manifest)
    return build.Candidate(one.name, one.source, one.tokenizer, token_frequencies(one.tokenizer, parts))


def wanted_of(config: JobConfig) -> build.Wanted:
    settings = config.evaluate
    return build.Wanted(
        shapes=shapes_of(config),
        probes=settings.probes,
        pivot=settings.pivot,
        samples=settings.samples,
        glitch_tokens=settings.glitch_tokens,
        settings={
            "input": config.input,
            "words": settings.words,
            "group_column": config.group_column,
            **settings.model_dump(mode="json", include={"parallel_column", "parallel_key", "pivot", "probes", "samples",
                                                        "glitch_tokens"}),
            "shapes": {name: shape.model_dump() for name, shape in shapes_of(config).items()},
        },
    )  # fmt: skip


def shapes_of(config: JobConfig) -> dict[str, schema.Shape]:
    given = config.evaluate.shapes
    if given is None:
        return dict(DEFAULT_SHAPES)
    return {
        name: schema.Shape(**{**shape.model_dump(), "key_value_size": shape.key_value_size or shape.d_model})
        for name, shape in given.items()
    }

"""What all trainers begin with: the word table pruned and weighted as asked, its text engine, and its words as arrays."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow.compute as pc
from pydantic import ValidationError

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.kernel_cache import read_only
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer, Setting
from shardpiece.tokenizer.formats import huggingface_text
from shardpiece.train_config import TrainConfig
from shardpiece.training.layout import Layout
from shardpiece.training.merge_loop import MAX_WORD_BYTES
from shardpiece.training.monitor import Monitor
from shardpiece.words.table import SCHEMA, WordTable
from shardpiece.words.weights import MAX_BYTES, pruned, weigh


@dataclass(frozen=True)
class Prepared:
    """``table``: pruned and weighted; ``data``, ``starts``, ``counts``: its words summed over groups, as WordTable.arrays
    gives them, less those too long to train on. For parity-aware BPE, a word is there once for each group: ``groups``
    (int32) names it by its place in ``group_names``. ``scale``: what one occurrence counts in weighted counts. ``origin``: for
    the provenance."""

    config: TrainConfig
    engine: TextEngine
    layout: Layout
    table: WordTable
    data: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    scale: Fraction
    origin: dict
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()

    @property
    def min_frequency(self) -> int:
        """In weighted counts."""
        if self.config.min_frequency is None:
            return 1
        return min(1 << 62, -(-self.config.min_frequency * self.scale.numerator // self.scale.denominator))

    def provenance(self, **more) -> dict:
        settings = self.config.model_dump(mode="json", exclude={"words", "output", "threads", "checkpoint_seconds"})
        return {"algorithm": self.config.algorithm, "settings": settings, "words": self.origin, **more}


def settings(algorithm: str, given: dict) -> TrainConfig:
    """The settings of a call as the configuration has them. Raises ConfigError naming what is wrong."""
    try:
        return TrainConfig.model_validate({"algorithm": algorithm, **given})
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"])
            text = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else f"{key}: {problem['msg']}"
            problems.append(text)
        raise ConfigError("; ".join(problems)) from None


def prepare(
    words: WordTable,
    config: TrainConfig,
    engine: TextEngine | PreTokenizer | Setting | None,
    monitor: Monitor,
) -> Prepared:
    """Raises ConfigError for settings that the table cannot have, TrainingError for an empty table."""
    engine = engine_of(words, engine)
    huggingface_text.check(engine, config.style == "byte-level")  # or it would fail after the training
    layout = Layout.of(config)
    origin = {"fingerprint": words.fingerprint}
    table, scale = words, Fraction(1)
    _check_counts(words)
    if config.min_count > 1:
        table, mass = pruned(table, config.min_count)
        origin["min_count"] = config.min_count
        origin["pruned_bytes"] = {group: gone for group, (_, gone) in mass.items() if gone}
        monitor.log(f"min_count {config.min_count} leaves out {_shares(mass)}")
    if config.weights is not None or config.temperature is not None:
        weighted = weigh(
            table, weights=config.weights, temperature=config.temperature, max_bytes=MAX_BYTES // _margin(config)
        )
        table, scale = weighted.table, weighted.scale
        origin["multipliers"] = weighted.multipliers
        origin["scale"] = str(scale)
        shares = sorted(weighted.shares_after.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{group} {float(share):.1%}" for group, share in shares[:8])
        monitor.log(f"mixture: {shown}{', …' if len(shares) > 8 else ''}")
    groups, names = None, ()
    if config.parity:
        data, starts, counts, groups, names = table.grouped_arrays()
    else:
        data, starts, counts = table.arrays()
    lengths = np.diff(starts)
    if len(lengths) and lengths.max() > MAX_WORD_BYTES:
        keep = lengths <= MAX_WORD_BYTES
        monitor.log(f"{int((~keep).sum()):,} words of more than {MAX_WORD_BYTES:,} bytes are left out of training")
        data, starts, counts = select_words(data, starts, counts, keep)
        groups = None if groups is None else groups[keep]
    if len(counts) == 0:
        left = "" if len(words) == 0 else ", min_count and the limit on the length of words aside"
        raise TrainingError(f"the word table is empty{left}: nothing to train on")
    _check_style(engine, config, monitor)
    origin |= {"distinct": len(counts), "total": int(counts.sum())}
    return Prepared(config, engine, layout, table, data, starts, counts, scale, origin, groups, names)


def _check_style(engine: TextEngine, config: TrainConfig, monitor: Monitor) -> None:
    """Raises ConfigError for words without the marks that a style lives on, and says what else looks wrong."""
    steps = engine.pretokenizer.steps
    count_again = f"count again with --style {config.style}, or choose another style"
    if config.style == "sentencepiece" and not any(step.kind == "metaspace" for step in steps):
        raise ConfigError(
            f"style sentencepiece needs words that begin with ▁, and the table was counted with {engine.name}: {count_again}"
        )
    keeps_spaces = not any(getattr(step, "behavior", "") == "removed" or step.kind == "metaspace" for step in steps)
    if config.style in ("continuing", "end-of-word") and keeps_spaces:
        monitor.log(
            f"style {config.style}, but the words were counted with {engine.name}, which keeps white space: {count_again}"
        )


def _check_counts(words: WordTable) -> None:
    """Raises TrainingError for counts that are none, or that 64 bits cannot add up."""
    counts = words.table["count"].to_numpy()
    lengths = pc.binary_length(words.table["word"]).to_numpy()
    if len(counts) and int(counts.min()) < 1:
        raise TrainingError("word counts must be positive")
    if float((counts.astype(np.float64) * lengths).sum()) >= 2.0**62:
        raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")


def _margin(config: TrainConfig) -> int:
    """By how much trainers multiply bytes: Unigram by the length of pieces, parity-aware BPE by that of an alphabet's."""
    if config.algorithm == "unigram":
        return config.max_token_length or 16
    return 16 if config.parity else 1


def elsewhere(engine: TextEngine, config: TrainConfig, origin: dict) -> Prepared:
    """For a table that stays where it is: everything but its words."""
    huggingface_text.check(engine, config.style == "byte-level")
    layout = Layout.of(config)
    table = WordTable(SCHEMA.empty_table())
    nothing = np.empty(0, np.int64)
    return Prepared(
        config, engine, layout, table, np.empty(0, np.uint8), np.zeros(1, np.int64), nothing, Fraction(1), origin
    )


def engine_of(words: WordTable, given: TextEngine | PreTokenizer | Setting | None) -> TextEngine:
    """The engine the words were counted with. Raises ConfigError when nobody says, or the two differ."""
    counted = words.engine
    wanted = None if given is None else TextEngine.of(given)
    if counted is None and wanted is None:
        raise ConfigError("the word table does not say which pre-tokenizer it was counted with: pass engine=")
    if counted is not None and wanted is not None and counted.fingerprint != wanted.fingerprint:
        raise ConfigError(
            f"the word table was counted with {counted.name}, not with {wanted.name}: count again, or train with the "
            f"table's own"
        )
    return counted or wanted


def select_words(
    data: np.ndarray, starts: np.ndarray, counts: np.ndarray, keep: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The words that ``keep`` (bool [w]) names, as new arrays."""
    lengths = np.diff(starts)
    kept = np.zeros(int(keep.sum()) + 1, np.int64)
    np.cumsum(lengths[keep], out=kept[1:])
    base = int(starts[0])
    chosen = data[base : int(starts[-1])][np.repeat(keep, lengths)]
    return read_only(chosen), read_only(kept), counts[keep]


def _shares(mass: dict[str, tuple[int, int]]) -> str:
    """Which part of each group's bytes was pruned, the hardest hit first."""
    parts = sorted(((gone / max(1, gone + kept), group) for group, (kept, gone) in mass.items()), reverse=True)
    total_kept, total_gone = (sum(column) for column in zip(*mass.values(), strict=True)) if mass else (0, 0)
    share = total_gone / max(1, total_kept + total_gone)
    if len(mass) == 1:
        return f"{share:.1%} of all bytes ({total_gone:,})"
    shown = ", ".join(f"{group} {part:.1%}" for part, group in parts[:8])
    return f"{share:.1%} of all bytes ({total_gone:,}); by group: {shown}{', …' if len(parts) > 8 else ''}"

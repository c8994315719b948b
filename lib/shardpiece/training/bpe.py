"""Training BPE tokenizers from a word table: what words are made of, which merges, and which ids they get."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.byte_alphabet import byte_level_order, unspell
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer, Setting
from shardpiece.tokenizer.bpe import CHARACTERS, BPEModel
from shardpiece.tokenizer.model import byte_piece
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.train_config import TrainConfig
from shardpiece.training import continuation
from shardpiece.training.alphabet import character_symbols
from shardpiece.training.cut import Certificate, learn_merges_cut
from shardpiece.training.layout import Layout
from shardpiece.training.merge_loop import MergeResult, learn_merges
from shardpiece.training.merge_rules import MergeRules
from shardpiece.training.monitor import Monitor
from shardpiece.training.parity import learn_parity_merges
from shardpiece.training.prepare import Prepared, prepare, settings
from shardpiece.training.trained import Trained
from shardpiece.words.table import WordTable

PREFIX, SUFFIX = b"##", b"</w>"


def train_bpe(
    words: WordTable,
    vocab_size: int,
    *,
    engine: TextEngine | PreTokenizer | Setting | None = None,
    continue_from: Tokenizer | None = None,
    progress: Callable[[float, dict], None] | None = None,
    log: Callable[[str], None] | None = None,
    **given,
) -> Tokenizer:
    """Train a BPE tokenizer of ``vocab_size`` tokens, special tokens included.

    ``given``: keys of the configuration's train section, with its defaults (but no special tokens unless they are given,
    for style "byte-level"): ``style``, ``tie_break``, ``alphabet_order``, ``min_frequency``, ``max_token_length``,
    ``special_tokens``, … ``engine``: only for a table that does not say which it was counted with; a different one is an
    error. ``continue_from``: a tokenizer to extend. ``progress(fraction, figures)`` is called now and then.
    When the table is exhausted early the vocabulary is smaller than asked, and ``log`` is told.

    Raises ConfigError for settings that cannot work, TrainingError when memory does not suffice.
    """
    if given.get("style", "byte-level") == "byte-level":
        given.setdefault("special_tokens", [])
    config = settings("bpe", {"vocab_size": vocab_size, **given})
    defaults = Monitor()
    monitor = Monitor(progress or defaults.progress, log=log or defaults.log)
    config = continuation.in_style_of(continue_from, config)
    return train_sizes(prepare(words, config, engine, monitor), monitor, base=continue_from).largest


def train_sizes(
    prepared: Prepared,
    monitor: Monitor,
    *,
    initial: np.ndarray | None = None,
    base: Tokenizer | None = None,
    learn: Callable[..., tuple[MergeResult, dict]] | None = None,
) -> Trained:
    """Train every vocabulary size that the settings ask for, from one run of the merge loop.

    ``initial``: what a checkpoint has, int64 [m, 3], merges and their counts; ``base``: the tokenizer to extend; ``learn``: another merge loop with the
    same meaning (on a cluster).
    """
    config = prepared.config
    start = _start_from(base, prepared) if base else _start(prepared)
    layout, least, sizes = start.layout, start.least, config.sizes
    for size in sizes:
        layout.room(size, least, start.what)
    wanted = sizes[-1] - layout.size - least
    check_special(
        layout.special_tokens, [*start.alphabet, *(byte_piece(b) for b in range(256) if config.byte_fallback)]
    )
    known = np.append(start.initial, np.full((len(start.initial), 1), -1), axis=1) if initial is None else initial
    reserved = (*layout.reserved_texts(len(base.special_tokens) if base else 0), *start.reserved)
    learn = learn or (_learn_parity if config.parity else _learn)
    result, facts = learn(prepared, start, wanted + len(start.initial), reserved, known, monitor)
    counts = with_known(result.counts, known)
    found = len(result.merges) - len(start.initial)
    if found < wanted and result.complete:
        monitor.log(
            f"the table is exhausted after {found:,} merges: the vocabulary has {least + layout.size + found:,} tokens, "
            f"not {sizes[-1]:,} (min_frequency {config.min_frequency or 1})"
        )
    tokenizers = {}
    for size in sizes:
        merges = min(size - layout.size - least, found) + len(start.initial)
        last = int(counts[merges - 1]) if merges > len(start.initial) else None
        provenance = prepared.provenance(merges=merges, last_merge_count=last, **(facts if size == sizes[-1] else {}))
        if not result.complete:
            provenance["partial"] = True
        tokenizers[size] = start.assemble(result.merges[:merges], provenance)
    transplant = continuation.transplant(base, tokenizers[sizes[-1]]) if base else None
    figures = {"merges": found}
    if found:
        figures["count of the last merge"] = round(int(counts[-1]) / prepared.scale)
    resumable = not result.complete and has_checkpoint(config)
    checkpoint = _so_far(result, known) if resumable else None
    frequencies = None
    if result.frequencies is not None:
        frequencies = np.zeros(tokenizers[sizes[-1]].vocab_size, np.int64)
        frequencies[layout.first : layout.first + len(result.frequencies)] = result.frequencies
    return Trained(tokenizers, result.complete, figures, transplant, checkpoint, frequencies)


def has_checkpoint(config: TrainConfig) -> bool:
    """Whether a training that was stopped can go on: whether its merges say all there is to know."""
    return config.algorithm == "bpe" and not (config.parity and config.parity.window is not None)


def check_special(texts: Sequence[str], ordinary: Sequence[bytes]) -> None:
    """Raises ConfigError for a special token that is an ordinary one from the beginning."""
    clash = [text for text in texts if text.encode() in set(ordinary)]
    if clash:
        raise ConfigError(f"special_tokens: {clash[0]!r} is an ordinary token of the vocabulary already")


@dataclass(frozen=True)
class Start:
    """Where the merge loop begins. ``data``: uint8 bytes, mapped by ``symbol_ids``, or int32 symbols; ``alphabet``: the
    spelling of each; ``initial``: int32 [k, 2], merges that come first in any case; ``least``: tokens before the first
    learned one; ``what``: their name in messages; ``reserved``: what no token may spell; ``unique``: whether two sequences of
    symbols may have one spelling; ``assemble``: the tokenizer of some merges, with a provenance."""

    data: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    alphabet: list[bytes]
    layout: Layout
    least: int
    what: str
    assemble: Callable[[np.ndarray, dict], Tokenizer]
    symbol_ids: np.ndarray | None = None
    initial: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int32))
    reserved: tuple[bytes, ...] = ()
    prefix: bytes = b""
    unique: bool = False


def _start_from(base: Tokenizer, prepared: Prepared) -> Start:
    continuation.check_base(base, prepared)
    layout = continuation.new_layout(base, prepared.layout)
    check_special(layout.special_tokens, [piece for piece in base.model.vocab if piece is not None])
    symbols, starts, alphabet, ids = continuation.base_symbols(base, prepared)

    def assemble(merges: np.ndarray, provenance: dict) -> Tokenizer:
        return continuation.extended(base, layout, ids, merges, prepared.engine, provenance)

    return Start(
        symbols, starts, prepared.counts, alphabet, layout, base.vocab_size, "the tokens of continue_from", assemble,
        reserved=tuple(token.encode() for token in base.special_tokens), prefix=base.model.prefix, unique=True,
    )  # fmt: skip


def _start(prepared: Prepared) -> Start:
    config = prepared.config
    if config.style == "byte-level":
        order = byte_level_order() if config.alphabet_order == "byte-level" else list(range(256))
        byte_ids = np.empty(256, np.int32)
        byte_ids[order] = np.arange(256)
        alphabet = [bytes([b]) for b in order]
        initial = reserved_merges(config.reserved_tokens, alphabet)

        def assemble_bytes(merges: np.ndarray, provenance: dict) -> Tokenizer:
            return _assemble_bytes(prepared, alphabet, merges, provenance)

        return Start(
            prepared.data, prepared.starts, prepared.counts, alphabet, prepared.layout, 256 + len(initial),
            f"256 bytes{_and_reserved(initial)}", assemble_bytes, byte_ids, initial,
            reserved=_spelled_alike(prepared.layout.special_tokens),
        )  # fmt: skip
    if any(step.kind == "byte" for step in prepared.engine.pretokenizer.steps):
        raise ConfigError(
            f"style {config.style} is made of characters, and pre-tokenizer byte leaves none: count with another"
        )
    symbols = character_symbols(
        prepared.data,
        prepared.starts,
        prepared.counts,
        coverage=config.character_coverage,
        limit=config.limit_alphabet,
        initial=initial_alphabet(config),
        suffix=SUFFIX if config.style == "end-of-word" else b"",
        prefix=PREFIX if config.style == "continuing" else b"",
    )
    initial = reserved_merges(config.reserved_tokens, symbols.alphabet)
    pieces = [byte_piece(b) for b in range(256)] if config.byte_fallback else []
    # As SentencePiece numbers them: characters behind the merges, the most frequent first.
    order = np.arange(len(symbols.alphabet))
    if config.style == "sentencepiece":
        order = np.lexsort((order, -symbols.frequencies))

    def assemble(merges: np.ndarray, provenance: dict) -> Tokenizer:
        return _assemble_characters(prepared, symbols.alphabet, order, pieces, merges, provenance)

    what = f"{len(pieces):,} byte pieces and " if pieces else ""
    what += f"an alphabet of {len(symbols.alphabet):,}{_and_reserved(initial)}"
    return Start(
        symbols.symbols, symbols.starts, symbols.counts, symbols.alphabet, prepared.layout,
        len(symbols.alphabet) + len(pieces) + len(initial), what, assemble, initial=initial, reserved=tuple(pieces),
        prefix=PREFIX if config.style == "continuing" else b"", unique=config.style in ("end-of-word", "continuing"),
    )  # fmt: skip


def _spelled_alike(texts: Sequence[str]) -> tuple[bytes, ...]:
    """The tokens that tokenizer.json would spell as these special tokens are. Raises ConfigError when one is a byte."""
    alike = []
    for text in texts:
        try:
            alike.append(unspell(text))
        except FormatError:
            continue
        if len(alike[-1]) == 1:
            raise ConfigError(f"special_tokens: tokenizer.json spells a single byte as {text!r}: choose another text")
    return tuple(alike)


def initial_alphabet(config: TrainConfig) -> list[str]:
    """The user's, and in style sentencepiece ▁: were it unknown, unknown text of two words would be one in SentencePiece."""
    mark = ["▁"] if config.style == "sentencepiece" and "▁" not in config.initial_alphabet else []
    return [*mark, *config.initial_alphabet]


def _and_reserved(initial: np.ndarray) -> str:
    return f" and {len(initial):,} reserved tokens" if len(initial) else ""


def loop_settings(prepared: Prepared, start: Start, reserved, known: np.ndarray, monitor: Monitor) -> dict:
    """What all merge loops take."""
    config = prepared.config
    return {
        "symbol_ids": start.symbol_ids,
        "tie_break": config.tie_break,
        "min_frequency": prepared.min_frequency,
        "max_token_length": config.max_token_length or (16 if config.style == "sentencepiece" else None),
        "reserved": reserved,
        "prefix": start.prefix,
        "rules": merge_rules(config),
        "initial": known[:, :2].astype(np.int32),
        "progress": merge_progress(monitor, known if has_checkpoint(config) else None),
        "stop": monitor.stop,
        "log": monitor.log,
    }


def merge_rules(config: TrainConfig) -> MergeRules:
    separate = config.separate
    rules = MergeRules(
        separate_letters_and_digits=separate.letters_and_digits,
        separate_scripts=separate.scripts,
        max_digits=separate.max_digits,
        end_marker=SUFFIX if config.style == "end-of-word" else b"",
    )
    if config.style != "sentencepiece":
        return rules
    pieces = config.sentencepiece
    return replace(
        rules,
        separate_scripts=separate.scripts or pieces.split_by_unicode_script,
        digits_join_any_script=not pieces.split_by_number,
        digits_alone=pieces.split_digits,
        whitespace="front",
    )


def _learn(
    prepared: Prepared, start: Start, n_merges: int, reserved, known, monitor: Monitor
) -> tuple[MergeResult, dict]:
    settings = loop_settings(prepared, start, reserved, known, monitor) | {"unique": start.unique or None}
    table = (start.data, start.starts, start.counts, start.alphabet, n_merges)
    cut = prepared.config.cut
    if cut is None:
        return learn_merges(*table, **settings, frequencies=_knows_frequencies(prepared, start)), {}
    threads = prepared.config.threads or os.cpu_count() or 1
    result, certificate = learn_merges_cut(
        *table, floor=cut.floor, max_symbols=cut.max_symbols, threads=threads, **settings
    )
    return result, {"cut": certified(certificate)}


def _knows_frequencies(prepared: Prepared, start: Start) -> bool:
    """Whether the merge loop sees all words with the counts that they have, and numbers tokens as the tokenizer does."""
    config = prepared.config
    return (
        start.symbol_ids is not None
        and config.min_count == 1
        and config.weights is None
        and config.temperature is None
        and int(prepared.counts.sum()) == pc.sum(prepared.table.table["count"]).as_py()
    )


def certified(certificate: Certificate) -> dict:
    """What the artifact keeps of a certificate: what does not depend on how often the training was stopped."""
    return {"holds": certificate.holds, "last_count": certificate.last_count}


def _learn_parity(prepared: Prepared, start: Start, n_merges: int, reserved, known, monitor: Monitor):
    parity, names = prepared.config.parity, prepared.group_names
    settings = loop_settings(prepared, start, reserved, known, monitor) | {"unique": start.unique or None}
    if parity.window is not None:
        settings["initial"] = start.initial  # a checkpoint does not say which groups were chosen
    if names in ((), ("",)):
        raise ConfigError(
            "parity: the word table has no groups: count again with the column that tells the language (group_column)"
        )
    if parity.num_global >= n_merges:
        monitor.log(
            f"parity: all {n_merges:,} merges are among the {parity.num_global:,} global ones: this is plain BPE"
        )
    units = None
    if parity.units is not None:
        if set(parity.units) != set(names):
            raise ConfigError(f"parity.units: give one number for each group of the word table: {', '.join(names)}")
        units = np.array([parity.units[name] for name in names], np.int64)
    result = learn_parity_merges(
        start.data, start.starts, start.counts, prepared.groups, len(names), start.alphabet, n_merges,
        num_global=parity.num_global, window=parity.window, alpha=parity.alpha, units=units,
        development=_development(prepared), **settings,
    )  # fmt: skip
    _say_costs(names, result.costs, monitor)
    costs = dict(zip(names, result.costs.tolist(), strict=True))
    return result, {"parity": {"costs": costs}}


def _say_costs(names: Sequence[str], costs: np.ndarray, monitor: Monitor) -> None:
    order = np.argsort(-costs, kind="stable")
    shown = ", ".join(f"{names[g]} {costs[g]:.4f}" for g in order[:3])
    monitor.log(f"parity: tokens per unit {shown}, … {names[order[-1]]} {costs[order[-1]]:.4f}")


def _development(prepared: Prepared):
    """The words that the costs are measured on, when they are not those that are trained on."""
    path = prepared.config.parity.development
    if path is None:
        return None
    table = WordTable.read(path)
    if table.engine.fingerprint != prepared.engine.fingerprint:
        raise ConfigError(
            f"parity.development: {path} was counted with {table.engine.name}, not with {prepared.engine.name}"
        )
    data, starts, counts, groups, names = table.grouped_arrays()
    unknown = sorted(set(names) - set(prepared.group_names))
    if unknown:
        raise ConfigError(
            f"parity.development: {path} has the group {unknown[0]!r}, which the word table does not have"
        )
    place = np.array([prepared.group_names.index(name) for name in names], np.int32)
    return data, starts, counts, place[groups]


def with_known(counts: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The counts of all merges, those that a checkpoint knows from there."""
    return np.concatenate([known[: len(counts), 2], counts[len(known) :]])


def merge_progress(monitor: Monitor, known: np.ndarray | None):
    """What the merge loop calls: tells the monitor, and hands it the merges so far with their counts, unless ``known`` is
    None, because they are not enough to go on from."""

    def progress(state) -> None:
        figures = {"merges": state.done}
        if state.left is not None:
            figures |= {"pair": (state.left, state.right), "count": state.count}
        monitor.progress(state.done / max(1, state.total), figures)
        if monitor.checkpoint is not None and known is not None:
            monitor.checkpoint(lambda: _so_far(state.result(), known))

    return progress


def _so_far(result: MergeResult, known: np.ndarray) -> np.ndarray:
    return np.column_stack([result.merges.astype(np.int64), with_known(result.counts, known)])


def _assemble_bytes(prepared: Prepared, alphabet: list[bytes], merges: np.ndarray, provenance: dict) -> Tokenizer:
    pieces = list(alphabet)
    extend(pieces, merges)
    special = prepared.layout.ids(len(pieces))
    first = prepared.layout.first
    vocab = (*(None for _ in range(first)), *pieces)
    return Tokenizer(prepared.engine, BPEModel(vocab, merges + first), special, provenance)


def _assemble_characters(prepared, alphabet, order, byte_pieces, merges, provenance) -> Tokenizer:
    config, layout = prepared.config, prepared.layout
    prefix = PREFIX if config.style == "continuing" else b""
    spellings = list(alphabet)
    extend(spellings, merges, prefix)
    learned = range(len(alphabet), len(spellings))
    sequence = [*learned, *order.tolist()] if config.style == "sentencepiece" else [*order.tolist(), *learned]
    vocab = [*(None for _ in range(layout.first)), *byte_pieces, *(spellings[i] for i in sequence)]
    ids = np.empty(len(spellings), np.int32)
    ids[sequence] = layout.first + len(byte_pieces) + np.arange(len(sequence))
    special = layout.ids(len(vocab) - layout.first)
    # The unknown token is to be among those of the model, also where it stands behind them.
    vocab += [None] * (len(special) - layout.first)
    model = BPEModel(
        tuple(vocab),
        ids[merges],
        CHARACTERS,
        prefix,
        SUFFIX if config.style == "end-of-word" else b"",
        special.get(config.unk_token),
        bool(config.byte_fallback),
    )
    return Tokenizer(prepared.engine, model, special, provenance)


def extend(spellings: list[bytes], merges: np.ndarray, prefix: bytes = b"") -> None:
    """Append what each merge spells to the spellings of the alphabet."""
    for a, b in merges.tolist():
        spellings.append(spellings[a] + spellings[b].removeprefix(prefix))


def reserved_merges(tokens: list[str], alphabet: list[bytes]) -> np.ndarray:
    """Merges, int32 [k, 2], that make every one of ``tokens`` ahead of all others: each is cut by those before it and what
    is left is merged from left to right. Raises ConfigError for a token that the alphabet cannot spell."""
    ids = {spelling: i for i, spelling in enumerate(alphabet)}
    by_bytes = all(len(spelling) == 1 for spelling in alphabet)
    merges: dict[tuple[int, int], int] = {}
    for token in tokens:
        parts = [bytes([b]) for b in token.encode()] if by_bytes else [c.encode() for c in token]
        missing = [part for part in parts if part not in ids]
        if missing or not parts:
            raise ConfigError(f"reserved token {token!r}: {missing[0].decode()!r} is not in the alphabet" if missing else
                              "reserved_tokens: an empty text is no token")  # fmt: skip
        symbols = [ids[part] for part in parts]
        while len(symbols) > 1:
            known = [(merges[pair], i) for i, pair in enumerate(itertools.pairwise(symbols)) if pair in merges]
            i = min(known)[1] if known else 0
            pair = (symbols[i], symbols[i + 1])
            new = merges.setdefault(pair, len(alphabet) + len(merges))
            symbols[i : i + 2] = [new]
    return np.array(list(merges), np.int32).reshape(-1, 2)

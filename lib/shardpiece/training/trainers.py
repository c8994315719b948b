"""Every algorithm by its name: word table and settings in, tokenizers out."""

import math
import os

import numpy as np

from shardpiece.errors import ConfigError
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer, Setting
from shardpiece.tokenizer.bpe import CHARACTERS, BPEModel
from shardpiece.tokenizer.model import byte_piece
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.unigram import UnigramModel
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel
from shardpiece.train_config import TrainConfig
from shardpiece.training import baselines, bpe, continuation
from shardpiece.training.alphabet import character_symbols
from shardpiece.training.monitor import Monitor
from shardpiece.training.prepare import Prepared, prepare, settings
from shardpiece.training.trained import Trained
from shardpiece.training.unigram import learn_unigram
from shardpiece.training.wordpiece import learn_wordpiece
from shardpiece.words.table import WordTable


def train(
    words: WordTable,
    algorithm: str = "bpe",
    *,
    engine: TextEngine | PreTokenizer | Setting | None = None,
    continue_from: Tokenizer | None = None,
    monitor: Monitor | None = None,
    **given,
) -> Tokenizer:
    """Train a tokenizer. ``algorithm``: "bpe", "wordpiece", "unigram", "word", "character" or "byte"; ``given``: keys of the
    configuration's train section, with its defaults, such as ``vocab_size`` and ``style``. The other arguments are those of
    ``train_bpe``; of several ``vocab_sizes``, the largest is returned.

    Raises ConfigError for settings that cannot work, TrainingError when memory does not suffice or the table is empty.
    """
    if continue_from is not None:
        given.setdefault("special_tokens", [])
    config = settings(algorithm, given)
    return train_sizes(words, config, engine=engine, base=continue_from, monitor=monitor or Monitor()).largest


def train_sizes(
    words: WordTable,
    config: TrainConfig,
    *,
    engine: TextEngine | None = None,
    base: Tokenizer | None = None,
    monitor: Monitor,
    initial: np.ndarray | None = None,
) -> Trained:
    """Train every vocabulary size that ``config`` asks for. ``initial``: what a checkpoint holds, for algorithms that write
    one."""
    prepared = prepare(words, continuation.in_style_of(base, config), engine, monitor)
    if config.algorithm == "bpe":
        return bpe.train_sizes(prepared, monitor, initial=initial, base=base)
    return _TRAINERS[config.algorithm](prepared, monitor)


def _assembled(prepared: Prepared, make, pieces: list, **provenance) -> Tokenizer:
    """A tokenizer of ``make(vocab, unk id)`` with ``pieces`` where the layout puts them."""
    special = prepared.layout.ids(len(pieces))
    vocab = [*((None,) * prepared.layout.first), *pieces]
    vocab += [None] * (len(pieces) + len(special) - len(vocab))
    unk = special.get(prepared.config.unk_token)
    return Tokenizer(prepared.engine, make(tuple(vocab), unk), special, prepared.provenance(**provenance))


def _rooms(prepared: Prepared, least: int, what: str) -> dict[int, int]:
    """How many learned tokens each vocabulary size has room for, found before anything is learned."""
    return {size: prepared.layout.room(size, least, what) for size in prepared.config.sizes}


def _wordpiece(prepared: Prepared, monitor: Monitor) -> Trained:
    config = prepared.config
    symbols = character_symbols(
        prepared.data, prepared.starts, prepared.counts, coverage=config.character_coverage,
        limit=config.limit_alphabet, initial=config.initial_alphabet, prefix=bpe.PREFIX,
    )  # fmt: skip
    rooms = _rooms(prepared, len(symbols.alphabet), f"an alphabet of {len(symbols.alphabet):,}")
    bpe.check_special(prepared.layout.special_tokens, symbols.alphabet)
    learned = learn_wordpiece(
        symbols,
        max(rooms.values()),
        criterion=config.criterion,
        min_frequency=None if config.min_frequency is None else prepared.min_frequency,
        prefix=bpe.PREFIX,
        max_token_length=config.max_token_length,
        reserved=prepared.layout.reserved_texts(),
        rules=bpe.merge_rules(config),
        progress=bpe.merge_progress(monitor, None),
        stop=monitor.stop,
        log=monitor.log,
    )

    def make(vocab, unk):
        return WordPieceModel(vocab, unk, bpe.PREFIX, config.max_word_characters)

    tokenizers = {}
    for size, room in rooms.items():
        pieces = learned.vocab[:room]
        merges = len(pieces) - len(symbols.alphabet)
        last = int(learned.counts[merges - 1]) if merges else None
        tokenizers[size] = _assembled(prepared, make, pieces, merges=merges, last_merge_count=last)
    return Trained(tokenizers, learned.complete, {"merges": len(learned.merges)})


def _unigram(prepared: Prepared, monitor: Monitor) -> Trained:
    config, search, rules = prepared.config, prepared.config.unigram, prepared.config.sentencepiece
    fallback = [byte_piece(b) for b in range(256)] if config.byte_fallback else []
    what = f"{len(fallback):,} byte pieces and a character" if fallback else "one character"
    rooms = _rooms(prepared, len(fallback) + 1, what)
    bpe.check_special(prepared.layout.special_tokens, fallback)
    reserved = {*prepared.layout.reserved_texts(), *fallback}
    tokenizers, complete, figures = {}, True, {}
    for n, (size, room) in enumerate(rooms.items()):
        result = learn_unigram(
            prepared.data,
            prepared.starts,
            prepared.counts,
            room - len(fallback),
            character_coverage=config.character_coverage,
            max_piece_length=config.max_token_length or 16,
            seed_size=search.seed_size,
            shrinking_factor=search.shrinking_factor,
            sub_iterations=search.sub_iterations,
            split_by_script=rules.split_by_unicode_script,
            split_by_number=rules.split_by_number,
            split_digits=rules.split_digits,
            required=tuple(bpe.initial_alphabet(config)),
            threads=config.threads or os.cpu_count() or 1,
            progress=lambda done, facts, n=n: monitor.progress((n + done) / len(rooms), _shown(facts)),
            stop=monitor.stop,
            log=monitor.log,
        )
        # A piece that the corpus spells like a special token is left to the others.
        kept = [i for i, piece in enumerate(result.pieces) if piece not in reserved]
        pieces = [*fallback, *(result.pieces[i] for i in kept)]

        def make(vocab, unk, learned=result.scores[kept]):
            scores = np.zeros(len(vocab))
            first = prepared.layout.first
            scores[first + len(fallback) : first + len(fallback) + len(learned)] = learned
            byte_ids = np.arange(first, first + 256, dtype=np.int32) if fallback else None
            return UnigramModel(vocab, scores, unk, byte_ids)

        figures = {"nats per character": result.nats_per_character}
        tokenizers[size] = _assembled(
            prepared, make, pieces, nats_per_character=result.nats_per_character, partial=not result.complete
        )
        complete = result.complete
        if not complete:
            break
    return Trained(tokenizers, complete, figures)


def _shown(facts: dict) -> dict:
    """The figures of Unigram's search for people."""
    nats = facts["nats_per_character"]
    more = "" if math.isnan(nats) else f", {nats:.4f} nats per character"
    return {"pieces": facts["pieces"], "now": f"{facts['stage']}{more}"}


def _word(prepared: Prepared, monitor: Monitor) -> Trained:
    rooms = _rooms(prepared, 1, "a word")
    if any(step.kind == "byte" for step in prepared.engine.pretokenizer.steps):
        raise ConfigError("algorithm word needs words of text, and pre-tokenizer byte leaves none: count with another")
    reserved = set(prepared.layout.reserved_texts())
    ordered = baselines.word_vocabulary(
        prepared.data, prepared.starts, prepared.counts, max(rooms.values()) + len(reserved),
        min_frequency=prepared.min_frequency,
    )  # fmt: skip
    ordered = [word for word in ordered if word not in reserved]
    return Trained({size: _assembled(prepared, WordLevelModel, ordered[:room]) for size, room in rooms.items()})


def _character(prepared: Prepared, monitor: Monitor) -> Trained:
    rooms = _rooms(prepared, 1, "a character")
    config = prepared.config
    ordered = baselines.character_vocabulary(
        prepared.data, prepared.starts, prepared.counts, max(rooms.values()),
        coverage=config.character_coverage, limit=config.limit_alphabet, initial=config.initial_alphabet,
    )  # fmt: skip
    bpe.check_special(prepared.layout.special_tokens, ordered)
    no_merges = np.empty((0, 2), np.int32)

    def make(vocab, unk):
        return BPEModel(vocab, no_merges, CHARACTERS, unk_id=unk)

    return Trained({size: _assembled(prepared, make, ordered[:room]) for size, room in rooms.items()})


def _byte(prepared: Prepared, monitor: Monitor) -> Trained:
    no_merges = np.empty((0, 2), np.int32)
    pieces = baselines.byte_vocabulary()
    tokenizer = _assembled(prepared, lambda vocab, unk: BPEModel(vocab, no_merges), pieces)
    monitor.log(f"algorithm byte: {tokenizer.vocab_size} tokens, whatever the vocab_size")
    return Trained(dict.fromkeys(prepared.config.sizes, tokenizer))


_TRAINERS = {"wordpiece": _wordpiece, "unigram": _unigram, "word": _word, "character": _character, "byte": _byte}

"""The tables that a BPE encoder runs on, made from a model by kernels: what pairs merge, what tokens are made of, and the
trie of the tokens."""

from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.normalization.tables import two_stages
from shardpiece.text.unicode_sets import CODE_POINTS
from shardpiece.tokenizer import double_array_kernels as trie
from shardpiece.tokenizer import pair_kernels as k
from shardpiece.tokenizer import symbol_kernels as s
from shardpiece.tokenizer.greedy_kernels import CHARACTERS, add_characters, shorter_tokens
from shardpiece.tokenizer.lane_kernels import NO_MERGE
from shardpiece.tokenizer.word_cache import cache_lines

_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True)
class BPETables:
    """Arrays as the kernels take them, see ``encode_kernels``."""

    byte_id: np.ndarray
    byte_pairs: np.ndarray
    pages: np.ndarray
    places: np.ndarray
    fallback: np.ndarray
    unk: int
    flags: int
    pairs: np.ndarray
    merged: np.ndarray
    parts: np.ndarray
    sides: np.ndarray
    symbols: np.ndarray
    starts: np.ndarray
    cells: np.ndarray
    shorter: np.ndarray
    lengths: np.ndarray
    reachable: np.ndarray

    @classmethod
    def of(cls, model) -> "BPETables":
        """Of a BPEModel. Raises FormatError for one with more ids or merges than a table of pairs holds."""
        vocab = model.vocab
        marked = bool(model.prefix or model.suffix)
        flags = model.fuse_unk * s.FUSE_UNKNOWN | model.drop_unknown * s.DROP_UNKNOWN
        pages, places = np.empty(0, np.uint16), np.empty((0, 4), np.int32)
        fallback = _NOTHING
        if model.alphabet == "bytes":
            flags |= s.SINGLE_BYTES
            if marked:
                pages, places = np.zeros(1, np.uint16), _byte_places(model)
        else:
            fallback = model.byte_ids
            pages, values = two_stages(_character_places(model).view("V16").reshape(-1))
            pages, places = np.array(pages), values.view(np.int32).reshape(-1, 4).copy()
        unk = -1 if model.unk_id is None else model.unk_id

        left, right = (np.ascontiguousarray(column) for column in model.merges.T)
        pairs = pair_table(left, right, model.merged)
        byte_id, byte_pairs = _NOTHING, _NOTHING
        n = len(vocab)
        rank_of, parts = np.full(n, k.UNREACHABLE, np.int32), np.zeros(n, np.uint64)
        sides = np.zeros(2 * n, np.uint64)
        symbols, starts, cells = _NOTHING, np.zeros(1, np.int64), np.empty(0, np.uint64)
        shorter = lengths = _NOTHING
        unknown = {unk, *fallback.tolist()} - {-1}
        alone = not unknown or not np.isin(model.merges, sorted(unknown)).any()
        if not marked and not model.drop_unknown and alone:
            symbols, starts = (read_only(array) for array in _vocabulary_symbols(model, places, pages))
            k.token_parts(symbols, starts, left, right, model.merged, pairs, rank_of, parts)
            rank_of[sorted(unknown)] = k.UNREACHABLE
            made = rank_of[model.merged] == np.arange(len(left))
            if not made.all():  # the others never happen
                pairs = pair_table(left, right, model.merged, made)
            k.token_sides(left, right, model.merged, rank_of, parts, sides)
            trie_only = trie_cells(vocab, rank_of != k.UNREACHABLE)
            cells = np.concatenate([trie_only, np.zeros(CHARACTERS, np.uint64)])
            add_characters(cells, len(trie_only))
            lengths = np.diff(vocab.offsets).astype(np.int32)
            shorter = np.empty(n, np.int32)
            shorter_tokens(vocab.data, vocab.offsets, rank_of, cells, shorter)
        if model.alphabet == "bytes" and not marked:
            byte_id = model.byte_ids
            byte_pairs = np.full(65536, NO_MERGE, np.uint32)
            byte_of = np.full(n, -1, np.int64)
            byte_of[byte_id[byte_id >= 0]] = np.flatnonzero(byte_id >= 0)
            first, second = byte_of[model.merges].T
            ranks = np.flatnonzero((first >= 0) & (second >= 0))[::-1]  # of equal pairs the lowest rank stays
            byte_pairs[first[ranks] << 8 | second[ranks]] = ranks << 4
        tables = (
            byte_id, byte_pairs, pages, places, fallback, unk, flags, pairs, model.merged, parts, sides, symbols,
            starts, cells, shorter, lengths, rank_of != k.UNREACHABLE,
        )  # fmt: skip
        # Kernels are compiled for arrays that cannot be written to, and once more for others.
        return cls(*(read_only(table) if isinstance(table, np.ndarray) else table for table in tables))


def pair_table(left: np.ndarray, right: np.ndarray, merged: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    """The table of merges r = (left[r], right[r]), int32, that make merged[r]; of those that are ``wanted`` (bool) alone.
    Raises FormatError for more than it holds."""
    if max(len(left), int(merged.max(initial=0))) > k.MOST:
        raise FormatError(f"a BPE with more than {k.MOST + 1:,} tokens or merges is not supported")
    wanted = np.ones(len(left), np.bool_) if wanted is None else wanted
    pairs = cache_lines(8 << max(4, (2 * int(wanted.sum())).bit_length()))
    pairs[:] = k.EMPTY
    k.fill_pairs(left, right, merged, wanted, pairs)
    return pairs


def trie_cells(vocab, wanted: np.ndarray) -> np.ndarray:
    """The trie (see ``double_array_kernels``) of the pieces of a Vocabulary that are ``wanted`` (bool)."""
    edges = int((np.diff(vocab.offsets)[wanted]).sum())
    slots = np.zeros(1 << max(4, (2 * edges).bit_length()), np.uint64)
    nodes = trie.count_nodes(vocab.data, vocab.offsets, wanted, slots)
    room = nodes + nodes // 2 + 2 * trie.ROOM
    while True:
        if room > trie.BASE_MASK:
            raise FormatError(f"a vocabulary whose pieces have {nodes:,} different beginnings is not supported")
        cells = np.empty(room, np.uint64)
        used = trie.build(vocab.data, vocab.offsets, wanted, slots, nodes, cells)
        if used >= 0:
            return cells[:used].copy()
        room *= 2


def _vocabulary_symbols(model, places: np.ndarray, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(symbols int32, starts int64 [ids + 1]): the base symbols of each piece, none for a piece with a symbol that is no
    token."""
    vocab = model.vocab
    if model.alphabet == "bytes":
        return model.byte_ids[vocab.data], vocab.offsets
    symbols, starts = np.empty(len(vocab.data), np.int32), np.zeros(len(vocab) + 1, np.int64)
    n = s.piece_symbols(vocab.data, vocab.offsets, pages, places, symbols, starts)
    return symbols[:n], starts


def _byte_places(model) -> np.ndarray:
    ids = model.vocab.ids
    table = np.full((256, 4), -1, np.int32)
    for b in range(256):
        for position in range(4):
            front = b"" if position & 1 else model.prefix
            back = model.suffix if position & 2 else b""
            table[b, position] = ids.get(front + bytes([b]) + back, -1)
    return table


def _character_places(model) -> np.ndarray:
    """int32 [code points, 4]: the id of a character in the middle of a word, and as its first, last and only one; -1
    where there is none."""
    table = np.full((CODE_POINTS, 4), -1, np.int32)
    byte_pieces = set(model.byte_ids.tolist())
    most = 4 + len(model.prefix) + len(model.suffix)
    prefix, suffix = model.prefix.decode(), model.suffix.decode()
    lengths = np.diff(model.vocab.offsets)
    for i in np.flatnonzero(model.vocab.present & (lengths <= most)).tolist():
        if i in byte_pieces:
            continue
        try:
            text = model.vocab[i].decode()
        except UnicodeDecodeError:
            raise FormatError(f"the piece {model.vocab[i]!r} ({i}) is no valid UTF-8") from None
        for position in range(4):
            front = "" if position & 1 else prefix
            back = suffix if position & 2 else ""
            if text.startswith(front) and text.endswith(back) and len(text) == len(front) + 1 + len(back):
                table[ord(text[len(front)]), position] = i
    return table

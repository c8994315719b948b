"""The steps of the merge loop and the arrays they share (``merge_loop`` calls them in order)."""

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.kernel_cache import read_only
from shardpiece.training import merge_kernels as k
from shardpiece.training import pair_kernels as pairs
from shardpiece.training import replay_kernels, token_kernels
from shardpiece.training.merge_rules import MergeRules

MAX_WORD_SYMBOLS = 65_535
"""Longest word the loop takes, in base symbols: a symbol's length is kept in 16 bits."""

_WORK = 4 << 20
_MERGES_AT_ONCE = 2048
_MAX_TABLE = 1 << 30


class MergeSteps:
    """The arrays of one training run, and the steps between which they may be replaced by larger ones."""

    def __init__(
        self, counts, alphabet, n_merges, tie, max_length, reserved, prefix, rules, unique, slots, arena_factor
    ):  # fmt: skip
        self.base = len(alphabet)
        self.tie = tie
        self.words = k.Words(
            np.empty(slots + 1, np.int32),
            np.empty(slots + 1, np.int32),
            np.empty(slots + 1, np.uint16),
            np.empty(slots, np.int32),
            read_only(np.ascontiguousarray(counts, np.int64)),
        )
        self.slots = slots
        self.compacted = True
        self.occurrence = np.empty(int(slots * arena_factor) + 1024, np.int32)
        self.rules = (rules or MergeRules()).tables()
        self._make_tokens(alphabet, n_merges, max_length, list(reserved), prefix, unique)
        self.vocab = self.base + n_merges
        self.scratch = _scratch(self.vocab, 0)
        self.merge_key = np.empty(n_merges, np.int64)
        self.merge_count = np.empty(n_merges, np.int64)
        self.pairs_before = 1 << 12
        self.dropped = np.zeros(self.vocab, np.int64)

    def _make_tokens(self, alphabet, n_merges, max_length, reserved, prefix, unique) -> None:
        vocab = self.base + n_merges
        n = vocab + len(reserved)
        spelled = b"".join([*alphabet, *reserved])
        sizes = np.array([*map(len, alphabet), *map(len, reserved)], np.int64)
        starts = np.cumsum(sizes) - sizes
        data = np.zeros(max(4096, len(spelled) + n_merges * 8), np.uint8)
        data[: len(spelled)] = np.frombuffer(spelled, np.uint8)
        self.tokens = tokens = token_kernels.Tokens(
            *(np.zeros(n, dtype) for dtype in (np.int64, np.int32)),
            data,
            *(np.zeros(n, dtype) for dtype in (np.int32, np.uint64, np.int32, np.uint64, np.uint64, np.uint64)),
        )
        ids = np.r_[: self.base, vocab:n]
        tokens.start[ids], tokens.size[ids] = starts, sizes
        tokens.length[: self.base] = 1
        room = 2 * (n if unique else len(reserved))
        self.allowed = allowed = token_kernels.Filter(
            max_length,
            unique,
            np.zeros(1 << max(1, room.bit_length()), np.int32),
            room > 0,
            np.frombuffer(prefix + b"\0", np.uint8)[:-1],
        )
        for first, last, wanted in ((0, self.base, unique), (vocab, n, True)):
            token_kernels.set_spellings(first, last, tokens, allowed.prefix)
            if wanted:
                token_kernels.take_all(first, last, tokens, allowed.taken)
        self.state = np.zeros(k.STATE_SIZE, np.int64)
        self.state[k.STATE_NEXT_ID] = self.base
        self.state[k.STATE_TOKEN_BYTES] = len(spelled)

    @property
    def merges(self) -> int:
        return int(self.state[k.STATE_MERGES])

    def learned(self) -> tuple[np.ndarray, np.ndarray]:
        """The merges so far (int32 [m, 2]) and their counts (int64 [m]), copies."""
        keys, counts = self.merge_key[: self.merges], self.merge_count[: self.merges]
        return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int32), counts.copy()

    def frequencies(self) -> np.ndarray:
        """How often each token stands in the words that were laid out, as they are cut now: int64 [tokens]. Words that initial
        merges made one token are not among them."""
        tokens = int(self.state[k.STATE_NEXT_ID])
        found = self.dropped[:tokens].copy()
        standing = np.zeros(tokens, np.int64)
        self.slots = pairs.compact(*self.words[:3], self.words.count, self.slots, standing, self.dropped)
        self.compacted = True
        return found + standing

    def spelling(self, token: int) -> bytes:
        start = int(self.tokens.start[token])
        return self.tokens.data[start : start + int(self.tokens.size[token])].tobytes()

    def lay_out(self, data, starts, symbol_ids) -> None:
        pairs.layout(data, starts, symbol_ids, self.words.symbol, self.words.word_at, self.words.span)

    def replay(self, merges: np.ndarray, stop) -> bool:
        """Apply initial merges; False when told to stop."""
        if len(merges) == 0:
            return True
        size = 1 << (2 * len(merges)).bit_length()
        table = np.full(size, -1, np.int64), np.empty(size, np.int32)
        done, end = 0, int(self.state[k.STATE_TOKEN_BYTES])
        while True:
            done, why, at = replay_kernels.add_merges(
                merges, done, self.base, end, MAX_WORD_SYMBOLS, self.tokens, self.allowed, *table
            )
            if why == replay_kernels.APPLIED:
                break
            if why != replay_kernels.NEED_BYTES:
                raise ConfigError(f"initial merge {done}, {merges[done].tolist()}, {_BAD_MERGES[why]}")
            last = self.base + done - 1
            end = int(self.tokens.start[last]) + int(self.tokens.size[last]) if done else end
            self.tokens = self.tokens._replace(data=_grown(self.tokens.data, 2 * at))
        self.state[k.STATE_TOKEN_BYTES] = at
        self.state[k.STATE_MERGES] = len(merges)
        self.state[k.STATE_NEXT_ID] = self.base + len(merges)
        self.merge_key[: len(merges)] = merges[:, 0].astype(np.int64) << 32 | merges[:, 1]
        self.merge_count[: len(merges)] = -1
        scratch = [
            np.empty(n * MAX_WORD_SYMBOLS, t) for n, t in ((1, "i4"), (1, "i8"), (3, "i8"), (1, "i4"), (1, "i4"))
        ]
        read = written = 1
        while read < self.slots:
            read, written = replay_kernels.replay(
                self.words.symbol, self.words.word_at, read, min(read + _WORK, self.slots), written, self.base, *table,
                *scratch,
            )  # fmt: skip
            if stop and stop():
                return False
        self.slots = written
        return True

    def count(self, floor: int) -> int:
        """Compact the words and count the pairs that reach ``floor`` and may merge; returns the largest count."""
        words = self.words
        single = np.zeros(0 if self.compacted else int(self.state[k.STATE_NEXT_ID]), np.int64)
        if not self.compacted:
            self.slots = pairs.compact(*words[:3], words.count, self.slots, single, self.dropped)
            self.compacted = True
        n = self.slots
        # Each epoch has some sixteen times the pairs of the one before, and never more than slots.
        size = 1 << max(16, min(16 * self.pairs_before * 4 // 3, n * 4 // 3).bit_length())
        while True:
            if size > _MAX_TABLE:
                raise TrainingError(f"the table has more than {_MAX_TABLE * 3 // 16:,} distinct pairs of symbols")
            self.table = None
            self.table = np.empty(2 * size, np.int64)
            used = pairs.count_pairs(
                words.symbol, words.word_at, words.pair_at, n, words.count, single, floor, self.table
            )
            if used >= 0:
                break
            size *= 4
        self.pairs_before = int(used)
        self.buckets = np.zeros(pairs.BUCKETS, np.int64)
        return int(pairs.bucket_counts(self.table, floor, self.tokens, self.allowed, self.rules, self.buckets))

    def floor_of_rank(self, rank: int) -> int:
        """About the count of the counted pair that has so many before it."""
        return int(pairs.count_of_rank(self.buckets, rank))

    def index(self, floor: int) -> bool:
        """Record the counted pairs of at least ``floor``; False when there are none."""
        pair_at, n = self.words.pair_at, self.slots
        most = int(self.buckets[pairs.bucket_of(floor) :].sum())
        room = most + 1 + max(65_536, 4 * len(self.merge_key))
        self.records = k.Records(*(np.empty(room, np.int64) for _ in range(4)))
        records = int(pairs.select_pairs(self.table, floor, self.records))
        if records == 1:
            return False
        pairs.number_pairs(pair_at, n, self.table, self.records)
        self.table = None
        used, longest = pairs.place_lists(records, self.records)
        if used >= len(self.occurrence):
            self.occurrence = np.empty(used + 1, np.int32)
        if len(self.scratch.position) < 2 * longest + 2:
            self.scratch = _scratch(self.vocab, 2 * longest)
        pairs.fill_lists(pair_at, n, self.records, self.occurrence)
        self.heap = k.Heap(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32))
        self.state[k.STATE_RECORDS], self.state[k.STATE_OCCURRENCES] = records, used
        k.build_heap(self.heap, self.records, pair_at, self.occurrence, self.tie, self.tokens, self.state)
        return True

    def merge(self, floor: int, n_merges: int, progress, stop) -> bool:
        """Merge until no pair of at least ``floor`` is left or ``n_merges`` are made, and call ``progress()`` now and
        then; False when told to stop."""
        rebuilt_at = -1
        work = _WORK if progress or stop else 1 << 62
        while True:
            limit = min(n_merges, self.merges + (_MERGES_AT_ONCE if progress or stop else n_merges))
            self.compacted = False
            reason = k.merge_pairs(
                self.words, floor, self.occurrence, self.records, self.heap, self.scratch, self.tie, self.tokens,
                self.allowed, self.rules, self.merge_key, self.merge_count, limit, work, self.state,
            )  # fmt: skip
            if progress:
                progress()
            if reason == k.DRAINED or (reason == k.DONE and self.merges >= n_merges):
                return True
            if stop and stop():
                return False
            need = int(self.state[k.STATE_NEED])
            if reason == k.NEED_TOKEN_BYTES:
                self.tokens = self.tokens._replace(data=_grown(self.tokens.data, 2 * need))
            elif reason == k.NEED_RECORDS:
                room = need + need // 2
                self.records = k.Records(*(_grown(array, room) for array in self.records))
                self.heap = k.Heap(*(_grown(array, room) for array in self.heap))
            elif reason == k.NEED_OCCURRENCES:
                # Indexing again drops the dead occurrences; if that was just done, the arena is too small.
                if rebuilt_at == self.merges:
                    self.occurrence = _grown(self.occurrence, need + need // 8)
                else:
                    rebuilt_at = self.merges
                    self.count(floor)
                    if not self.index(floor):
                        return True


_BAD_MERGES = {
    replay_kernels.BAD_ID: "has an id that does not exist yet",
    replay_kernels.BAD_REPEATED: "is there twice",
    replay_kernels.BAD_TAKEN: "is spelled like a token or a reserved string",
    replay_kernels.BAD_LENGTH: "makes a token longer than any word",
}


def _scratch(vocab: int, positions: int) -> k.Scratch:
    groups = 2 * (vocab + 1)
    return k.Scratch(
        np.zeros(groups, np.int64), np.zeros(groups, np.int32), np.empty(groups + 2, np.int32),
        np.empty(positions + 2, np.int32), np.empty(positions + 2, np.int32),
    )  # fmt: skip


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger

"""The exact BPE merge loop: weighted words in, merges out.

The algorithm is Sennrich, Haddow and Birch 2016 (Gage 1994): count the adjacent pairs of symbols, weighted by the
count of the word, merge the most frequent one everywhere, repeat. What is ours is how little it touches:

* **A pair number per position** instead of a hash table from pairs to positions (see ``merge_kernels``).
* **A floor that falls.** A pair's count is largest when it is born and only falls afterwards, so with a floor T a pair
  born with a count below T needs no record until T falls under it. When the heap holds nothing of at least T, the
  words are compacted, the pairs recounted and T is divided by 64. Any schedule of floors gives the same merges.

Why both are sound. *Lemma: if a byte string s is one token at some place, then no earlier merge crossed the two ends
of that place* (a merged symbol is never split, so a symbol across an end would still be there). *So the symbols inside
the place always were a function of s alone, the merges inside it happened at the same steps at every place where s
became a token, and s has one merge tree.* Hence all occurrences of a pair (a, b) that ever become adjacent inside one
token string are born in the step that creates the younger of a and b, and later steps can only destroy them. The lemma
holds for byte symbols without word-boundary markers, for a bound on the token length and for forbidden token strings,
since these depend on the string alone. It does not hold with continuing-word prefixes or merges given from outside;
this module accepts neither.

Time and memory follow the number of symbols (bytes of distinct words): about 19 bytes each beside the table.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import merge_kernels as k
from shardpiece.training import pair_kernels as pairs

TIE_BREAKS = {
    "lexicographic": k.TIE_LEXICOGRAPHIC,
    "id": k.TIE_ID,
    "first_seen": k.TIE_FIRST_SEEN,
    "lexicographic_last": k.TIE_LEXICOGRAPHIC_LAST,
}
MAX_WORD_BYTES = 65_535
"""Longest word the loop takes: a symbol's length is kept in 16 bits."""

_FLOOR_DIVISOR = 64
_MAX_SLOTS = 2**31 - 64
_BYTES_PER_SLOT = 20
_BYTES_PER_TOKEN = 1200


@dataclass(frozen=True)
class MergeResult:
    """``merges``: int32 [m, 2], the ids joined by merge i into id 256 + i; ``counts``: int64 [m], how often the pair
    stood in the table when it was merged."""

    merges: np.ndarray
    counts: np.ndarray


def projected_bytes(slots: int, vocab_size: int) -> int:
    """Peak bytes of the merge loop for ``slots`` symbols and separators, the table itself not counted: the arrays of
    the slots, and records, heap and pair table, which grow with the number of merges. An upper estimate."""
    return slots * _BYTES_PER_SLOT + vocab_size * _BYTES_PER_TOKEN + (64 << 20)


def available_bytes() -> int:
    """Memory this process may still take: what the system has free, or what a control group (v1 or v2) leaves; cached
    files count as free."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except OSError:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit, usage, statistics, cached in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            group = Path("/sys/fs/cgroup")
            most = int((group / limit).read_text())
            used = int((group / usage).read_text())
            files = dict(line.split() for line in (group / statistics).read_text().splitlines())
            limits.append(most - used + int(files.get(cached, 0)))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return min(limits)


def learn_merges(
    data: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    n_merges: int,
    *,
    byte_ids: np.ndarray | None = None,
    tie_break: str = "lexicographic",
    min_frequency: int = 1,
    max_token_length: int | None = None,
    reserved: tuple[bytes, ...] = (),
    progress: Callable[[int, int], None] | None = None,
    log: Callable[[str], None] | None = None,
    floor_divisor: int = _FLOOR_DIVISOR,
    arena_factor: float = 1.25,
) -> MergeResult:
    """Learn up to ``n_merges`` merges.

    ``data``: uint8, the words' bytes one after the other; ``starts``: int64 [w + 1], where each begins; ``counts``:
    int64 [w], positive. ``byte_ids``: int32 [256], the id of each byte (a permutation; matters for the tie break "id"
    only). New tokens get the ids 256, 257, ... in merge order. Words of more than MAX_WORD_BYTES bytes are refused.

    ``min_frequency``: stop when the best pair is rarer. ``max_token_length``: no token longer than that many bytes.
    ``reserved``: byte strings that no merge may produce. ``progress(done, n_merges)`` is called now and then.
    Returns fewer merges when no pair is left.
    ``floor_divisor`` and ``arena_factor`` set how fast the floor falls and the room for occurrence lists; they change
    speed and memory, never the result.

    Raises ConfigError for settings out of range, TrainingError when the table is too large.
    """
    if tie_break not in TIE_BREAKS:
        raise ConfigError(f"tie_break {tie_break!r} is not one of {', '.join(TIE_BREAKS)}")
    if min_frequency < 1:
        raise ConfigError(f"min_frequency must be at least 1, not {min_frequency}")
    if max_token_length is not None and max_token_length < 1:
        raise ConfigError(f"max_token_length must be at least 1, not {max_token_length}")
    tie = TIE_BREAKS[tie_break]
    max_length = min(max_token_length or MAX_WORD_BYTES, MAX_WORD_BYTES)
    byte_ids = (np.arange(256) if byte_ids is None else byte_ids).astype(np.int32)
    if len(counts) and int(np.diff(starts).max()) > MAX_WORD_BYTES:
        raise TrainingError(f"a word of more than {MAX_WORD_BYTES} bytes cannot be trained on")
    if len(counts) and int(counts.min()) < 1:
        raise TrainingError("word counts must be positive")
    weight = float(np.dot(np.diff(starts).astype(np.float64), counts.astype(np.float64))) if len(counts) else 0.0
    if weight >= 2.0**62:
        raise TrainingError("the table's total count times word length exceeds 2^62; scale the counts down")

    slots, words = pairs.count_slots(starts)
    if slots > _MAX_SLOTS:
        raise TrainingError(
            f"the table has {slots:,} symbols after counting; the merge loop takes {_MAX_SLOTS:,}. "
            f"Train on fewer distinct words (a smaller sample, or min_count above 1)."
        )
    need = projected_bytes(slots, 256 + n_merges)
    free = available_bytes()
    if log:
        log(
            f"merge loop: {words:,} words, {slots - words - 1:,} symbols, about {need / 1e6:,.0f} MB of memory "
            f"({free / 1e6:,.0f} MB available)"
        )
    if need > free:
        raise TrainingError(
            f"the merge loop needs about {need / 1e9:.1f} GB for {slots:,} symbols, and {free / 1e9:.1f} GB are "
            f"available: run the driver on a machine with more memory, or train on fewer distinct words"
        )

    loop = _Loop(data, starts, counts, n_merges, byte_ids, tie, max_length, reserved, arena_factor)
    floor = max(min_frequency, loop.largest_pair() // floor_divisor)
    while loop.merges < n_merges:
        if loop.index(floor):
            loop.merge(floor, n_merges, progress)
        if loop.merges == n_merges or floor == min_frequency:
            break
        floor = max(min_frequency, floor // floor_divisor)
    return loop.result()


class _Loop:
    """The arrays of one training run, and the steps between which they may be replaced by larger ones."""

    def __init__(self, data, starts, counts, n_merges, byte_ids, tie, max_length, reserved, arena_factor):
        slots, _ = pairs.count_slots(starts)
        vocab = 256 + n_merges
        self.word_count = np.ascontiguousarray(counts, np.int64)
        self.symbol = np.empty(slots, np.int32)
        self.word_at = np.empty(slots, np.int32)
        pairs.layout(data, starts, byte_ids, self.symbol, self.word_at)
        self.span = np.empty(slots, np.uint16)
        self.pair_at = np.empty(slots, np.int32)
        self.slots = slots
        self.compacted = True
        self.occurrence = np.empty(int(slots * arena_factor) + 1024, np.int32)
        self.tie, self.max_length = tie, max_length

        # Tokens: their bytes, where each starts, and the first eight bytes big-endian.
        self.token_start = np.zeros(vocab + 1, np.int64)
        self.token_bytes = np.zeros(max(4096, vocab * 8), np.uint8)
        self.token_head = np.zeros(vocab, np.uint64)
        self.token_start[: 256 + 1] = np.arange(257)
        self.token_bytes[byte_ids] = np.arange(256)
        self.token_head[byte_ids] = np.arange(256, dtype=np.uint64) << np.uint64(56)
        self.reserved = np.frombuffer(b"".join(reserved) + b"\0", np.uint8)
        self.reserved_start = np.cumsum([0, *map(len, reserved)]).astype(np.int64)

        # Grouping scratch, by the other symbol of a new pair.
        self.scratch = [np.zeros(vocab, dtype) for dtype in (np.int64, np.int64, np.int32, np.int32)]
        self.touched = [np.empty(vocab, np.int32) for _ in range(2)]
        self.new_position = np.empty(0, np.int32)
        self.new_side = np.empty(0, np.int32)

        self.merge_key = np.empty(n_merges, np.int64)
        self.merge_count = np.empty(n_merges, np.int64)
        self.state = np.zeros(k.STATE_SIZE, np.int64)
        self.state[k.STATE_NEXT_ID] = 256
        self.table_size = 1 << 16

    @property
    def merges(self) -> int:
        return int(self.state[k.STATE_MERGES])

    def largest_pair(self) -> int:
        return int(pairs.largest_byte_pair(self.symbol, self.word_at, self.word_count))

    def result(self) -> MergeResult:
        keys = self.merge_key[: self.merges]
        merges = np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int32)
        return MergeResult(merges, self.merge_count[: self.merges].copy())

    def index(self, floor: int) -> bool:
        """Compact the words, count the pairs and record those of at least ``floor``; False when there are none."""
        if not self.compacted:
            self.slots = pairs.compact(self.symbol, self.word_at, self.span, self.slots)
            self.compacted = True
        n_ids = int(self.state[k.STATE_NEXT_ID])
        while True:
            keys = np.empty(self.table_size, np.int64)
            counts = np.empty(self.table_size, np.int64)
            numbers = np.empty(self.table_size, np.int32)
            used = pairs.count_pairs(
                self.symbol, self.word_at, self.span, self.pair_at, self.slots, self.word_count, n_ids, floor,
                keys, counts, numbers,
            )  # fmt: skip
            if used >= 0:
                break
            self.table_size *= 4
        records, total, longest = pairs.select_pairs(
            keys, counts, numbers, floor, self.token_start, self.token_bytes, self.max_length,
            self.reserved, self.reserved_start,
        )  # fmt: skip
        if records == 0:
            return False
        if total > len(self.occurrence):
            self.occurrence = np.empty(total, np.int32)
        room = records + 1 + max(65_536, 4 * len(self.merge_key))
        self.pair_key, self.pair_count, self.pair_start, self.pair_end = (np.empty(room, np.int64) for _ in range(4))
        self.heap_count, self.heap_key = (np.empty(room, np.int64) for _ in range(2))
        self.heap_record = np.empty(room, np.int32)
        if len(self.new_position) < 2 * longest:
            self.new_position = np.empty(2 * longest, np.int32)
            self.new_side = np.empty(2 * longest, np.int32)
        self.state[[k.STATE_RECORDS, k.STATE_OCCURRENCES]] = pairs.index_pairs(
            self.pair_at, self.slots, keys, counts, numbers, self.occurrence,
            self.pair_key, self.pair_count, self.pair_start, self.pair_end,
        )  # fmt: skip
        k.build_heap(
            self.heap_count, self.heap_key, self.heap_record, self.pair_key, self.pair_count, self.pair_start,
            self.pair_end, self.pair_at, self.occurrence, self.tie, self.token_head, self.token_start,
            self.token_bytes, self.state,
        )  # fmt: skip
        return True

    def merge(self, floor: int, n_merges: int, progress) -> None:
        """Merge until no pair of at least ``floor`` is left or ``n_merges`` are made."""
        rebuilt_at = -1
        while True:
            # Early merges of a large table take tens of milliseconds each, late ones microseconds.
            limit = min(n_merges, self.merges + (64 if self.merges < 2048 else 2048)) if progress else n_merges
            self.compacted = False
            reason = k.merge_pairs(
                self.symbol, self.word_at, self.span, self.pair_at, self.word_count, floor,
                self.occurrence, self.pair_key, self.pair_count, self.pair_start, self.pair_end,
                self.heap_count, self.heap_key, self.heap_record,
                *self.scratch, *self.touched, self.new_position, self.new_side,
                self.tie, self.token_head, self.token_start, self.token_bytes, self.max_length,
                self.reserved, self.reserved_start,
                self.merge_key, self.merge_count, limit, self.state,
            )  # fmt: skip
            if progress:
                progress(self.merges, n_merges)
            need = int(self.state[k.STATE_NEED])
            if reason == k.DRAINED or (reason == k.DONE and self.merges >= n_merges):
                return
            if reason == k.NEED_TOKEN_BYTES:
                self.token_bytes = _grown(self.token_bytes, 2 * need)
            elif reason == k.NEED_RECORDS:
                for name in (
                    "pair_key",
                    "pair_count",
                    "pair_start",
                    "pair_end",
                    "heap_count",
                    "heap_key",
                    "heap_record",
                ):
                    setattr(self, name, _grown(getattr(self, name), need + need // 2))
            elif reason == k.NEED_OCCURRENCES:
                # Indexing again drops the dead occurrences; if that was just done, the arena is too small.
                if rebuilt_at == self.merges:
                    self.occurrence = _grown(self.occurrence, need + need // 8)
                else:
                    rebuilt_at = self.merges
                    if not self.index(floor):
                        return


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger

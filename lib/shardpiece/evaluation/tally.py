"""What is added up over texts: of the texts themselves, and of what each tokenizer makes of them, by group.

Everything is a sum, a union or a smallest hash, so tallies of parts merge to the tally of the whole in any order, and the
result depends neither on the cluster nor on which task read what.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shardpiece.errors import InputError
from shardpiece.evaluation.arrays import from_bytes, to_bytes
from shardpiece.evaluation.parallel import ParallelCounts
from shardpiece.evaluation.words import KEPT, WORDS, most_frequent

TEXT_SUMS = ("documents", "bytes", "characters", "words")
TOKEN_SUMS = ("tokens", "continued_words", "tried", "round_trips", "failed")
MOST_GROUPS = 2_000
_WORD_ROWS = 1 << 20
_WAITING_ROWS = 4 << 20


def check_groups(n: int) -> None:
    """Raises InputError for a column that is no group column."""
    if n > MOST_GROUPS:
        raise InputError(
            f"the group column has more than {MOST_GROUPS:,} values: metrics are per group. Name another with --group-column."
        )


def merge_sums(into: dict[str, np.ndarray], more: dict[str, np.ndarray]) -> None:
    for group, sums in more.items():
        into[group] = into[group] + sums if group in into else sums.copy()


@dataclass(frozen=True)
class SampleText:
    """The document of its group with the smallest ``hash`` (of its id and text)."""

    hash: int
    id: str
    text: str
    cut: bool


@dataclass
class TextTally:
    """Of texts. ``sums``: by group, int64 in the order of TEXT_SUMS; ``parallel``: bytes by key."""

    sums: dict[str, np.ndarray] = field(default_factory=dict)
    parallel: ParallelCounts = field(default_factory=ParallelCounts)
    samples: dict[str, SampleText] = field(default_factory=dict)
    _words: list[pa.Table] = field(default_factory=list, repr=False)

    def add(self, group: str, **values: int) -> None:
        sums = self.sums.setdefault(group, np.zeros(len(TEXT_SUMS), np.int64))
        for name, value in values.items():
            sums[TEXT_SUMS.index(name)] += value

    def add_words(self, table: pa.Table) -> None:
        self._words.append(table)
        if sum(map(len, self._words)) > _WORD_ROWS:
            self._words = [most_frequent(pa.concat_tables(self._words), KEPT)]

    def add_sample(self, group: str, sample: SampleText) -> None:
        known = self.samples.get(group)
        if known is None or (sample.hash, sample.id) < (known.hash, known.id):
            self.samples[group] = sample

    def common_words(self, most: int = KEPT) -> pa.Table:
        """word, group, count, the most frequent first in each group. Exact in the counts of words that are among the KEPT most
        frequent of their group wherever they were counted."""
        return most_frequent(pa.concat_tables([WORDS.empty_table(), *self._words]), most)

    def merge(self, other: "TextTally") -> None:
        merge_sums(self.sums, other.sums)
        check_groups(len(self.sums))
        self.parallel.merge(other.parallel)
        for group, sample in other.samples.items():
            self.add_sample(group, sample)
        for table in other._words:
            self.add_words(table)

    def to_bytes(self) -> bytes:
        header, arrays = self.parallel.to_arrays()
        names = sorted(self.sums)
        words = self.common_words()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, WORDS) as writer:
            writer.write_table(words)
        samples = {group: [s.hash, s.id, s.text, s.cut] for group, s in sorted(self.samples.items())}
        return to_bytes(
            {"groups": names, "parallel": header, "samples": samples},
            {
                **arrays,
                "sums": _stacked(self.sums, names, len(TEXT_SUMS)),
                "words": np.frombuffer(sink.getvalue(), np.uint8),
            },
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> "TextTally":
        header, arrays = from_bytes(raw)
        words = pa.ipc.open_stream(pa.py_buffer(arrays["words"])).read_all()
        return cls(
            dict(zip(header["groups"], arrays["sums"], strict=True)),
            ParallelCounts.from_arrays(header["parallel"], arrays),
            {group: SampleText(*values) for group, values in header["samples"].items()},
            [words],
        )


@dataclass
class TokenTally:
    """Of what a tokenizer of ``vocab_size`` ids makes of texts. ``sums``: by group, int64 in the order of TOKEN_SUMS: "tried" and
    "round_trips" are documents, "failed" those that could not be decoded at all. ``parallel``: tokens by key."""

    vocab_size: int
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    parallel: ParallelCounts = field(default_factory=ParallelCounts)
    _counts: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)
    dense_bytes: int = 256 << 20
    _waiting: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict, repr=False)
    _waiting_rows: int = 0
    _dense: np.ndarray | None = field(default=None, repr=False)
    _slots: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, group: str, **values: int) -> None:
        sums = self.sums.setdefault(group, np.zeros(len(TOKEN_SUMS), np.int64))
        for name, value in values.items():
            sums[TOKEN_SUMS.index(name)] += value

    def add_tokens(
        self,
        names: list[str],
        codes: np.ndarray,
        tokens: np.ndarray,
        offsets: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        """Count tokens. ``tokens``, ``offsets``: of documents, as ``encode_documents`` gives them; ``codes``: int64 [documents],
        the number of each one's group in ``names``; ``weights``: int64 [documents], how often each one counts."""
        lengths = np.diff(offsets)
        present, codes = np.unique(codes, return_inverse=True)
        present = [names[code] for code in present.tolist()]
        times = lengths if weights is None else lengths * weights
        sums = np.zeros(len(present), np.int64)
        np.add.at(sums, codes, times)
        for group, total in zip(present, sums.tolist(), strict=True):
            self.add(group, tokens=total)
        if len(present) * self.vocab_size * 8 > self.dense_bytes:
            self._add_sorted(present, codes, tokens, lengths, weights)
            return
        dense, slots = self._rows(present)
        if weights is None and len(present) * self.vocab_size <= 16 * len(tokens):
            flat = tokens if len(present) == 1 else np.repeat(codes, lengths) * self.vocab_size + tokens
            found = np.bincount(flat, minlength=len(present) * self.vocab_size).reshape(len(present), -1)
            for slot, row in zip(slots, found, strict=True):
                dense[slot] += row
            return
        flat = np.repeat(np.array(slots, np.int64)[codes], lengths) * self.vocab_size + tokens
        np.add.at(dense.reshape(-1), flat, 1 if weights is None else np.repeat(weights, lengths))

    def _rows(self, groups: list[str]) -> tuple[np.ndarray, list[int]]:
        """Where to count: rows of an array of all ids, which move to pairs of ids and counts when they take too much room."""
        new = [group for group in groups if group not in self._slots]
        if self._dense is not None and (len(self._slots) + len(new)) * self.vocab_size * 8 > self.dense_bytes:
            self._settle()
            new = groups
        for group in new:
            self._slots[group] = len(self._slots)
        have = 0 if self._dense is None else len(self._dense)
        if len(self._slots) > have:
            most = self.dense_bytes // (8 * self.vocab_size)
            larger = np.zeros((max(len(self._slots), min(2 * have, most)), self.vocab_size), np.int64)
            if have:
                larger[:have] = self._dense
            self._dense = larger
        return self._dense, [self._slots[group] for group in groups]

    def _add_sorted(
        self, groups: list[str], codes: np.ndarray, tokens: np.ndarray, lengths: np.ndarray, weights: np.ndarray | None
    ) -> None:
        """As ``add_tokens``, of more groups than there is room for rows of."""
        flat = np.repeat(codes, lengths) * self.vocab_size + tokens
        keys, places = np.unique(flat, return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, places, 1 if weights is None else np.repeat(weights, lengths))
        borders = np.searchsorted(keys, np.arange(len(groups) + 1) * self.vocab_size)
        for n, group in enumerate(groups):
            own = slice(borders[n], borders[n + 1])
            self._put(group, (keys[own] - n * self.vocab_size).astype(np.int32), counts[own])

    def _put(self, group: str, ids: np.ndarray, counts: np.ndarray) -> None:
        self._waiting.setdefault(group, []).append((ids, counts))
        self._waiting_rows += len(ids)
        if self._waiting_rows > _WAITING_ROWS:
            self._join()

    def _settle(self) -> None:
        for group, slot in self._slots.items():
            row = self._dense[slot]
            ids = np.flatnonzero(row)
            self._put(group, ids.astype(np.int32), row[ids])
        self._dense, self._slots = None, {}
        self._join()

    def _join(self) -> None:
        for group, parts in self._waiting.items():
            self._counts[group] = _sum_of([*([self._counts[group]] if group in self._counts else []), *parts])
        self._waiting, self._waiting_rows = {}, 0

    def counts(self, group: str) -> tuple[np.ndarray, np.ndarray]:
        """(ids int32 ascending, counts int64 positive) of the tokens that a group has."""
        self._settle()
        return self._counts.get(group, (np.zeros(0, np.int32), np.zeros(0, np.int64)))

    def total(self) -> np.ndarray:
        """int64 [vocab_size]: how often each token occurs."""
        self._settle()
        total = np.zeros(self.vocab_size, np.int64)
        for ids, counts in self._counts.values():
            total[ids] += counts
        return total

    def merge(self, other: "TokenTally") -> None:
        other._settle()
        merge_sums(self.sums, other.sums)
        self.parallel.merge(other.parallel)
        for group, (ids, counts) in other._counts.items():
            self._put(group, ids, counts)

    def to_bytes(self) -> bytes:
        self._settle()
        header, arrays = self.parallel.to_arrays()
        names, counted = sorted(self.sums), sorted(self._counts)
        return to_bytes(
            {
                "vocab_size": self.vocab_size,
                "groups": names,
                "counted": counted,
                "sizes": [len(self._counts[group][0]) for group in counted],
                "parallel": header,
            },
            {
                **arrays,
                "sums": _stacked(self.sums, names, len(TOKEN_SUMS)),
                "ids": np.concatenate([np.zeros(0, np.int32), *(self._counts[group][0] for group in counted)]),
                "counts": np.concatenate([np.zeros(0, np.int64), *(self._counts[group][1] for group in counted)]),
            },
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> "TokenTally":
        header, arrays = from_bytes(raw)
        ends = np.cumsum([0, *header["sizes"]]).tolist()
        counts = {
            group: (arrays["ids"][ends[i] : ends[i + 1]], arrays["counts"][ends[i] : ends[i + 1]])
            for i, group in enumerate(header["counted"])
        }
        return cls(
            header["vocab_size"],
            dict(zip(header["groups"], arrays["sums"], strict=True)),
            ParallelCounts.from_arrays(header["parallel"], arrays),
            counts,
        )


def _stacked(sums: dict[str, np.ndarray], names: list[str], width: int) -> np.ndarray:
    return np.stack([sums[name] for name in names]) if names else np.zeros((0, width), np.int64)


def _sum_of(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(ids ascending, counts) of all parts together."""
    if len(parts) == 1:
        return parts[0]
    ids, places = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    sums = np.zeros(len(ids), np.int64)
    np.add.at(sums, places, np.concatenate([counts for _, counts in parts]))
    return ids, sums

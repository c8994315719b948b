"""Parallel text: how much of it each group has for the same keys, and what that makes of premiums."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import xxhash

MOST_ROWS = 1_000_000
"""Pairs of a key and a group that are kept; of more, those whose keys have the smallest hashes, the same on any cluster."""
NOT_PARALLEL = 0
STRIP_LAST_PART = "(.+):[^:]*"
_ENGLISH = ("en", "eng", "eng_Latn", "english", "English")


def key_hashes(ids: Sequence[str | None], pattern: str | None) -> np.ndarray:
    """uint64 [n]: XXH3-64 of the key of each id, 0 where it has none. ``pattern``: a regular expression that an id must match
    as a whole, its first group (or all of it, without one) the key; None: the id is the key."""
    compiled = None if pattern is None else re.compile(pattern, re.DOTALL)
    hashes = np.zeros(len(ids), np.uint64)
    for i, name in enumerate(ids):
        if name is None:
            continue
        if compiled is not None:
            found = compiled.fullmatch(name)
            if found is None:
                continue
            name = found[1] if compiled.groups else name
        if name:
            hashes[i] = max(1, xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")))
    return hashes


@dataclass
class ParallelCounts:
    """``rows``: by group, what was counted for each key: keys uint64 [n] ascending, sums int64 [n] (bytes or tokens of all
    texts with that key), texts int64 [n] (their number). ``below``: keys from there on were left out."""

    rows: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)
    below: int = 1 << 64
    most: int = MOST_ROWS
    _waiting: dict[str, list] = field(default_factory=dict, repr=False)

    def add(self, groups: Sequence[str], codes: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
        """``codes``: the number of each text's group in ``groups``; texts without key (0) are left out."""
        for code in np.unique(codes[keys != NOT_PARALLEL]).tolist():
            chosen = (codes == code) & (keys != NOT_PARALLEL)
            self._put(groups[code], keys[chosen], values[chosen].astype(np.int64), np.ones(int(chosen.sum()), np.int64))
        if sum(len(part[0]) for parts in self._waiting.values() for part in parts) > self.most:
            self._settle()

    def merge(self, other: "ParallelCounts") -> None:
        other._settle()
        self.below = min(self.below, other.below)
        for group, row in other.rows.items():
            self._put(group, *row)
        self._settle()

    def _put(self, group: str, *columns: np.ndarray) -> None:
        self._waiting.setdefault(group, []).append(columns)

    def _settle(self) -> None:
        for group, parts in self._waiting.items():
            parts = [*([self.rows[group]] if group in self.rows else []), *parts]
            keys, sums, texts = (np.concatenate(column) for column in zip(*parts, strict=True))
            keys, places = np.unique(keys, return_inverse=True)
            totals = np.zeros((2, len(keys)), np.int64)
            np.add.at(totals[0], places, sums)
            np.add.at(totals[1], places, texts)
            self.rows[group] = keys, totals[0], totals[1]
        self._waiting.clear()
        if sum(len(keys) for keys, _, _ in self.rows.values()) > self.most:
            every = np.sort(np.concatenate([keys for keys, _, _ in self.rows.values()]))
            self.below = min(self.below, int(every[self.most]))
        if self.below < 1 << 64:
            limit = np.uint64(self.below)
            self.rows = {
                group: tuple(column[keys < limit] for column in (keys, sums, texts))
                for group, (keys, sums, texts) in self.rows.items()
            }

    def settled(self) -> "ParallelCounts":
        self._settle()
        return self

    def to_arrays(self) -> tuple[dict, dict[str, np.ndarray]]:
        self._settle()
        names = sorted(self.rows)
        columns = {
            f"parallel{c}": np.concatenate([self.rows[name][c] for name in names]) if names else np.zeros(0, dtype)
            for c, dtype in enumerate((np.uint64, np.int64, np.int64))
        }
        return {"groups": names, "sizes": [len(self.rows[name][0]) for name in names], "below": self.below}, columns

    @classmethod
    def from_arrays(cls, header: dict, arrays: dict[str, np.ndarray]) -> "ParallelCounts":
        ends = np.cumsum([0, *header["sizes"]]).tolist()
        rows = {
            name: tuple(arrays[f"parallel{c}"][ends[i] : ends[i + 1]] for c in range(3))
            for i, name in enumerate(header["groups"])
        }
        return cls(rows, header["below"])


def choose_pivot(counts: ParallelCounts, wanted: str | None) -> str | None:
    """The group that premiums are against: ``wanted``; else English, where there is some; else the group with most keys (of
    equals the first name). None where nothing is parallel, or ``wanted`` has no keys."""
    rows = {group: len(keys) for group, (keys, _, _) in counts.settled().rows.items() if len(keys)}
    if wanted is not None:
        return wanted if wanted in rows else None
    for name in _ENGLISH:
        if name in rows:
            return name
    return min(rows, key=lambda group: (-rows[group], group)) if len(rows) > 1 else None


def premiums(counts: ParallelCounts, pivot: str) -> dict[str, tuple[int, float | None]]:
    """By group (pairs, premium): the ratio of the tokens (or bytes) of the group's texts to those of the pivot's, over the
    keys that both have: Σ c_g(k) / Σ c_pivot(k), c(k) the mean over the texts with that key (Petrov et al. 2023: the
    tokenization premium |t(s_A)| / |t(s_B)|, of a whole parallel corpus). None where they have no key in common.
    The pivot's own is 1."""
    counts.settled()
    keys, sums, texts = counts.rows[pivot]
    result: dict[str, tuple[int, float | None]] = {}
    for group, (own_keys, own_sums, own_texts) in sorted(counts.rows.items()):
        common, ours, theirs = np.intersect1d(own_keys, keys, assume_unique=True, return_indices=True)
        above = float((own_sums[ours] / own_texts[ours]).sum())
        under = float((sums[theirs] / texts[theirs]).sum())
        result[group] = len(common), above / under if len(common) and under > 0 else None
    return result

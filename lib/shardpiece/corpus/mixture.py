"""Mixtures: how much of every group of the corpus is taken, in epochs or in tokens.

``{wiki: 2.0, code: "0.5B tokens", "*": 1.0}``. A number is epochs: 2 takes every document twice, 0.5 the documents whose hash
lies in the lower half, 1.5 all of them and these once more. A budget of tokens is spent on documents in the order of their
hash, over and over if it is larger than the group. ``"*"`` stands for all groups that are not named.

Which documents are taken is a question of the document's hash alone, once the group's bound is known. For budgets a first pass
sums up the tokens of 65,536 ranges of hashes (a bucket is the upper 16 bits of a hash); the bound is where a bucket ends. So
what is taken exceeds a budget by less than one bucket, 1/65,536 of a large group and about a document of a small one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shardpiece.corpus.keys import threshold
from shardpiece.errors import ConfigError

OTHERS = "*"
PURPOSE = "mixture"
BUCKETS = 1 << 16
_SHIFT = np.uint64(48)
_ALL = 1 << 64
_MOST_EPOCHS = 10_000
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BUDGET = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([KMBT]?)\s*tokens\s*", re.IGNORECASE)
# So many rows of a tally are summed up at a time.
_PENDING = 1 << 20


@dataclass(frozen=True)
class Share:
    """What the user wants of a group: ``epochs``, or else a budget of ``tokens``."""

    epochs: Fraction | None = None
    tokens: int | None = None

    @property
    def repeats(self) -> bool:
        """Whether documents are certain to be taken more than once."""
        return self.epochs is not None and self.epochs > 1


@dataclass(frozen=True)
class Take:
    """What a group gives: every document ``whole`` times, and those with a hash below ``bound`` (< 2^64) once more."""

    whole: int
    bound: int = 0

    @property
    def epochs(self) -> float:
        return self.whole + self.bound / _ALL

    @property
    def repeats(self) -> bool:
        return self.whole + (self.bound > 0) > 1

    def copies(self, hashes: np.ndarray) -> np.ndarray:
        """int64 [n]: how many times documents of these hashes (uint64) are taken."""
        return self.whole + (hashes < np.uint64(self.bound))

    @classmethod
    def of_epochs(cls, epochs: Fraction) -> "Take":
        whole = int(epochs)
        return cls(whole, threshold(epochs - whole))


@dataclass(frozen=True)
class Group:
    """A group as the first pass found it: ``documents``, ``bytes`` of text and ``tokens``, int64 [buckets], where there is
    one bucket of a group without a budget (and no tokens were counted)."""

    documents: np.ndarray
    bytes: np.ndarray
    tokens: np.ndarray


def parse_mixture(mixture: Mapping[str, float | int | str]) -> dict[str, Share]:
    """Raises ConfigError for what is neither a number of epochs nor a budget of tokens."""
    return {str(group): _share(str(group), given) for group, given in mixture.items()}


def _share(group: str, given: float | int | str) -> Share:
    if isinstance(given, str):
        match = _BUDGET.fullmatch(given)
        if match:
            number = Fraction(re.sub("[_,]", "", match[1]))
            return Share(tokens=int(number * _UNITS[match[2].upper()]))
        try:
            given = float(given)
        except ValueError:
            given = float("nan")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _MOST_EPOCHS:
        raise ConfigError(
            f"encode.mixture: {group}: {given!r} is neither a number of epochs (2.0; 0 to {_MOST_EPOCHS:,}) nor a "
            f'budget ("0.5B tokens"; K, M, B or T)'
        )
    return Share(epochs=Fraction(given))


def share_of(shares: Mapping[str, Share], group: str) -> Share | None:
    """What the mixture says of a group, None when it says nothing."""
    return shares.get(group, shares.get(OTHERS))


def check_groups(shares: Mapping[str, Share], groups: Sequence[str], every: bool = True) -> None:
    """Raises ConfigError for groups of the corpus that the mixture does not name, and, where these are ``every`` group, for
    names that no document has."""
    found = set(groups) if every else {*shares}
    missing = sorted(name for name in shares if name != OTHERS and name not in found)
    if missing:
        raise ConfigError(
            f"encode.mixture: no document is of the group {missing[0]!r} (the corpus has {_names(groups)})"
        )
    unnamed = [group for group in groups if share_of(shares, group) is None]
    if unnamed:
        raise ConfigError(
            f'encode.mixture: nothing is said of the groups {_names(unnamed)}: name them, 0 leaves one out, or add "*" '
            f"for all others"
        )


def _names(groups: Sequence[str]) -> str:
    names = [repr(group) for group in sorted(groups)]
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")


def resolve(shares: Mapping[str, Share], groups: Mapping[str, Group]) -> dict[str, Take]:
    """What each group gives. Raises ConfigError as ``check_groups`` does, and for a budget that a group cannot fill."""
    check_groups(shares, list(groups))
    return {name: take_of(name, share_of(shares, name), groups[name]) for name in sorted(groups)}


def take_of(name: str, share: Share, group: Group) -> Take:
    """What a share is of this group. Raises ConfigError for a budget that the group cannot fill."""
    if share.epochs is not None:
        return Take.of_epochs(share.epochs)
    total = int(group.tokens.sum())
    if not total and share.tokens:
        raise ConfigError(f"encode.mixture: {name}: a budget of {share.tokens:,} tokens, and the group has no tokens")
    if share.tokens > _MOST_EPOCHS * total:
        raise ConfigError(
            f"encode.mixture: {name}: a budget of {share.tokens:,} tokens is more than {_MOST_EPOCHS:,} times the "
            f"{total:,} of the group"
        )
    whole, rest = divmod(share.tokens, total) if total else (0, 0)
    if not rest:
        return Take(whole)
    bucket = int(np.searchsorted(np.cumsum(group.tokens), rest))
    bound = (bucket + 1) << 48
    return Take(whole + 1) if bound == _ALL else Take(whole, bound)


def taken(take: Take, group: Group) -> dict[str, int]:
    """Documents, bytes and tokens that ``take`` is of the group: exact for a bound at the end of a bucket, else in proportion."""
    n = len(group.documents)
    part = Fraction(take.bound * n, _ALL)
    buckets = int(part)
    result = {}
    for what in ("documents", "bytes", "tokens"):
        counts = getattr(group, what)
        extra = int(counts[:buckets].sum())
        if part > buckets:
            extra += int((part - buckets) * int(counts[buckets]))
        result[what] = take.whole * int(counts.sum()) + extra
    return result


class Tally:
    """Sums by group and bucket, in memory by what there are of these; groups without a budget have one bucket."""

    def __init__(self, shares: Mapping[str, Share]):
        self._shares = shares
        self._numbers: dict[str, int] = {}
        self._budgets: list[bool] = []
        self._keys: list[np.ndarray] = []
        self._values: list[np.ndarray] = []
        self._pending = 0

    def add(
        self, names: Sequence[str], codes: np.ndarray, hashes: np.ndarray, bytes: np.ndarray, tokens: np.ndarray
    ) -> None:
        """Add documents: ``codes`` (integers [n]) say which of ``names`` each is of, ``hashes`` uint64 [n], ``bytes`` and
        ``tokens`` integers [n]."""
        numbers = np.array([self._number(name) for name in names], np.int64)
        budgets = np.array(self._budgets, np.bool_)
        if not len(codes):
            return
        groups = numbers[codes]
        buckets = np.where(budgets[groups], (hashes >> _SHIFT).astype(np.int64), 0)
        values = np.stack([np.ones(len(codes), np.int64), bytes, tokens], axis=1).astype(np.int64)
        self._put(groups * BUCKETS + buckets, values)

    def add_packed(self, name: str, packed: bytes) -> None:
        """Add what ``packed`` gave of a group."""
        rows = np.frombuffer(packed, "<i8").reshape(-1, 4)
        self._put(rows[:, 0] + self._number(name) * BUCKETS, rows[:, 1:])

    def packed(self) -> Iterator[tuple[str, bytes]]:
        """For each group, sorted by name: its buckets that are not empty as int64 [k, 4]: number, documents, bytes, tokens."""
        self._compact()
        keys, values = (self._keys[0], self._values[0]) if self._keys else (np.empty(0, np.int64), np.empty((0, 3)))
        for name in sorted(self._numbers):
            first = self._numbers[name] * BUCKETS
            a, b = np.searchsorted(keys, [first, first + BUCKETS])
            yield name, np.column_stack([keys[a:b] - first, values[a:b]]).astype("<i8").tobytes()

    def groups(self) -> dict[str, Group]:
        """What was added, by group."""
        result = {}
        for name, packed in self.packed():
            rows = np.frombuffer(packed, "<i8").reshape(-1, 4)
            dense = np.zeros((3, BUCKETS if self._budgets[self._numbers[name]] else 1), np.int64)
            dense[:, rows[:, 0]] = rows[:, 1:].T
            result[name] = Group(*dense)
        return result

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            share = share_of(self._shares, name)
            self._budgets.append(share is not None and share.tokens is not None)
        return self._numbers[name]

    def _put(self, keys: np.ndarray, values: np.ndarray) -> None:
        self._keys.append(keys)
        self._values.append(values)
        self._pending += len(keys)
        if self._pending > _PENDING:
            self._compact()

    def _compact(self) -> None:
        self._pending = 0
        if not self._keys:
            return
        keys, values = np.concatenate(self._keys), np.concatenate(self._values)
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self._keys, self._values = [keys[starts]], [np.add.reduceat(values, starts, axis=0)] if len(keys) else [values]

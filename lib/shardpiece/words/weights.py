"""Mixture weights and pruning: other counts for the rows of a word table, without counting the corpus again.

Every group of a table is multiplied by one integer, so inside a group all ratios stay exact, and training on the
weighted table is training on whole numbers like any other. Everything is computed with fractions and with decimals of
a fixed precision: the same table and weights give the same counts on every machine.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from difflib import get_close_matches
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.words.table import WordTable

Number = int | float | str | Fraction | Decimal

MAX_BYTES = 2**61
"""What count × length of all rows may add up to, at most: no count of a pair is larger, and int64 keeps a margin."""

TOLERANCE = Fraction(1, 1_000_000)
"""How far, relatively, a group's share may lie from the one asked for, where whole multipliers cannot meet it."""

_LARGEST_EXPONENT = 400  # as a float has, with room to spare
# Far more digits than a multiplier has; a step of its own in any Python, since ln and exp round correctly.
_DECIMALS = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Weighted:
    """A table whose groups have other shares.

    ``table``: the rows with scaled counts (int64); groups of weight 0 are left out. ``multipliers``: what each group's
    counts were multiplied by. ``shares_before`` and ``shares_after``: each group's part of all bytes (count × length
    of the word), exact, each adding up to 1; a group left out is in both.

    ``scale``: scaled counts per count of a table that has the same shares and, in bytes, the size that the groups kept
    had before: ``scaled count / scale`` is a weighted count in the units of the original table.
    """

    table: WordTable
    multipliers: dict[str, int]
    scale: Fraction
    shares_before: dict[str, Fraction]
    shares_after: dict[str, Fraction]

    def scaled(self, count: int) -> int:
        """A bound such as ``min_frequency``, given in the units of the original table, as one for the scaled counts."""
        return math.ceil(count * self.scale)


def weigh(
    table: WordTable,
    *,
    weights: Mapping[str, Number] | None = None,
    temperature: Number | None = None,
    max_bytes: int = MAX_BYTES,
) -> Weighted:
    """Give every group of ``table`` another share of its bytes.

    ``weights``: the share of each group, as relative numbers: {"en": 3, "de": 1} makes three quarters of the text
    English. Every group has one; 0 leaves it out. A float means the decimal number it is written as: 0.1 is one tenth.
    ``temperature``: α in p ∝ n^α, with n the bytes of a group's text in the table (Lample and Conneau 2019, there over
    sentences): 1 changes nothing, 0 makes all groups equal.

    The multipliers are the smallest integers with the exact ratios where these stay within 64 bits, otherwise the
    largest that do, rounded; every share is then within one millionth of the one asked for.

    ``max_bytes``: what count × length of all weighted rows may add up to, for trainers that need a wider margin.

    Raises ConfigError for weights that cannot be (unknown or missing groups, negative ones, nothing but zeros) and for
    a table without groups, TrainingError when whole numbers of 64 bits cannot meet the shares.
    """
    if (weights is None) == (temperature is None):
        raise ConfigError("give either weights or a temperature")
    groups, index, sizes = _groups(table)
    if groups in ([], [""]):
        raise ConfigError(
            "the word table has no groups to weigh: count again with the column that tells the language or the source "
            "(group_column)"
        )
    shares = _given(weights, sizes) if weights is not None else _tempered(temperature, sizes)
    multipliers = _multipliers(shares, sizes, max_bytes)

    factors = np.array([multipliers[group] for group in groups], np.int64)[index]
    kept = factors > 0
    rows = table.table
    if not kept.all():
        rows, factors = rows.filter(pa.array(kept)), factors[kept]
    counts = pa.array(rows["count"].to_numpy() * factors, pa.int64())
    scaled = rows.set_column(rows.schema.get_field_index("count"), "count", counts)

    after = {group: multipliers[group] * size for group, size in sizes.items()}
    total, size_kept = sum(after.values()), sum(size for group, size in sizes.items() if multipliers[group])
    size_before = sum(sizes.values())
    settings = {"temperature": str(_fraction(temperature, "temperature"))} if weights is None else {
        "weights": {group: str(_fraction(weight, "weight")) for group, weight in sorted(weights.items())}
    }  # fmt: skip
    return Weighted(
        _derived(table, scaled, {"weighted": settings | {"multipliers": multipliers}}),
        multipliers,
        Fraction(total, size_kept),
        {group: Fraction(size, size_before) for group, size in sizes.items()},
        {group: Fraction(size, total) for group, size in after.items()},
    )


def pruned(table: WordTable, min_count: int) -> tuple[WordTable, dict[str, tuple[int, int]]]:
    """``table`` without the words that occur fewer than ``min_count`` times, all groups together, and for each group the
    bytes (count × length) that are kept and those that are pruned.

    Training on a pruned table learns other merges, and in scripts without spaces, whose words are the rare ones, many.
    Prune before weighing: weighted counts have other units.
    Raises ConfigError when ``min_count`` is not a positive whole number.
    """
    if not isinstance(min_count, int) or isinstance(min_count, bool) or min_count < 1:
        raise ConfigError(f"min_count must be a whole number of at least 1, not {min_count!r}")
    groups, index, _ = _groups(table)
    words, word_index = _encoded(table.table["word"])
    counts = table.table["count"].to_numpy()
    sums = np.zeros(len(words), np.int64)
    np.add.at(sums, word_index, counts)
    kept = sums[word_index] >= min_count
    sizes = counts * _lengths(table.table)
    mass = np.zeros((2, len(groups)), np.int64)
    np.add.at(mass[0], index[kept], sizes[kept])
    np.add.at(mass[1], index[~kept], sizes[~kept])
    report = {group: (int(mass[0, g]), int(mass[1, g])) for g, group in enumerate(groups)}
    if kept.all():
        return table, dict(sorted(report.items()))
    rows = table.table.filter(pa.array(kept))
    return _derived(table, rows, {"pruned": {"min_count": min_count}}), dict(sorted(report.items()))


def _derived(table: WordTable, rows: pa.Table, how: dict) -> WordTable:
    """A table made of another one; its metadata says of which and how. The fingerprint follows from the rows."""
    kept = ("engine", "engine_fingerprint", "special_tokens")
    metadata = {key: table.metadata[key] for key in kept if key in table.metadata}
    earlier = table.metadata.get("derived")
    step = {"from": table.fingerprint, **how}
    return WordTable(rows, metadata | {"derived": [*(earlier or []), step]})


def _lengths(rows: pa.Table) -> np.ndarray:
    return pc.binary_length(rows["word"]).to_numpy().astype(np.int64)


def _encoded(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """The distinct values in order of appearance, and the int32 index among them of every row's."""
    chunks = column.dictionary_encode().chunks
    if not chunks:
        return pa.array([], column.type), np.empty(0, np.int32)
    return chunks[0].dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in chunks])


def _groups(table: WordTable) -> tuple[list[str], np.ndarray, dict[str, int]]:
    """(names, int32 index of every row's name, name → bytes of its text, sorted by name)."""
    rows = table.table
    values, index = _encoded(pc.fill_null(rows["group"], ""))
    names = values.to_pylist()
    counts, lengths = rows["count"].to_numpy(), _lengths(rows)
    # As floats first: these cannot wrap, and whole numbers of this size do not either.
    if float(np.dot(counts.astype(np.float64), lengths.astype(np.float64))) >= MAX_BYTES:
        raise TrainingError(
            "the word table stands for more than 2^61 bytes of text: its counts do not fit into 64 bits"
        )
    sizes = np.zeros(len(names), np.int64)
    np.add.at(sizes, index, counts * lengths)
    return names, index, dict(sorted(zip(names, sizes.tolist(), strict=True)))


def _fraction(value: Number, what: str) -> Fraction:
    """The exact number; a float is the decimal number that it is written as."""
    if isinstance(value, int | Fraction | Decimal | str | float | np.integer | np.floating) and not isinstance(
        value, bool
    ):
        text = str(value).strip()
        exponent = re.search(r"[eE]([+-]?\d+)$", text)
        try:
            if exponent is None or abs(int(exponent[1])) <= _LARGEST_EXPONENT:
                return Fraction(text)
        except (ValueError, ZeroDivisionError):
            pass
    raise ConfigError(f"{what} {value!r} is not a finite number")


def _shown(group: str) -> str:
    return repr(group) if group else "'' (the documents without group)"


def _given(weights: Mapping[str, Number], sizes: dict[str, int]) -> dict[str, Fraction]:
    """The shares that a user asks for, checked."""
    for group in weights:
        if group not in sizes:
            close = get_close_matches(str(group), [*sizes], 3)
            shown = ", ".join(map(repr, close or [*sizes][:20]))
            more = f" (and {len(sizes) - 20} more)" if not close and len(sizes) > 20 else ""
            raise ConfigError(
                f"weights: the word table has no group {group!r}; {'near it are' if close else 'it has'} {shown}{more}"
            )
    missing = [group for group in sizes if group not in weights]
    if missing:
        listed = ", ".join(map(_shown, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise ConfigError(f"weights: nothing is said of the group {listed}: give each a weight, 0 leaves it out")
    wanted = {group: _fraction(weights[group], f"weight of {group!r}:") for group in sizes}
    for group, weight in wanted.items():
        if weight < 0:
            raise ConfigError(f"weights: the weight of {group!r} is negative ({weights[group]})")
        if weight and not sizes[group]:
            raise ConfigError(
                f"weights: the group {_shown(group)} has no text in the word table: only 0 can be its weight"
            )
    total = sum(wanted.values())
    if not total:
        raise ConfigError("weights: all are 0, which leaves nothing to train on")
    return {group: weight / total for group, weight in wanted.items()}


def _tempered(temperature: Number, sizes: dict[str, int]) -> dict[str, Fraction]:
    """Shares p ∝ n^α; groups without text have none."""
    alpha = _fraction(temperature, "temperature")
    if not 0 <= alpha <= 1:
        raise ConfigError(
            f"temperature {temperature} is not between 0 and 1: it is the exponent α of p ∝ n^α; for a temperature T of "
            f"the kind p ∝ n^(1/T), give 1/T"
        )
    powers = {group: _power(size, alpha) if size else Fraction(0) for group, size in sizes.items()}
    total = sum(powers.values())
    if not total:
        raise ConfigError("the word table is empty: there is nothing to weigh")
    return {group: power / total for group, power in powers.items()}


def _power(n: int, alpha: Fraction) -> Fraction:
    """n^α, exact for α of 0 and 1, else to about 58 digits."""
    if alpha.denominator == 1:
        return Fraction(n) ** int(alpha)
    exponent = _DECIMALS.divide(Decimal(alpha.numerator), Decimal(alpha.denominator))
    return Fraction(_DECIMALS.exp(_DECIMALS.multiply(exponent, _DECIMALS.ln(Decimal(n)))))


def _multipliers(shares: dict[str, Fraction], sizes: dict[str, int], max_bytes: int) -> dict[str, int]:
    """One integer per group, such that multiplier × bytes of the groups stand to each other as their shares."""
    ratios = {group: share / sizes[group] if share else Fraction(0) for group, share in shares.items()}
    # With multipliers c · ratio the bytes add up to c. The smallest c that makes all of them whole:
    positive = [ratio for ratio in ratios.values() if ratio]
    exact = Fraction(math.lcm(*(r.denominator for r in positive)), math.gcd(*(r.numerator for r in positive)))
    if exact < max_bytes:
        return {group: int(exact * ratio) for group, ratio in ratios.items()}
    # Rounding adds at most half a group's bytes to each.
    largest = max_bytes - 1 - sum(sizes.values())
    multipliers = {group: round(largest * ratio) for group, ratio in ratios.items()}
    total = sum(multipliers[group] * sizes[group] for group in sizes)
    for group, share in shares.items():
        achieved = Fraction(multipliers[group] * sizes[group], total) if total else Fraction(0)
        if abs(achieved - share) > TOLERANCE * share:
            raise TrainingError(
                f"the group {_shown(group)} shall have {float(share):.4%} of the text, and its {sizes[group]:,} bytes are so "
                f"many beside the others that whole multipliers within 64 bits come no closer than {float(achieved):.6%}: "
                f"choose weights nearer to the table's own shares ({float(Fraction(sizes[group], sum(sizes.values()))):.4%}) "
                f"or leave the smallest groups out"
            )
    return multipliers

"""Mixture weights and pruning against plain fractions over rows."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.words.table import WordTable
from shardpiece.words.weights import MAX_BYTES, TOLERANCE, pruned, weigh


def table_of(rows: list[tuple[bytes, str, int]], chunks: int = 1) -> WordTable:
    schema = pa.schema([("word", pa.large_binary()), ("group", pa.string()), ("count", pa.int64())])
    size = max(1, -(-len(rows) // chunks))
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    names = schema.names
    return WordTable(
        pa.concat_tables(
            [
                pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in part], schema)
                for part in parts or [[]]
            ]
        )
    )


def rows_of(table: WordTable) -> list[tuple[bytes, str, int]]:
    return [(row["word"], row["group"], row["count"]) for row in table.table.to_pylist()]


def bytes_of(rows) -> dict[str, int]:
    sizes: Counter = Counter()
    for word, group, count in rows:
        sizes[group] += len(word) * count
    return dict(sizes)


ROWS = [(b"low", "en", 4), (b"lower", "en", 2), (b"neu", "de", 3), (b"low", "de", 1), ("да".encode(), "ru", 6)]
# en 22 bytes, de 12, ru 24


def test_shares_are_met_by_the_smallest_whole_multipliers():
    weighted = weigh(table_of(ROWS), weights={"en": 2, "de": 1, "ru": 1})
    # 22 m : 12 n : 24 k = 2 : 1 : 1
    assert weighted.multipliers == {"en": 24, "de": 22, "ru": 11}
    assert bytes_of(rows_of(weighted.table)) == {"en": 528, "de": 264, "ru": 264}
    assert weighted.shares_after == {"en": Fraction(1, 2), "de": Fraction(1, 4), "ru": Fraction(1, 4)}
    assert weighted.shares_before == {"en": Fraction(22, 58), "de": Fraction(12, 58), "ru": Fraction(24, 58)}


def test_every_count_of_a_group_is_scaled_alike():
    weighted = weigh(table_of(ROWS, chunks=3), weights={"en": "1/3", "de": 0.5, "ru": Decimal("0.1")})
    scaled = [(word, group, count * weighted.multipliers[group]) for word, group, count in ROWS]
    assert rows_of(weighted.table) == scaled
    assert weighted.shares_after["de"] == Fraction(1, 2) / (Fraction(1, 3) + Fraction(1, 2) + Fraction(1, 10))


def test_a_float_means_the_decimal_number_it_is_written_as():
    exact = weigh(table_of(ROWS), weights={"en": Fraction(1, 10), "de": Fraction(2, 10), "ru": Fraction(7, 10)})
    for kind in (float, str, Decimal, np.float64):
        weights = {group: kind(value) for group, value in (("en", "0.1"), ("de", "0.2"), ("ru", "0.7"))}
        assert weigh(table_of(ROWS), weights=weights).multipliers == exact.multipliers


def test_a_weight_of_zero_leaves_the_group_out():
    weighted = weigh(table_of(ROWS), weights={"en": 22, "de": 12, "ru": 0})
    assert rows_of(weighted.table) == ROWS[:4]
    assert weighted.multipliers == {"de": 1, "en": 1, "ru": 0}
    assert weighted.scale == 1
    assert weighted.shares_after["ru"] == 0


def test_temperature_one_changes_nothing_and_zero_makes_all_equal():
    table = table_of(ROWS)
    same = weigh(table, temperature=1)
    assert rows_of(same.table) == ROWS
    assert same.table.fingerprint == table.fingerprint
    assert same.scale == 1
    equal = weigh(table, temperature=0)
    assert set(equal.shares_after.values()) == {Fraction(1, 3)}
    assert equal.multipliers == {"en": 12, "de": 22, "ru": 11}


def test_temperature_is_a_power_of_the_bytes():
    rows = [(b"a", "one", 100), (b"b", "two", 10_000), (b"c", "three", 1_000_000)]
    weighted = weigh(table_of(rows), temperature=0.5)
    for group, root in (("one", 10), ("two", 100), ("three", 1000)):
        assert abs(weighted.shares_after[group] / Fraction(root, 1110) - 1) < TOLERANCE
    third = weigh(table_of([(b"a", "x", 7), (b"bb", "y", 1300)]), temperature="0.3")
    ratio = float(third.shares_after["y"] / third.shares_after["x"])
    assert ratio == pytest.approx((2600 / 7) ** 0.3, rel=2e-6)


def test_scaled_counts_read_in_the_units_of_the_original():
    weighted = weigh(table_of(ROWS), weights={"en": 5, "de": 2, "ru": 1})
    before = sum(bytes_of(ROWS).values())
    after = sum(bytes_of(rows_of(weighted.table)).values())
    assert after / weighted.scale == before
    assert weighted.scaled(0) == 0
    assert weighted.scaled(3) - 1 < 3 * weighted.scale <= weighted.scaled(3)


def test_the_table_says_what_it_was_made_of():
    table = WordTable(table_of(ROWS).table, WordTable.from_counts({"a": 1}, "gpt2").metadata)
    weighted = weigh(table, weights={"en": 2, "de": 1, "ru": 0.5}).table
    assert weighted.engine.fingerprint == table.engine.fingerprint
    cut, _ = pruned(weighted, 100)
    assert len({table.fingerprint, weighted.fingerprint, cut.fingerprint}) == 3
    first, second = cut.metadata["derived"]
    assert first["from"] == table.fingerprint
    assert first["weighted"]["weights"] == {"de": "1", "en": "2", "ru": "1/2"}
    assert second == {"from": weighted.fingerprint, "pruned": {"min_count": 100}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": {"en": 1, "de": 1, "ru": 1, "fr": 1}}, "no group 'fr'"),
        ({"weights": {"en": 1, "de": 1, "rus": 1}}, "no group 'rus'; near it are 'ru'"),
        ({"weights": {"en": 1}}, "of the group 'de', 'ru': give each a weight, 0 leaves it out"),
        ({"weights": {"en": 1, "de": -1, "ru": 1}}, "weight of 'de' is negative"),
        ({"weights": {"en": 1, "de": float("nan"), "ru": 1}}, "weight of 'de': nan is not a finite number"),
        ({"weights": {"en": 1, "de": "inf", "ru": 1}}, "not a finite number"),
        ({"weights": {"en": 1, "de": "many", "ru": 1}}, "not a finite number"),
        ({"weights": {"en": 1, "de": True, "ru": 1}}, "not a finite number"),
        ({"weights": {"en": 1, "de": "1/0", "ru": 1}}, "not a finite number"),
        ({"weights": {"en": 1, "de": None, "ru": 1}}, "not a finite number"),
        ({"weights": {"en": 0, "de": 0, "ru": 0.0}}, "all are 0"),
        ({"weights": {}}, "nothing is said of the group"),
        ({"temperature": 5}, "not between 0 and 1.*1/T"),
        ({"temperature": -0.1}, "not between 0 and 1"),
        ({"temperature": float("nan")}, "temperature nan is not a finite number"),
        ({}, "either weights or a temperature"),
        ({"temperature": 0.3, "weights": {"en": 1}}, "either weights or a temperature"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        weigh(table_of(ROWS), **arguments)


def test_a_table_without_groups_is_refused():
    for table in (WordTable.from_counts({"low": 5}), table_of([])):
        with pytest.raises(ConfigError, match="no groups to weigh.*group_column"):
            weigh(table, temperature=0.3)


def test_documents_without_group_are_a_group_of_their_own():
    rows = [(b"a", "", 1), (b"b", "en", 3)]
    with pytest.raises(ConfigError, match="'' .the documents without group.: give each"):
        weigh(table_of(rows), weights={"en": 1})
    assert weigh(table_of(rows), weights={"en": 1, "": 1}).multipliers == {"": 3, "en": 1}


def test_more_than_64_bits_is_said_and_not_wrapped():
    with pytest.raises(TrainingError, match="2.61"):
        weigh(table_of([(b"ab", "x", 2**60), (b"c", "y", 1)]), temperature=0)
    # Ratios that take more than 64 bits are rounded, as large as possible.
    rows = [(b"a", "x", 2**40 + 1), (b"b", "y", 2**39 + 7)]
    weighted = weigh(table_of(rows), temperature=0)
    total = sum(bytes_of(rows_of(weighted.table)).values())
    assert MAX_BYTES - 2**42 < total < MAX_BYTES
    assert all(abs(2 * share - 1) <= TOLERANCE for share in weighted.shares_after.values())
    # So many bytes, so small a share: no whole multiplier comes near.
    rows = [(b"a", "x", 2**59 + 1), (b"b", "y", 12_345_679)]
    with pytest.raises(TrainingError, match="within 64 bits"):
        weigh(table_of(rows), weights={"x": 1, "y": 1})
    # But counts far above 2^32 are no matter by themselves.
    rows = [(b"a", "x", 2**50), (b"b", "y", 2**40)]
    assert weigh(table_of(rows), weights={"x": 1, "y": 1}).multipliers == {"x": 1, "y": 1024}


row = st.tuples(
    st.text("abé", min_size=1, max_size=6).map(str.encode),
    st.sampled_from(["", "de", "en", "ru"]),
    st.one_of(st.integers(1, 50), st.integers(1, 2**45)),
)
tables = st.lists(row, min_size=1, max_size=12, unique_by=lambda r: r[:2]).filter(
    lambda rows: {g for _, g, _ in rows} != {""}
)


def check(rows, wanted: dict[str, Fraction], weighted) -> None:
    """What must hold whatever the multipliers: the asked shares, exact ratios inside a group, and no wrapped count."""
    after = rows_of(weighted.table)
    assert after == [(w, g, c * weighted.multipliers[g]) for w, g, c in rows if weighted.multipliers[g]]
    sizes = bytes_of(after)
    total = sum(sizes.values())
    assert total < MAX_BYTES
    for group, share in wanted.items():
        assert weighted.shares_after[group] == Fraction(sizes.get(group, 0), total)
        assert abs(weighted.shares_after[group] - share) <= TOLERANCE * share
    kept = sum(len(w) * c for w, g, c in rows if weighted.multipliers[g])
    assert weighted.scale * kept == total


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables, st.data())
def test_any_weights(rows, data):
    groups = sorted({group for _, group, _ in rows})
    weights = {group: data.draw(st.integers(0, 9)) for group in groups}
    if not any(weights.values()):
        weights[groups[0]] = 1
    wanted = {group: Fraction(weight, sum(weights.values())) for group, weight in weights.items()}
    try:
        weighted = weigh(table_of(rows, chunks=2), weights=weights)
    except TrainingError:
        # Not for tables of moderate size.
        assert sum(bytes_of(rows).values()) > 2**38
        return
    check(rows, wanted, weighted)
    again = weigh(table_of(rows), weights={group: Fraction(weight, 7) for group, weight in weights.items()})
    assert again.multipliers == weighted.multipliers


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tables, st.sampled_from([0, 0.1, 0.3, "1/2", 0.7, 1]))
def test_any_temperature(rows, alpha):
    sizes = bytes_of(rows)
    powers = {group: size ** float(Fraction(alpha)) for group, size in sizes.items()}
    try:
        weighted = weigh(table_of(rows, chunks=3), temperature=alpha)
    except TrainingError:
        assert sum(sizes.values()) > 2**38
        return
    for group, power in powers.items():
        assert float(weighted.shares_after[group]) == pytest.approx(power / sum(powers.values()), rel=2e-6)
    check(rows, {}, weighted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables, st.integers(1, 60))
def test_pruning(rows, min_count):
    totals: Counter = Counter()
    for word, _, count in rows:
        totals[word] += count
    kept = [row for row in rows if totals[row[0]] >= min_count]
    table = table_of(rows, chunks=3)
    result, report = pruned(table, min_count)
    assert rows_of(result) == kept
    before, after = bytes_of(rows), bytes_of(kept)
    assert report == {group: (after.get(group, 0), size - after.get(group, 0)) for group, size in before.items()}
    assert [*report] == sorted(report)
    assert (result is table) == (len(kept) == len(rows))


@pytest.mark.parametrize("min_count", [0, -1, 1.5, True, "2"])
def test_pruning_needs_a_positive_whole_number(min_count):
    with pytest.raises(ConfigError, match="min_count"):
        pruned(table_of(ROWS), min_count)


def test_pruning_may_leave_nothing():
    result, report = pruned(table_of(ROWS), 1000)
    assert len(result) == 0
    assert report == {"de": (0, 12), "en": (0, 22), "ru": (0, 24)}
    assert pruned(table_of([]), 2)[1] == {}

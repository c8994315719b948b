"""Conditions: what SQLite makes of them is the reference."""

import datetime
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.corpus.base import Columns, Selection
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input, read_batches
from shardpiece.corpus.where import parse
from shardpiece.errors import ConfigError, InputError

ROWS = [
    {"n": n, "score": score, "lang": lang, "flag": flag}
    for n in (None, -1, 0, 2, 7)
    for score in (None, 0.0, 0.5)
    for lang in (None, "en", "de", "", "e%")
    for flag in (None, True, False)
]
TABLE = pa.Table.from_pylist(ROWS)
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.execute("CREATE TABLE t (n, score, lang, flag)")
DATABASE.executemany("INSERT INTO t VALUES (:n, :score, :lang, :flag)", ROWS)
DATABASE.create_function("octet_length", 1, lambda text: None if text is None else len(text.encode()))
DATABASE.execute("PRAGMA case_sensitive_like = ON")


def chosen(condition: str, table: pa.Table = TABLE, partitions=None) -> list[int]:
    expression = parse(condition).bind(table.schema, partitions)
    row = pa.array(range(table.num_rows))
    return table.append_column("row", row).filter(expression)["row"].to_pylist()


def expected(condition: str) -> list[int]:
    return [row - 1 for (row,) in DATABASE.execute(f"SELECT rowid FROM t WHERE {condition} ORDER BY rowid")]


OPERATORS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
NUMBERS = st.sampled_from(["-1", "0", "2", "0.5", "1e0", "7"])
TEXTS = st.sampled_from(["'en'", "'de'", "''", "'e%'", "'it''s'"])
NEGATED = st.sampled_from(["", "NOT "])
LEAVES = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["n", "score"]), OPERATORS, NUMBERS),
    st.builds("{} {} {}".format, NUMBERS, OPERATORS, st.just("n")),
    st.builds("lang {} {}".format, OPERATORS, TEXTS),
    st.builds("n {} score".format, OPERATORS),
    st.builds("n {}IN ({})".format, NEGATED, st.lists(NUMBERS, min_size=1, max_size=4).map(", ".join)),
    st.builds("lang {}IN ({})".format, NEGATED, st.lists(TEXTS, min_size=1, max_size=4).map(", ".join)),
    st.builds("{} IS {}NULL".format, st.sampled_from(["n", "score", "lang", "flag"]), NEGATED),
    st.builds("n {}BETWEEN {} AND {}".format, NEGATED, NUMBERS, NUMBERS),
    st.builds("lang {}LIKE {}".format, NEGATED, st.sampled_from(["'e%'", "'_n'", "'%'", "'EN'"])),
    st.builds("{}(lang) = {}".format, st.sampled_from(["upper", "LOWER"]), st.sampled_from(["'EN'", "'en'"])),
    st.builds("octet_length(lang) {} {}".format, OPERATORS, NUMBERS),
    st.sampled_from(
        ["flag", "flag = TRUE", "flag IS TRUE", "flag IS NOT FALSE", "TRUE", "FALSE", "1 < 2", "'a' = 'b'"]
    ),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(CONDITIONS)
def test_the_rows_are_those_of_sqlite(condition):
    assert chosen(condition) == expected(condition)


def test_structs_times_and_dictionaries():
    table = pa.table(
        {
            "meta": [{"lang": "en", "inner": {"n": 1}}, {"lang": None, "inner": None}, None],
            "day": [datetime.date(2024, 1, day) for day in (1, 2, 3)],
            "at": pa.array([datetime.datetime(2024, 1, 1, hour) for hour in (1, 2, 3)], pa.timestamp("ms")),
            "kind": pa.array(["web", "code", "web"]).dictionary_encode(),
            "raw": pa.array([b"a", b"b", None]),
            "Odd name": [1, 2, 3],
        }
    )
    assert chosen("meta.lang = 'en'", table) == [0]
    assert chosen("meta.inner.n IS NULL", table) == [1, 2]
    assert chosen("day >= '2024-01-02'", table) == chosen("day >= DATE '2024-01-02'", table) == [1, 2]
    assert chosen("at < '2024-01-01 02:00:00'", table) == chosen("at < TIMESTAMP '2024-01-01 02:00:00'", table) == [0]
    assert chosen("kind IN ('web')", table) == [0, 2]
    assert chosen("raw <> 'a'", table) == [1]
    assert chosen('"Odd name" > 1', table) == [1, 2]
    assert chosen(" OR ".join(f'"Odd name" = {n}' for n in range(3, 1_000)), table) == [2]


def test_partition_values_are_constants():
    values = {"year": "2024", "part": "07", "empty": None}
    table = pa.table({"n": [2023, 2024]})
    assert chosen("year >= 2024 AND n = year", table, values) == [1]
    assert chosen("part = '07' AND part = 7", table, values) == [0, 1]
    assert chosen("empty IS NULL AND NOT empty = 'x'", table, values) == []
    assert chosen("year IN (2023, 2024)", table, values) == [0, 1]
    for condition, excluded in [("year = 2023", True), ("n = 1 AND year < 2000", True), ("n = 1 OR year < 2000", False),
                                ("empty = 'x'", True), ("year = '2024'", False)]:  # fmt: skip
        assert parse(condition).excludes(values) == excluded
    with pytest.raises(InputError, match="the partition value 'en' is no number"):
        chosen("lang = 3", table, {"lang": "en"})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("foo(n) = 1", r"'FOO\(n\)' .*is not supported"),
        ("n IN (SELECT 1)", "is not supported"),
        ("n IN UNNEST(m)", "is not supported"),
        ("n BETWEEN SYMMETRIC 1 AND 0", "is not supported"),
        ("n IS DISTINCT FROM 1", "is not supported"),
        ("lang LIKE ANY ('a', 'b')", "is not supported"),
        ("COUNT(*) > 1", "is not supported"),
        ("CASE WHEN flag THEN 1 END = 1", "is not supported"),
        ("n + 1 = 2", "'n \\+ 1' .*is not supported"),
        ("CAST(n AS TEXT) = '1'", "is not supported"),
        ("n = 1; DROP TABLE t", "expected one condition"),
        ("", "expected one condition"),
        ("n >", "is not a condition"),
        ("n = 1 1", "is not a condition"),
        ("lang LIKE 'a!%' ESCAPE '!'", "is not supported"),
        ("nope = 1", r"no column 'nope' \(its columns: n, score, lang, flag\)"),
        ('lang = "en"', r"no column 'en' .*\(text stands in single quotes\)"),
        ("n.x = 1", "no column 'n.x'"),
        ("lang = 1", "string is not comparable with 1"),
        ("score = 'a'", "double is not comparable with 'a'"),
        ("lang = n", "not comparable"),
        ("n = NULL", "nothing equals NULL"),
        ("n", "expected a condition, found n of type int64"),
        ("n AND flag", "expected a condition"),
        ("n LIKE '1'", "LIKE compares a column of text"),
        ("UPPER(n) = '1'", "int64 is not text"),
        ("DATE '2024-13-01' = n", "is no date32"),
        ("flag > 1", "does not fit|not comparable"),
    ],
)
def test_what_is_not_understood_is_named(condition, message):
    with pytest.raises(ConfigError, match=message):
        chosen(condition)


def test_row_groups_that_cannot_match_are_not_read(tmp_path):
    table = pa.table({"text": [f"t{i}" for i in range(100)], "n": [*range(100)], "lang": ["en"] * 50 + ["de"] * 50})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    files = list_files([str(tmp_path)])

    def read(where):
        plan = plan_input(files, Selection(Columns("text"), where=where))
        batches = [*read_batches(plan.splits, plan.selection)]
        assert sum(len(b) + b.filtered_rows for b in batches) == sum(split.rows for split in plan.splits)
        return (
            len(plan.splits),
            [p for b in batches for p in b.positions.tolist()],
            [b.data.schema.names for b in batches],
        )

    assert read("n BETWEEN 15 AND 34") == (3, [*range(15, 35)], [["text"]] * 3)
    assert read("lang = 'en' AND n >= 48")[:2] == (1, [48, 49])
    assert read("n > 1000")[:2] == (0, [])
    assert read("text = 't5'")[1] == [5]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("x > 0.5", [0, 1, 2]), ("x > 1000.5", [1, 2]), ("x <> 6.0", [1, 2]), ("x BETWEEN 0.5 AND 1e9", [0, 1]),
        ("x < 9223372036854775808", [0, 1, 2]), ("u >= 1", [0, 2]), ("u = 18446744073709551615", [2]), ("u > -1", [0, 1, 2]),
    ],
)  # fmt: skip
def test_numbers_of_other_types_and_sizes(condition, found):
    table = pa.table(
        {"x": pa.array([6, 20_000_001, 1 << 62], pa.int64()), "u": pa.array([1, 0, (1 << 64) - 1], pa.uint64())}
    )
    assert chosen(condition, table) == found


def test_a_partition_without_a_value_is_null(tmp_path):
    assert chosen("y = 1", pa.table({"x": [1]}), {"y": None}) == []
    assert chosen("y IS NULL OR x = 1", pa.table({"x": [1]}), {"y": None}) == [0]

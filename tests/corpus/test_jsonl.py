"""JSON Lines: what is read, and what is said about lines that cannot be."""

import gzip
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.corpus.base import ByteRange, Columns, Selection
from shardpiece.corpus.jsonl import parse
from shardpiece.corpus.lines import read_lines
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input, read_batches
from shardpiece.errors import InputError, ShardpieceError
from shardpiece.text.documents import Documents

SCHEMA = pa.schema([("text", pa.large_binary()), ("n", pa.int64())])


def read(path, columns=None, **how):
    plan = plan_input(list_files([str(path)]), Selection(columns or Columns("text"), **how))
    return [*read_batches(plan.splits, plan.selection)]


def texts(path, **how):
    return [text for batch in read(path, **how) for text in batch["text"].to_pylist()]


def test_kinds_of_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "one", "more": [1, {"a": null}]}\r\n\n  \n{"text": null}\n\t{ "text" : "\\u00e9\\ud83d\\ude00\\n\\u0000" } \n'
        b'{}\n{"text": "a", "text": "last"}\n{"te\\u0078t": "\xe2\x80\xa8"}'
    )
    expected = [b"one", None, "é😀\n\0".encode(), None, b"last", "\u2028".encode()]
    assert texts(path) == expected
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert texts(packed) == expected
    raw = path.read_bytes()
    positions = [position for batch in read(path) for position in batch.positions.tolist()]
    assert [raw[position:].lstrip()[:9] for position in positions] == [
        b'{"text": ', b'{"text": ', b'{ "text" ', b'{}\n{"text', b'{"text": ', b'{"te\\u007',
    ]  # fmt: skip
    assert all(position == 3 or raw[position - 1] == 10 for position in positions)


def test_what_is_not_unicode_is_counted_like_anywhere_else(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "bad \xff"}\n{"text": "lone \\ud800."}\n{"text": "\\udcc3\\udca9"}\n{"text": "good"}\n{"text": "\xff\\ude00"}\n'
    )
    documents = Documents.from_arrow(read(path)[0]["text"])
    assert [documents.text(d) for d in range(5)] == [
        "bad \ufffd",
        "lone \ufffd.",
        "\ufffd\ufffd",
        "good",
        "\ufffd\ufffd",
    ]
    assert documents.replaced == 4


BAD = {
    '{"text": "x"': "not JSON",
    "[1]": "expected a JSON object, found an array",
    '{"text": 5}': "'text' holds a number, not text",
    '{"text": ["a"]}': "'text' holds an array, not text",
    '{"text": "a", "n": "b"}': "'n' holds text, ",
    '{"text": "a", "n": true}': "'n' holds true or false, ",
    '{"text": NaN}': "'text' holds a number, not text",
    '{"text": "a"} {"text": "b"}': "not JSON",
    '{"text": "tab\there"}': "not JSON",
    "[" * 100_000: "not JSON",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_lines_are_named_or_left_out(tmp_path, line):
    good = [json.dumps({"text": f"t{i}", "n": i}) for i in range(5)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*good[:3], "", line, *good[3:]]))
    columns = Columns("text", metadata=("n",))
    with pytest.raises(ShardpieceError) as caught:
        read(path, columns)
    assert BAD[line] in str(caught.value)
    assert re.search(r"a\.jsonl[,:] line 5: ", str(caught.value))
    [batch] = read(path, columns, bad_rows="skip")
    assert batch["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert batch.bad_rows == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.dictionaries(st.sampled_from(["text", "n", "other", "x{", "}"]), VALUES, max_size=4)
LINES = st.lists(
    ROWS.map(json.dumps) | st.sampled_from(['{"text": "a"}{"text":', '"b"}', "{", "}", "", '{"text": "}', '{"}'])
)


def parsed(path, size) -> tuple[list, int]:
    """The rows of a file read in batches of about so many bytes, and how many lines were none."""
    split = ByteRange(str(path), 0, size, "jsonl", "", size)
    rows, bad = [], 0
    for lines in read_lines(split, size):
        batch = parse(lines, SCHEMA, split, "skip")
        rows += zip(batch.positions.tolist(), batch["text"].to_pylist(), batch["n"].to_pylist(), strict=True)
        bad += batch.bad_rows
    return rows, bad


@settings(max_examples=60, deadline=None)
@given(LINES, st.integers(1, 50))
def test_batches_make_no_difference(tmp_path_factory, lines, block_bytes):
    """A block that pyarrow takes and lines that Python's parser takes one by one are the same rows."""
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    data = "\n".join(lines).encode()
    path.write_bytes(data)
    expected, bad, at = [], 0, 0
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
            assert isinstance(row, dict)
            text, n = row.get("text"), row.get("n")
            assert text is None or isinstance(text, str)
            assert n is None or type(n) is int
            expected.append((at, text if text is None else text.encode("utf-8", "replace"), n))
        except (ValueError, AssertionError):
            bad += bool(line.strip())
        at += len(line) + 1
    split_size = max(1, len(data))
    assert parsed(path, split_size) == (expected, bad)
    found: tuple[list, int] = ([], 0)
    split = ByteRange(str(path), 0, split_size, "jsonl", "", 1)
    for lines_read in read_lines(split, block_bytes):
        batch = parse(lines_read, SCHEMA, split, "skip")
        rows = zip(batch.positions.tolist(), batch["text"].to_pylist(), batch["n"].to_pylist(), strict=True)
        found = found[0] + [*rows], found[1] + batch.bad_rows
    assert found == (expected, bad)


def test_types_come_from_the_beginnings_of_all_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "id": 1, "score": 1, "tags": ["x"]}\n{"text": "b"}')
    (tmp_path / "b.jsonl").write_text('{"text": "c", "id": 3, "score": 0.5, "when": "2024-01-01T00:00:00"}')
    plan = plan_input(list_files([str(tmp_path)]), Columns("text", "id", None, ("score", "tags", "when")))
    assert plan.metadata == pa.schema([("score", pa.float64()), ("tags", pa.list_(pa.string())), ("when", pa.string())])
    rows = [row for batch in read_batches(plan.splits, plan.selection) for row in batch.data.to_pylist()]
    assert rows == [
        {"text": b"a", "id": 1, "score": 1.0, "tags": ["x"], "when": None},
        {"text": b"b", "id": None, "score": None, "tags": None, "when": None},
        {"text": b"c", "id": 3, "score": 0.5, "tags": None, "when": "2024-01-01T00:00:00"},
    ]
    (tmp_path / "c.jsonl").write_text('{"text": "c", "id": "three"}')
    with pytest.raises(InputError, match=r"c\.jsonl: column 'id' holds string, int64 in the files before it"):
        plan_input(list_files([str(tmp_path)]), Columns("text", "id"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[\n{}\n]", "a JSON array; JSON Lines has an object per line"),
        ("hello\n", "no JSON object in its beginning"),
        ('{"body": "x"}\n', r"no column 'text' \(its columns: body\)"),
        ('{"text": "a", "id": 1}\n{"text": "a", "id": "b"}', r"line 2: 'id' holds text, int64 in the lines before it"),
    ],
)
def test_files_that_are_none(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        plan_input(list_files([str(tmp_path)]), Columns("text", "id" if "id" in content else None))


def test_a_long_line_is_a_batch_of_its_own(tmp_path):
    path = tmp_path / "a.jsonl"
    long = "x" * 40_000_000
    path.write_text(f'{{"text": "a"}}\n{{"text": "{long}"}}\n{{"text": "b"}}\n')
    sizes = [[len(text) for text in batch["text"].to_pylist()] for batch in read(path)]
    assert [size for batch in sizes for size in batch] == [1, 40_000_000, 1]


def test_an_empty_file_has_no_documents(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\n \n")
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "x"}')
    assert texts(tmp_path) == [b"x"]
    (tmp_path / "d.jsonl.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"d\.jsonl\.gz: an empty file, which no gzip file is"):
        texts(tmp_path)


PAD = json.dumps({"text": "a" * 600_000, "n": 1, "o": {"a": 1}})


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"text": "x", "n": 2.5}', "n"),
        ('{"text": "x", "n": 1, "o": {"a": 2.5}}', "o"),
        ('{"text": "x", "n": 1, "o": {"a": 2, "b": 1}}', "o"),
    ],
)
def test_what_the_types_of_the_beginning_cannot_hold_is_no_other_value(tmp_path, line, column):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([PAD, PAD, line]))
    columns = Columns("text", metadata=(column,))
    with pytest.raises(ShardpieceError, match=rf"a\.jsonl, line 3: '{column}' holds"):
        read(path, columns)
    kept = read(path, columns, bad_rows="skip")
    assert sum(len(batch) for batch in kept) == 2
    assert sum(batch.bad_rows for batch in kept) == 1


def test_a_line_does_not_depend_on_its_neighbours(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "ppl": NaN}\n{"text": "b"}\n{"text": "\\ud800"}\n')
    assert len(texts(path, bad_rows="skip")) == 3


def test_metadata_that_is_not_unicode_becomes_what_text_does(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "m": "x\xff y"}\n')
    [batch] = read(path, Columns("text", metadata=("m",)))
    assert batch.metadata(["m"])["m"].to_pylist() == ["x\ufffd y"]


def test_numbers_with_fractions_are_no_ids(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "id": 9007199254740993}\n{"text": "b", "id": 1.5}\n')
    [batch] = read(path, Columns("text", "id"))
    with pytest.raises(InputError, match="numbers with fractions, which are no ids"):
        batch.ids("id")

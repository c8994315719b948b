"""Lines of files, however these are cut, against bytes.split."""

import gzip
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.corpus.base import BATCH_BYTES, ByteRange, Columns, Selection
from shardpiece.corpus.lines import BOM, read_lines
from shardpiece.corpus.sources import SourceFile, list_files
from shardpiece.corpus.splits import plan_input, read_batches
from shardpiece.corpus.streams import line_number
from shardpiece.errors import DataError

PIECES = ["a", "bc", "\n", "\r\n", "\r", "\n\n", "\u2028", "é", "\x85", "\x0b", " ", "\ufeff", "日本", "\0"]


def plain_lines(data: bytes) -> list[tuple[int, bytes]]:
    """(where it begins, the line) of every line: the rules, once more."""
    at = len(BOM) if data.startswith(BOM) else 0
    lines = []
    while at < len(data):
        feed = data.find(b"\n", at)
        end = feed if feed >= 0 else len(data)
        line = data[at:end]
        lines.append((at, line.removesuffix(b"\r") if feed >= 0 else line))
        at = end + 1
    return lines


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.lists(st.integers(0, 60), max_size=6), st.integers(1, 20))
def test_every_line_is_read_once_however_a_file_is_cut(tmp_path_factory, pieces, cuts, block_bytes):
    data = "".join(pieces).encode()
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(data)
    borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = []
    for start, end in pairwise(borders):
        for lines in read_lines(ByteRange(str(path), start, end, "text", "", 1), block_bytes):
            assert len(lines)
            found += zip(lines.positions.tolist(), lines.texts().to_pylist(), strict=True)
            assert [lines.line(i) for i in range(len(lines))] == lines.texts().to_pylist()
    assert found == plain_lines(data)
    packed = path.with_suffix(".txt.gz")
    packed.write_bytes(gzip.compress(data, 0))
    whole = [
        text
        for lines in read_lines(ByteRange(str(packed), 0, 1, "text", "gzip", 1), block_bytes)
        for text in lines.texts().to_pylist()
    ]
    assert whole == [line for _, line in plain_lines(data)]
    for position, _ in found:
        assert line_number(str(path), "", position) == data[:position].count(b"\n") + 1


def test_a_large_file_is_cut_and_read_in_batches(tmp_path):
    lines = [f"line {i} " * (i % 50) for i in range(250_000)]
    path = tmp_path / "large.txt"
    path.write_text("\n".join(lines))
    plan = plan_input([SourceFile(str(path), path.stat().st_size, "text")], Columns("text"))
    assert len(plan.splits) > 3
    assert all(a.end == b.start for a, b in pairwise(plan.splits))
    assert (plan.rows, plan.ledger()[0]["rows"]) == (None, -1)
    seen = []
    for batch in read_batches(plan.splits, plan.selection):
        assert batch["text"].nbytes < BATCH_BYTES + (1 << 20)
        seen += batch["text"].to_pylist()
    assert seen == [line.encode() for line in lines]


def test_text_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(BOM + "erste\r\n\r\nzweite\u2028Zeile".encode())
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"eins\n") + gzip.compress(b"zwei\n"))
    (tmp_path / "d.txt.zst").write_bytes(pa.compress(b"drei\n", "zstd", asbytes=True))
    files = list_files([str(tmp_path)], "text")

    def read(**how):
        plan = plan_input(files, Selection(Columns("text"), **how))
        return [
            (name.removeprefix(f"{tmp_path}/"), text.decode())
            for batch in read_batches(plan.splits, plan.selection)
            for name, text in zip(batch.ids(None).to_pylist(), batch["text"].to_pylist(), strict=True)
        ]

    assert read() == [
        ("a.txt:3", "erste"), ("a.txt:10", ""), ("a.txt:12", "zweite\u2028Zeile"),
        ("c.txt.gz:0", "eins"), ("c.txt.gz:5", "zwei"), ("d.txt.zst:0", "drei"),
    ]  # fmt: skip
    assert read(text_documents="file") == [
        ("a.txt:0", "erste\r\n\r\nzweite\u2028Zeile"), ("b.txt:0", ""),
        ("c.txt.gz:0", "eins\nzwei\n"), ("d.txt.zst:0", "drei\n"),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_compressed_file_that_is_cut_off_is_an_error(tmp_path, cut):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(bytes(range(65, 90)) * 1000)[:-cut])
    plan = plan_input(list_files([str(path)]), Columns("text"))
    with pytest.raises(DataError, match=r"a\.txt\.gz: cannot be read as text \(Truncated"):
        list(read_batches(plan.splits, plan.selection))

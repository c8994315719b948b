"""JSON Lines: an object per line; blank lines are nothing.

Lines are parsed by pyarrow, a block at a time. What it refuses is looked at line by line with Python's parser: to say which
line is wrong, and to take what is right but beyond pyarrow (lone surrogates, a key that comes twice: the last one counts).
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from shardpiece.corpus.base import Batch, ByteRange, Found, Selection, common_type, one_line, place
from shardpiece.corpus.lines import Lines, plan_lines, read_lines
from shardpiece.corpus.sources import SourceFile
from shardpiece.errors import DataError, InputError

# So much of a file, or its first line, is parsed to find out the types of its columns.
_HEAD_BYTES = 1 << 20
_MOST_FOR_PYARROW = (1 << 31) - (1 << 20)
_SPACE = b" \t\r"
_SURROGATES = re.compile("[\ud800-\udfff]")
_NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def plan(file: SourceFile, selection: Selection, needed: list[str]) -> Found:
    """The columns are those of the first megabyte (or line) of lines; the types of the needed ones are found there."""
    planned, splits = plan_lines(file, "jsonl")
    text = selection.columns.text
    lines, rows = _first_rows(splits[0]) if splits else (None, [])
    if not rows:
        return Found(planned, splits, None)
    fields = []
    for name in dict.fromkeys(name for _, row in rows for name in row):
        kind = pa.large_binary() if name == text else pa.null()
        if name != text and name in needed:
            kind, other = _type_of(name, rows)
            if other is not None and selection.bad_rows != "skip":
                line, value = other
                number = lines.data[: lines.starts[line]].count(b"\n") + 1
                raise InputError(f"line {number:,}: {name!r} holds {_kind(value)}, {kind} in the lines before it")
        fields.append(pa.field(name, kind))
    return Found(planned, splits, pa.schema(fields))


def _first_rows(split: ByteRange) -> tuple[Lines | None, list[tuple[int, dict]]]:
    """The first lines of which any is an object, and the (line, object) there are."""
    for lines in read_lines(split, _HEAD_BYTES):
        if lines.line(0).lstrip().startswith(b"["):
            raise InputError("a JSON array; JSON Lines has an object per line")
        parsed, problems = _each(lines)
        if parsed:
            return lines, parsed
        if problems:
            raise InputError(f"no JSON object in its beginning ({problems[0][1]})")
    return None, []


def _type_of(name: str, rows: list[tuple[int, dict]]) -> tuple[pa.DataType, tuple[int, Any] | None]:
    """The type of a column, and the first (line, value) that is of another one."""
    try:
        return pa.array([_clean(row.get(name)) for _, row in rows]).type, None
    except (pa.ArrowException, TypeError, OverflowError):
        pass
    kind, other = pa.null(), None
    for line, row in rows:
        try:
            kind = common_type(kind, pa.scalar(_clean(row.get(name))).type)
        except (pa.ArrowException, TypeError, OverflowError):
            other = other or (line, row[name])
    return kind, other


def read(splits: Sequence[ByteRange], selection: Selection, columns: list[str]) -> Iterator[Batch]:
    text = selection.columns.text
    kinds = {name: pa.large_binary() if name == text else selection.type_of(name) for name in columns}
    schema = pa.schema([(name, pa.string() if kind is None else kind) for name, kind in kinds.items()])
    for split in splits:
        for lines in read_lines(split):
            yield parse(lines, schema, split, selection.bad_rows)


def parse(lines: Lines, schema: pa.Schema, split: ByteRange, bad_rows: str) -> Batch:
    """The objects of some lines, as columns. Raises DataError with the line, unless ``bad_rows`` is "skip"."""
    lines = _without_blank(lines)
    data = _quickly(lines, schema)
    if data is not None:
        return Batch(split, lines.positions, data)
    parsed, problems = _each(lines)
    columns, kept = _columns(parsed, schema, problems)
    if problems and bad_rows != "skip":
        index, problem = min(problems)
        where = place(split, int(lines.positions[index]))
        raise DataError(f"{where}: {problem}. Mend the file, or leave out such lines with bad_rows: skip.")
    return Batch(split, lines.positions[kept], pa.RecordBatch.from_arrays(columns, schema=schema), len(problems))


def _without_blank(lines: Lines) -> Lines:
    blank = lines.ends == lines.starts
    if lines.data[:1] != b"{" or (np.frombuffer(lines.data, np.uint8)[lines.starts[~blank]] != ord("{")).any():
        blank = np.fromiter((not lines.line(i).strip(_SPACE) for i in range(len(lines))), np.bool_, len(lines))
    return Lines(lines.data, lines.offset, lines.starts[~blank], lines.ends[~blank]) if blank.any() else lines


def _quickly(lines: Lines, schema: pa.Schema) -> pa.RecordBatch | None:
    """None for what pyarrow does not take, or might take for other rows than the lines: it reads values wherever they
    begin. Where each line begins with { and ends with }, no value goes over a line, since nothing may stand between } and
    { inside of one; then there is one in each line when there are as many."""
    if not len(lines):
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    raw = np.frombuffer(lines.data, np.uint8)
    if (raw[lines.starts] != ord("{")).any() or (raw[lines.ends - 1] != ord("}")).any():
        return None
    if len(lines.data) > _MOST_FOR_PYARROW:
        return None
    if any(_has_fields(field.type) for field in schema):  # pyarrow drops fields that the type has not
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(lines.data),
            pj.ReadOptions(use_threads=False, block_size=len(lines.data) + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(lines) or table.schema != schema:
        return None
    try:
        table.validate(full=True)
    except pa.ArrowException:  # invalid UTF-8, which becomes U+FFFD on the other way
        return None
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=schema)


def _each(lines: Lines) -> tuple[list[tuple[int, dict]], list[tuple[int, str]]]:
    """(line, object) of those that are one, (line, problem) of the others; blank lines are neither."""
    parsed, problems = [], []
    for i in range(len(lines)):
        raw = lines.line(i).strip(_SPACE)
        if not raw:
            continue
        try:
            value = _object(raw)
        except (ValueError, RecursionError) as error:
            problems.append((i, f"not JSON ({one_line(error)})"))
            continue
        if isinstance(value, dict):
            parsed.append((i, value))
        else:
            problems.append((i, f"expected a JSON object, found {_kind(value)}"))
    return parsed, problems


def _columns(
    parsed: list[tuple[int, dict]], schema: pa.Schema, problems: list[tuple[int, str]]
) -> tuple[list[pa.Array], list[int]]:
    """The columns of the rows whose values have the types of ``schema``, and the lines of these rows; what is wrong with
    the others is added to ``problems``."""
    good: list[tuple[int, list[pa.Scalar]]] = []
    for line, row in parsed:
        values = []
        for field in schema:
            value = row.get(field.name)
            try:
                values.append(_value(value, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError):
                wanted = "text" if field.type == pa.large_binary() else field.type
                problems.append((line, f"{field.name!r} holds {_kind(value)}, not {wanted}"))
                break
        else:
            good.append((line, values))
    columns = [pa.array([values[c] for _, values in good], field.type) for c, field in enumerate(schema)]
    return columns, [line for line, _ in good]


def _value(value, kind: pa.DataType):
    if kind == pa.large_binary():
        if value is not None and not isinstance(value, str):
            raise TypeError
        return None if value is None else value.encode("utf-8", "surrogateescape")
    _check_fits(value, kind)
    return pa.scalar(_clean(value), kind).as_py()


def _check_fits(value, kind: pa.DataType) -> None:
    """Raises TypeError for what pyarrow would round, or leave fields out of."""
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise TypeError
    if isinstance(value, float) and not pa.types.is_floating(kind):
        raise TypeError
    if isinstance(value, list) and pa.types.is_list(kind):
        for item in value:
            _check_fits(item, kind.value_type)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for name, item in value.items():
            index = kind.get_field_index(name)
            if index < 0:
                raise TypeError
            _check_fits(item, kind.field(index).type)


def _has_fields(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_fields(kind.value_type))


def _object(raw: bytes):
    """The JSON value of a line. What is not Unicode in it stays such: invalid bytes as Python's surrogateescape has them,
    lone surrogates as the byte FF in the same way; what becomes of them is said elsewhere (invalid_utf8).

    Raises ValueError or RecursionError.
    """
    try:
        text, lone = raw.decode(), _SURROGATES
    except UnicodeDecodeError:
        text, lone = raw.decode("utf-8", "surrogateescape"), _NO_BYTES
    value = json.loads(text)  # NaN and Infinity too, which pyarrow takes
    return _each_text(value, lambda found: lone.sub("\udcff", found)) if "\\u" in text else value


def _each_text(value, change: Callable[[str], str]):
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return value


def _clean(value):
    """A value with U+FFFD for what is not Unicode: only the text column's is counted, or an error."""
    return _each_text(value, lambda text: text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _kind(value) -> str:
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

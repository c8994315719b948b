"""Conditions on rows, as SQL writes them: ``lang = 'en' AND score > 0.5 AND source IN ('a', 'b')``.

sqlglot parses them; what is translated to an Arrow expression is: AND, OR, NOT, parentheses, = <> < <= > >=, IN, BETWEEN,
LIKE, ILIKE, IS [NOT] NULL, TRUE and FALSE, columns (of structs too: meta.lang; "in double quotes" whatever they are called),
numbers, 'text', DATE '..', TIMESTAMP '..', LOWER, UPPER and OCTET_LENGTH. Everything else is an error that names it. A row
whose condition is NULL is left out, as in SQL.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from shardpiece.corpus.base import is_text
from shardpiece.errors import ConfigError, InputError

_COMPARISONS: dict[type, Callable] = {
    exp.EQ: eq, exp.NEQ: ne, exp.LT: lt, exp.LTE: le, exp.GT: gt, exp.GTE: ge,
}  # fmt: skip
_TEXT_FUNCTIONS: dict[type, Callable] = {exp.Lower: pc.utf8_lower, exp.Upper: pc.utf8_upper}
_TIMES = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", "UTC")}
_UNKNOWN = pa.scalar(None, pa.bool_())


@dataclass(frozen=True)
class Condition:
    """A parsed condition. ``columns``: the names of the (top-level) columns in it, in order."""

    text: str
    tree: exp.Expression
    columns: tuple[str, ...]

    def bind(self, schema: pa.Schema, partitions: dict[str, str | None] | None = None) -> pc.Expression:
        """The Arrow expression over columns of ``schema``, ``partitions`` being constants.

        Raises InputError for a column that is not there, or whose type the condition does not fit.
        """
        expression = _Binding(schema, partitions or {}).boolean(self.tree)
        try:
            schema.empty_table().filter(expression)
        except pa.ArrowException as error:
            raise InputError(f"where: {self.text!r} does not fit the columns ({_one_line(error)})") from None
        return expression

    def excludes(self, partitions: dict[str, str | None]) -> bool:
        """Whether the partition columns alone say that no row of a file meets the condition."""
        for part in self.tree.flatten() if isinstance(self.tree, exp.And) else [self.tree]:
            if set(_columns(part)) <= set(partitions):
                row = pa.table({"row": [0]})
                if not row.filter(_Binding(row.schema, partitions).boolean(part)).num_rows:
                    return True
        return False


@lru_cache(16)
def parse(text: str) -> Condition:
    """Raises ConfigError for what is not one condition, or more than is translated here."""
    try:
        trees = sqlglot.parse(text)
    except sqlglot.errors.SqlglotError as error:
        # It underlines what is wrong with terminal codes.
        raise ConfigError(f"where: {text!r} is not a condition ({_one_line(error)})") from None
    except RecursionError:
        raise ConfigError("where: the condition is nested too deep") from None
    if len(trees) != 1 or trees[0] is None:
        raise ConfigError(f"where: expected one condition, such as lang = 'en' AND score > 0.5; found {text!r}")
    [tree] = trees
    for node in tree.walk():
        # An argument that is not looked at would change the meaning.
        unknown = {name for name, value in node.args.items() if value} - _ARGUMENTS
        if unknown or not (isinstance(node, _KNOWN) or _is_octet_length(node)):
            raise ConfigError(
                f"where: {node.sql()!r} ({type(node).__name__}) is not supported in {text!r}; known are {_HELP}"
            )
    return Condition(text, tree, tuple(_columns(tree)))


_HELP = (
    "AND, OR, NOT, comparisons, IN, BETWEEN, LIKE, ILIKE, IS [NOT] NULL, LOWER, UPPER, OCTET_LENGTH, DATE and TIMESTAMP"
)
_KNOWN = (
    exp.And, exp.Or, exp.Not, exp.Paren, *_COMPARISONS, exp.In, exp.Between, exp.Like, exp.ILike, exp.Is, exp.Column,
    exp.Identifier, exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Cast, exp.DataType, *_TEXT_FUNCTIONS,
)  # fmt: skip


_ARGUMENTS = {
    "this", "expression", "expressions", "low", "high", "negate", "is_string", "quoted", "table", "db", "catalog", "to",
}  # fmt: skip


def _is_octet_length(node: exp.Expression) -> bool:
    """sqlglot has no expression of its own for it, or one, depending on its version."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() == "OCTET_LENGTH" and len(node.expressions) == 1
    return isinstance(node, exp.ByteLength)


def _columns(tree: exp.Expression) -> Iterable[str]:
    return dict.fromkeys(column.parts[0].name for column in tree.find_all(exp.Column))


@dataclass(frozen=True)
class _Value:
    """``expression`` and its type; ``constant``: a literal or partition value, which takes the type of what it is compared
    with."""

    expression: pc.Expression
    kind: pa.DataType
    constant: Any = None
    partition: bool = False


class _Binding:
    def __init__(self, schema: pa.Schema, partitions: dict[str, str | None]):
        self._schema = schema
        self._partitions = partitions

    def boolean(self, node: exp.Expression) -> pc.Expression:
        """sqlglot has NOT IN and NOT LIKE as IN and LIKE with an argument, or in a NOT."""
        expression = self._boolean(node)
        return ~expression if node.args.get("negate") else expression

    def _boolean(self, node: exp.Expression) -> pc.Expression:
        if isinstance(node, exp.Paren):
            return self.boolean(node.this)
        if isinstance(node, (exp.And, exp.Or)):
            join = and_ if isinstance(node, exp.And) else or_
            return _joined(join, [self.boolean(part) for part in node.flatten()])
        if isinstance(node, exp.Not):
            return ~self.boolean(node.this)
        if type(node) in _COMPARISONS:
            return self._compare(_COMPARISONS[type(node)], node, node.this, node.expression)
        if isinstance(node, exp.Between):
            low = self._compare(ge, node, node.this, node.args["low"])
            return low & self._compare(le, node, node.this, node.args["high"])
        if isinstance(node, exp.In):
            if not node.expressions:
                raise self._unsupported(node)
            return self._in(node)
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, (exp.Like, exp.ILike)):
            value, pattern = self._value(node.this), self._value(node.expression)
            if not is_text(value.kind) or not isinstance(pattern.constant, str) or pattern.partition:
                raise self._wrong(node, "LIKE compares a column of text with a 'pattern'")
            return pc.match_like(value.expression, pattern.constant, ignore_case=isinstance(node, exp.ILike))
        if isinstance(node, exp.Boolean):
            return pc.scalar(bool(node.this))
        value = self._value(node)
        if not pa.types.is_boolean(value.kind):
            raise self._wrong(node, f"expected a condition, found {node.sql()} of type {value.kind}")
        return value.expression

    def _compare(self, compare: Callable, node, left, right) -> pc.Expression:
        a, b = self._value(left), self._value(right)
        if pa.types.is_null(a.kind) or pa.types.is_null(b.kind):
            return pc.scalar(_UNKNOWN)
        if any(value.partition and value.constant is None for value in (a, b)):
            return pc.scalar(_UNKNOWN)
        x, y = self._as_kind_of(b, a, node), self._as_kind_of(a, b, node)
        if _differ_in_range(a.kind, b.kind):
            x, y = (one.cast(pa.float64(), safe=False) for one in (x, y))
        return compare(x, y)

    def _as_kind_of(self, other: _Value, value: _Value, node) -> pc.Expression:
        """``value`` as it is compared with ``other``: a constant takes the other one's type."""
        if value.constant is None or (other.constant is not None and not value.partition):
            if is_text(value.kind) != is_text(other.kind) and other.constant is None:
                raise self._wrong(node, f"{value.kind} is not comparable with {other.kind}")
            return value.expression
        constant, kind = value.constant, other.kind
        if value.partition and not is_text(kind):
            number = _number(constant)
            if number is None:
                raise self._wrong(node, f"the partition value {constant!r} is no number")
            return pc.scalar(number)
        if isinstance(constant, str) and pa.types.is_temporal(kind):
            try:
                return pc.scalar(pa.scalar(constant).cast(kind))
            except pa.ArrowException:
                raise self._wrong(node, f"{constant!r} is no {kind}") from None
        if isinstance(constant, str) != is_text(kind):
            raise self._wrong(node, f"{_said(other, kind)} is not comparable with {constant!r}")
        if isinstance(constant, str) and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            return pc.scalar(pa.scalar(constant.encode(), kind))
        return value.expression

    def _in(self, node: exp.In) -> pc.Expression:
        value = self._value(node.this)
        if pa.types.is_null(value.kind):
            return pc.scalar(_UNKNOWN)
        # As SQL has it, null when the value is: Arrow's is_in would say false, and NOT IN true.
        parts = [self._compare(eq, node, node.this, item) for item in node.expressions]
        return _joined(or_, parts)

    def _is(self, node: exp.Is) -> pc.Expression:
        if isinstance(node.expression, exp.Null):
            value = self._value(node.this)
            return pc.scalar(True) if pa.types.is_null(value.kind) else value.expression.is_null()
        if not isinstance(node.expression, exp.Boolean):
            raise self._unsupported(node)
        condition = self.boolean(node.this)
        return pc.coalesce(condition if node.expression.this else ~condition, pc.scalar(False))

    def _value(self, node: exp.Expression) -> _Value:
        if isinstance(node, exp.Paren):
            return self._value(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Null):
            raise self._wrong(node, "nothing equals NULL: say IS NULL or IS NOT NULL")
        if isinstance(node, exp.Boolean):
            return _Value(pc.scalar(bool(node.this)), pa.bool_())
        if isinstance(node, exp.Literal):
            constant = node.this if node.is_string else _number(node.this)
            if constant is None:
                raise self._unsupported(node)
            number = pa.scalar(constant, pa.uint64() if isinstance(constant, int) and constant >= 1 << 63 else None)
            return _Value(pc.scalar(number), number.type, constant)
        if isinstance(node, exp.Neg):
            value = self._value(node.this)
            if not isinstance(value.constant, (int, float)):
                raise self._unsupported(node)
            return _Value(pc.scalar(-value.constant), value.kind, -value.constant)
        if isinstance(node, exp.Cast):
            kind = _TIMES.get(node.to.this.name)
            if kind is None or not (isinstance(node.this, exp.Literal) and node.this.is_string):
                raise self._unsupported(node)
            try:
                return _Value(pc.scalar(pa.scalar(node.this.this).cast(kind)), kind)
            except pa.ArrowException:
                raise self._wrong(node, f"{node.this.this!r} is no {kind}") from None
        if type(node) in _TEXT_FUNCTIONS or _is_octet_length(node):
            value = self._value(node.expressions[0] if isinstance(node, exp.Anonymous) else node.this)
            if not is_text(value.kind):
                raise self._wrong(node, f"{node.sql()}: {value.kind} is not text")
            if _is_octet_length(node):
                return _Value(pc.binary_length(value.expression), pa.int32())
            return _Value(_TEXT_FUNCTIONS[type(node)](value.expression.cast(pa.large_string())), pa.large_string())
        raise self._unsupported(node)

    def _column(self, node: exp.Column) -> _Value:
        names = [part.name for part in node.parts]
        if names[0] in self._partitions:
            constant = self._partitions[names[0]]
            return _Value(pc.scalar(pa.scalar(constant, pa.string())), pa.string(), constant, True)
        kind: pa.DataType = pa.struct(list(self._schema))
        for name in names:
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                known = [*self._schema.names, *self._partitions]
                quoted = " (text stands in single quotes)" if node.parts[0].args.get("quoted") else ""
                raise InputError(f"where: no column {'.'.join(names)!r} (its columns: {', '.join(known)}){quoted}")
            kind = kind.field(name).type
        field = pc.field(*names) if len(names) > 1 else pc.field(names[0])
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            field = field.cast(kind)
        return _Value(field, kind)

    @staticmethod
    def _unsupported(node: exp.Expression) -> ConfigError:
        return ConfigError(f"where: {node.sql()!r} is not supported; known are {_HELP}")

    @staticmethod
    def _wrong(node: exp.Expression, problem: str) -> InputError:
        return InputError(f"where: {node.sql()}: {problem}")


def _differ_in_range(a: pa.DataType, b: pa.DataType) -> bool:
    """Numbers that Arrow would make of one type only where all values allow it."""
    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (a, b)):
        return False
    return pa.types.is_floating(a) != pa.types.is_floating(b) or (pa.uint64() in (a, b) and a != b)


def _joined(join: Callable, parts: list[pc.Expression]) -> pc.Expression:
    """A tree no deeper than it must be: Arrow goes through it recursively."""
    while len(parts) > 1:
        parts = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) & ~1 :]
    return parts[0]


def _number(text: str) -> int | float | None:
    if re.fullmatch(r"-?\d+", text):
        return int(text) if -(1 << 63) <= int(text) < 1 << 64 else float(text)
    return float(text) if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) else None


def _said(value: _Value, kind: pa.DataType) -> str:
    return str(kind) if value.constant is None else repr(value.constant)


def _one_line(error: Exception) -> str:
    return " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())[:300]

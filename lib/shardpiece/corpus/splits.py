"""Planning on the driver and reading on executors, whatever the files are.

A module per format says how a file is divided and gives its rows (``parquet``, ``jsonl``, ``text``, ``arrow``); what is the
same for all is here: which files are bad, columns out of paths, conditions, sampling.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from shardpiece.corpus import arrow, jsonl, parquet, text
from shardpiece.corpus.base import (
    AnySplit,
    Batch,
    BatchRange,
    ByteRange,
    Columns,
    Found,
    InputPlan,
    Selection,
    SkippedFile,
    common_type,
    is_text,
    one_line,
    place,
)
from shardpiece.corpus.keys import below, document_hash
from shardpiece.corpus.sources import SourceFile, partition_values
from shardpiece.errors import DataError, InputError

if TYPE_CHECKING:
    from shardpiece.corpus.where import Condition

_FORMATS: dict[str, ModuleType] = {"parquet": parquet, "jsonl": jsonl, "text": text, "arrow": arrow}
_NAMES = {"parquet": "Parquet", "jsonl": "JSON Lines", "text": "text", "arrow": "Arrow IPC"}
_NAMED_AT_MOST = 10
_POSITION = "\0position"


def plan_input(files: list[SourceFile], selection: Selection | Columns, bad_files: str = "error") -> InputPlan:
    """Look at every file and list the splits; columns alone select every row.

    Raises InputError naming the files that cannot be read, lack a column, or have one of the wrong type. With
    ``bad_files`` "skip" these are left out, and listed in the plan.
    """
    if isinstance(selection, Columns):
        selection = Selection(selection)
    condition = _condition(selection)
    needed = needed_columns(selection)
    with ThreadPoolExecutor(16) as pool:
        looks = list(pool.map(lambda file: _look(file, selection, needed), files))
    looks = _place_columns(looks, needed, selection)
    partitions = tuple(name for name in needed if any(name in look.partitions for look in looks))
    # A line of JSON need not have every column: what one file's beginning has others may have later.
    optional = {name for look in looks if look.file.format == "jsonl" for name in look.columns} - {
        selection.columns.text
    }
    looks = [
        look if look.problem else replace(look, problem=_wrong_columns(look, selection, optional)) for look in looks
    ]
    looks, types = _agree(looks, selection, needed)
    looks = [look if look.problem else _restrict(look, condition, types) for look in looks]
    good = [look for look in looks if not look.problem]
    skipped = [SkippedFile(look.file.path, look.file.size, look.problem) for look in looks if look.problem]
    if skipped and (bad_files != "skip" or not good):
        raise InputError(_explain(skipped, len(files), bad_files))
    resolved = replace(selection, types=types, partitions=partitions)
    return InputPlan(
        [look.found.file for look in good], [split for look in good for split in look.splits], resolved, skipped
    )


def pack_splits(splits: list[AnySplit], target_bytes: int) -> list[list[AnySplit]]:
    """Consecutive splits in groups of about ``target_bytes`` of text: a function of the splits alone."""
    groups: list[list[AnySplit]] = []
    size = 0
    for split in splits:
        if not groups or size + split.text_bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += split.text_bytes
    return groups


def read_batches(splits: Sequence[AnySplit], selection: Selection | Columns) -> Iterator[Batch]:
    """The selected documents of some splits in batches of at most 8 MB of text (or one document), in order. Where batches
    are cut depends on the file, the split and the selection alone; ``selection`` is that of the plan.

    Raises DataError for what turns out to be damaged or does not keep to its type.
    """
    if isinstance(selection, Columns):
        selection = Selection(selection)
    for (path, kind), members in groupby(splits, lambda split: (split.path, format_of_split(split))):
        values = partition_values(path)
        partitions = {name: values.get(name) for name in selection.partitions}
        columns = [name for name in needed_columns(selection) if name not in partitions]
        last = None
        try:
            for batch in select_batches(_FORMATS[kind].read(list(members), selection, columns), selection, partitions):
                if len(batch):
                    last = batch.split, int(batch.positions[-1])
                yield batch
        except (pa.ArrowException, OSError) as error:
            behind = f" behind {place(*last).removeprefix(path + ', ')}" if last else ""
            raise DataError(
                f"{path}: cannot be read as {_NAMES[kind]}{behind} ({one_line(error)}). Mend it, or leave it out of the input: what "
                f"looked whole when the job was planned is not skipped."
            ) from None


def format_of_split(split: AnySplit) -> str:
    if isinstance(split, ByteRange):
        return "jsonl" if split.format == "jsonl" else "text"
    return "arrow" if isinstance(split, BatchRange) else "parquet"


def _condition(selection: Selection) -> "Condition | None":
    if selection.where is None:
        return None
    from shardpiece.corpus import where  # a quarter of a second in every worker, for those who need it

    return where.parse(selection.where)


def needed_columns(selection: Selection) -> list[str]:
    """All columns that are read, those that only the condition looks at last."""
    condition = _condition(selection)
    return list(dict.fromkeys([*selection.columns.names(), *(condition.columns if condition else ())]))


def select_batches(
    batches: Iterator[Batch], selection: Selection, partitions: dict[str, str | None]
) -> Iterator[Batch]:
    """The documents that meet the condition and are in the sample, with their columns as the plan has them."""
    condition, bound = _condition(selection), None
    bad = filtered = 0
    last = None
    for batch in batches:
        kept = batch
        if condition is not None:
            if bound is None or bound[0] != batch.data.schema:
                bound = batch.data.schema, condition.bind(batch.data.schema, partitions)
            kept = _filtered(kept, bound[1])
        kept = replace(kept, data=_with_columns(kept.data, selection, partitions))
        if selection.sample is not None and len(kept):
            ids = kept.ids(selection.columns.id, "sample")
            chosen = below(document_hash(selection.sample.seed, ids, "sample"), selection.sample.fraction)
            kept = replace(kept, positions=kept.positions[chosen], data=kept.data.filter(pa.array(chosen)))
        bad += batch.bad_rows
        filtered += len(batch) - len(kept)
        last = kept
        if len(kept):
            yield replace(kept, bad_rows=bad, filtered_rows=filtered)
            bad = filtered = 0
    if bad or filtered:
        yield replace(last, bad_rows=bad, filtered_rows=filtered)


def _filtered(batch: Batch, expression) -> Batch:
    data = batch.data.append_column(_POSITION, pa.array(batch.positions, pa.int64())).filter(expression)
    positions = data[_POSITION].to_numpy()
    return replace(batch, positions=positions, data=data.select(batch.data.schema.names))


def _with_columns(data: pa.RecordBatch, selection: Selection, partitions: dict[str, str | None]) -> pa.RecordBatch:
    """The selected columns: those of the paths added, metadata in the plan's types."""
    columns = selection.columns
    arrays = []
    for name in columns.names():
        if name in partitions:
            array = pa.repeat(pa.scalar(partitions[name], pa.string()), data.num_rows)
        else:
            array = data[name]
        wanted = selection.type_of(name) if name in columns.metadata else None
        if wanted is not None and array.type != wanted:
            array = array.cast(wanted)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=columns.names())


@dataclass(frozen=True)
class _Look:
    """What was seen of a file: either what is in it, or what is wrong with it. ``partitions``: columns of its path."""

    file: SourceFile
    found: Found | None = None
    problem: str = ""
    partitions: dict[str, str | None] | None = None

    @property
    def columns(self) -> list[str]:
        return self.found.schema.names if self.found and self.found.schema is not None else []

    @property
    def splits(self) -> list[AnySplit]:
        return self.found.splits if self.found else []


def _look(file: SourceFile, selection: Selection, needed: list[str]) -> _Look:
    values = partition_values(file.path)
    try:
        return _Look(file, _FORMATS[file.format].plan(file, selection, needed), partitions=values)
    except InputError as error:
        return _Look(file, problem=str(error), partitions=values)
    except (pa.ArrowException, OSError) as error:
        why = one_line(error)
        return _Look(file, problem=f"not a readable {_NAMES[file.format]} file ({why})", partitions=values)


def _place_columns(looks: list[_Look], needed: list[str], selection: Selection) -> list[_Look]:
    """Leave of the path's columns those that are needed and that no file has itself."""
    in_files = {selection.columns.text}.union(*(look.columns for look in looks))
    wanted = [name for name in needed if name not in in_files]
    return [
        replace(look, partitions={name: look.partitions[name] for name in wanted if name in look.partitions})
        for look in looks
    ]


def _wrong_columns(look: _Look, selection: Selection, optional: set[str]) -> str:
    """What is wrong with the columns of a file, "" when nothing is. Lines of JSON need not have those in ``optional``."""
    schema = look.found.schema
    if schema is None:
        return ""
    elsewhere = {*look.partitions, *(optional if look.file.format == "jsonl" else ())} - {*schema.names}
    return wrong_columns(schema, selection.columns, elsewhere, [*look.partitions])


def wrong_columns(
    schema: pa.Schema, columns: Columns, elsewhere: Collection[str] = (), partitions: Sequence[str] = ()
) -> str:
    """What is wrong with a schema, "" when it has the columns, of types that can be read. Those that are ``elsewhere`` need
    not be in it; ``partitions`` are named with its own."""
    roles = [("text", columns.text), ("id", columns.id), ("group", columns.group)]
    roles += [("metadata", name) for name in columns.metadata]
    for role, name in roles:
        if name is None or name in elsewhere:
            continue
        if name not in schema.names:
            known = ", ".join([*schema.names, *partitions]) or "none"
            choose = "Set encode.metadata_columns" if role == "metadata" else f"Choose one with --{role}-column"
            return f"no column {name!r} (its columns: {known}). {choose}."
        if schema.names.count(name) > 1:
            return f"several columns are named {name!r}"
        kind = schema.field(name).type
        if role == "text" and not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
            return f"column {name!r} holds {kind}, not text (string or binary)"
        if role in ("id", "group") and pa.types.is_nested(kind):
            return f"column {name!r} holds {kind}; a {role} must be a plain value"
    return ""


def _agree(looks: list[_Look], selection: Selection, needed: list[str]) -> tuple[list[_Look], pa.Schema]:
    """The types that metadata columns have in all files, and needed columns in those that do not state theirs (JSON Lines).
    A file whose type does not go with those of the files before it is wrong."""
    metadata = selection.columns.metadata
    types: dict[str, pa.DataType] = {}
    agreed = []
    for look in looks:
        problem = look.problem
        own = dict(types)
        if not problem and look.found.schema is not None:
            for name in needed:
                untyped = look.file.format == "jsonl" and name != selection.columns.text
                if name in look.partitions:
                    if name in metadata:
                        own[name] = pa.string()
                elif (untyped or name in metadata) and name in look.found.schema.names:
                    kind = look.found.schema.field(name).type
                    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                    try:
                        own[name] = common_type(own.get(name, pa.null()), kind)
                    except pa.ArrowException:
                        problem = f"column {name!r} holds {kind}, {own[name]} in the files before it"
                        break
        if not problem:
            types = own
        agreed.append(replace(look, problem=problem))
    for name in metadata:
        if pa.types.is_null(types.get(name, pa.null())):
            types[name] = pa.string()
    return agreed, pa.schema([(name, types[name]) for name in needed if name in types])


def _restrict(look: _Look, condition: "Condition | None", types: pa.Schema) -> _Look:
    """The splits that may have rows that meet the condition."""
    if condition is None or look.found.schema is None:
        return look
    schema = look.found.schema
    if look.file.format == "jsonl":
        text = [field for field in schema if field.name not in types.names]
        schema = pa.schema([*text, *(field for field in types if field.name not in look.partitions)])
    try:
        expression = condition.bind(schema, look.partitions)
        splits = [] if condition.excludes(look.partitions) else look.found.splits
        if look.file.format == "parquet" and splits:
            splits = parquet.prune(look.file.path, splits, expression)
    except InputError as error:
        return replace(look, problem=str(error))
    except (pa.ArrowException, OSError) as error:
        return replace(look, problem=f"not a readable Parquet file ({one_line(error)})")
    return replace(look, found=replace(look.found, splits=splits))


def _explain(skipped: list[SkippedFile], files: int, bad_files: str) -> str:
    if len(skipped) == 1 and bad_files != "skip":
        return f"{skipped[0].path}: {skipped[0].problem}"
    if len(skipped) == files and len({file.problem for file in skipped}) == 1:
        return f"{skipped[0].path}: {skipped[0].problem} So it is with all {files:,} input files."
    said = "; ".join(f"{file.path}: {file.problem}" for file in skipped[:_NAMED_AT_MOST])
    more = f"; and {len(skipped) - _NAMED_AT_MOST:,} more" if len(skipped) > _NAMED_AT_MOST else ""
    if len(skipped) == files:
        return f"none of the {files:,} input files can be used: {said}{more}"
    return (
        f"{len(skipped):,} of {files:,} input files cannot be used: {said}{more}. Mend them, take them out of the input, or "
        f"leave them out with bad_files: skip."
    )

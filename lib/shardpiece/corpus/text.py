"""Text files: a document per line, or per file."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from shardpiece.corpus.base import Batch, ByteRange, Found, Selection
from shardpiece.corpus.lines import plan_lines, read_document, read_lines
from shardpiece.corpus.sources import SourceFile


def plan(file: SourceFile, selection: Selection, needed: list[str]) -> Found:
    """The one column of a text file has the name of the text column."""
    whole = selection.text_documents == "file"
    planned, splits = plan_lines(file, "document" if whole else "text")
    if whole:
        size = sum(split.text_bytes for split in splits)
        # An empty file is an empty document.
        compression = splits[0].compression if splits else ""
        splits = [ByteRange(file.path, 0, file.size, "document", compression, size)]
    return Found(planned, splits, pa.schema([(selection.columns.text, pa.large_binary())]))


def read(splits: Sequence[ByteRange], selection: Selection, columns: list[str]) -> Iterator[Batch]:
    names = [selection.columns.text]
    for split in splits:
        if split.format == "document":
            text = pa.array([read_document(split)], pa.large_binary())
            yield Batch(split, np.zeros(1, np.int64), pa.RecordBatch.from_arrays([text], names=names))
            continue
        for lines in read_lines(split):
            data = pa.RecordBatch.from_arrays([lines.texts()], names=names)
            yield Batch(split, lines.positions, data)

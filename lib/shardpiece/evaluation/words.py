"""What a word is when tokenizers are compared: the same for all of them, whatever they cut text into."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.tokenizer import Tokenizer

LINE_END = "\n"
TOP = 1_000
"""The most frequent words of a group that are looked at one by one."""
KEPT = 4 * TOP
"""Words of a group that parts of a count keep: what is among the most frequent in all is far up in its parts."""
_BATCH = 1 << 16


def word_engine() -> TextEngine:
    """Maximal runs of ``\\w``: letters, marks, decimal digits, connecting punctuation and joiners."""
    return TextEngine([{"type": "split", "pattern": r"\w+", "behavior": "removed", "invert": True}])


def tokens_of_words(tokenizer: Tokenizer, words: pa.Array) -> np.ndarray:
    """int64 [n]: how many tokens each word (binary) becomes that stands after a line end and a space, as between others in
    a text: the tokens of the line end alone do not count. The same surroundings for every tokenizer, those too that put a
    space before a text or drop white space."""
    before = len(tokenizer.encode(LINE_END))
    found = np.empty(len(words), np.int64)
    for first in range(0, len(words), _BATCH):
        part = words.slice(first, _BATCH).cast(pa.large_binary())
        texts = pc.binary_join_element_wise(
            pa.scalar(LINE_END.encode() + b" ", pa.large_binary()), part, pa.scalar(b"", pa.large_binary())
        )
        _, offsets = tokenizer.encode_documents(Documents.from_arrow(texts))
        found[first : first + len(part)] = np.maximum(0, np.diff(offsets) - before)
    return found


WORDS = pa.schema([("word", pa.binary()), ("group", pa.string()), ("count", pa.int64())])


def most_frequent(table: pa.Table, most: int) -> pa.Table:
    """The ``most`` rows of each group with the highest counts, of equals the first words; sorted by group, count, word."""
    table = table.group_by(["word", "group"], use_threads=False).aggregate([("count", "sum")])
    table = table.rename_columns(["word", "group", "count"])
    table = table.sort_by([("group", "ascending"), ("count", "descending"), ("word", "ascending")])
    if not len(table):
        return table.cast(WORDS)
    codes = pc.rank(table["group"], tiebreaker="min").to_numpy()
    place = np.arange(1, len(table) + 1) - codes
    return table.filter(pa.array(place < most)).cast(WORDS)

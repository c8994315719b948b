"""One pass over text, or over a word table, for all tokenizers: fills the tallies."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

from shardpiece.errors import ShardpieceError
from shardpiece.evaluation.tally import SampleText, TextTally, TokenTally, check_groups
from shardpiece.evaluation.vocabulary import said_texts
from shardpiece.evaluation.words import tokens_of_words, word_engine
from shardpiece.text.documents import Documents, Words
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.words.counter import WordCounter
from shardpiece.words.table import WordTable

SAMPLE_CHARACTERS = 400
_SAMPLE_LEAST_BYTES = 80
_MOST_DECODED = 32 << 10
_FIRST_DECODED = 64
_EVERY_DECODED = 16
_WORDS_AT_ONCE = 1 << 16


class Measurer:
    """Measures texts with all ``tokenizers``; its tables of words and of tokens take about ``memory`` bytes. Words of more than
    64 KiB are no words. ``pieces``: of each
    tokenizer, where they are at hand."""

    def __init__(
        self, tokenizers: Sequence[Tokenizer], memory: int = 512 << 20, pieces: Sequence["Pieces | None"] | None = None
    ):
        self.text = TextTally()
        room = memory // 2 // max(1, len(tokenizers))
        self.tokens = [TokenTally(tokenizer.vocab_size, dense_bytes=room) for tokenizer in tokenizers]
        self._tokenizers = list(tokenizers)
        self._decoding = pieces or [Pieces.of(tokenizer) for tokenizer in tokenizers]
        self._engine = word_engine()
        self._counter = WordCounter(memory // 4, 65_535)

    def add(
        self,
        documents: Documents,
        groups: list[str],
        ids: Sequence[str],
        keys: np.ndarray | None = None,
        positions: np.ndarray | None = None,
    ) -> None:
        """Some documents, best about a megabyte of them. ``groups`` and ``ids``: of each one; ``keys``: uint64, see
        ``parallel.key_hashes``; ``positions``: int64, where each is in its file, which decides those that are decoded.
        Raises DocumentError for one that cannot be cut in reasonable time, InputError for too many groups."""
        if not len(documents):
            return
        names, codes = _numbered(groups)
        self._add_text(documents, names, codes, ids)
        sizes = np.diff(documents.offsets)
        if keys is not None:
            self.text.parallel.add(names, codes, keys, sizes)
        for batch in self._counter.add(self._engine.split(documents), groups):
            self._add_words(batch)
        for tokenizer, tally, pieces in zip(self._tokenizers, self.tokens, self._decoding, strict=True):
            tokens, offsets = tokenizer.encode_documents(documents)
            tally.add_tokens(names, codes, tokens, offsets)
            if keys is not None:
                tally.parallel.add(names, codes, keys, np.diff(offsets))
            if pieces is not None:
                same = pieces.same(documents, tokens, offsets)
                tried = np.ones(len(documents), bool)
                failed = np.zeros(len(documents), bool)
            else:
                rows = np.arange(len(documents)) if positions is None else positions
                tried = ((rows < _FIRST_DECODED) | (rows % _EVERY_DECODED == 0)) & (sizes <= _MOST_DECODED)
                same, failed = _decoded_alike(tokenizer, documents, tokens, offsets, tried)
            for code, group in enumerate(names):
                own = codes == code
                tally.add(
                    group,
                    tried=int((tried & own).sum()),
                    round_trips=int((same & own).sum()),
                    failed=int((failed & own).sum()),
                )

    def finish(self) -> tuple[TextTally, list[TokenTally]]:
        for batch in self._counter.drain():
            self._add_words(batch)
        return self.text, self.tokens

    def _add_text(self, documents: Documents, names: list[str], codes: np.ndarray, ids: Sequence[str]) -> None:
        starts, sizes = documents.offsets[:-1] - documents.offsets[0], np.diff(documents.offsets)
        raw = documents.data[documents.offsets[0] : documents.offsets[-1]]
        characters = np.append(0, np.cumsum((raw & 0xC0) != 0x80))
        lengths = characters[starts + sizes] - characters[starts]
        for code, group in enumerate(names):
            own = codes == code
            self.text.add(
                group, documents=int(own.sum()), bytes=int(sizes[own].sum()), characters=int(lengths[own].sum())
            )
        check_groups(len(self.text.sums))
        for d in np.flatnonzero(sizes >= _SAMPLE_LEAST_BYTES).tolist():
            name = ids[d] or ""
            one = xxhash.xxh3_64_intdigest(raw[starts[d] : starts[d] + sizes[d]], seed=len(name))
            known = self.text.samples.get(names[codes[d]])
            if known is None or (one, name) < (known.hash, known.id):
                # Some characters more than are shown, and bytes enough for them.
                text = raw[starts[d] : starts[d] + min(sizes[d], 4 * SAMPLE_CHARACTERS + 4)].tobytes()
                text = text.decode(errors="ignore")[:SAMPLE_CHARACTERS]
                self.text.add_sample(names[codes[d]], SampleText(one, name, text, bool(len(text) < lengths[d])))

    def _add_words(self, batch: pa.RecordBatch) -> None:
        """Distinct words and their counts."""
        self.text.add_words(pa.Table.from_batches([batch]))
        names, codes = _numbered(batch["group"].to_pylist())
        counts = batch["count"].to_numpy()
        for code, n in enumerate(_sums(codes, counts, len(names))):
            self.text.add(names[code], words=n)
        for tokenizer, tally in zip(self._tokenizers, self.tokens, strict=True):
            continued = tokens_of_words(tokenizer, batch["word"]) > 1
            for code, n in enumerate(_sums(codes, counts * continued, len(names))):
                tally.add(names[code], continued_words=n)


class Pieces:
    """What tokens say, where decoding puts their bytes together."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Pieces | None":
        return cls(tokenizer) if tokenizer.decodes_by_pieces else None

    def __init__(self, tokenizer: Tokenizer):
        pieces = said_texts(tokenizer)
        self._lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._data = np.frombuffer(b"".join(pieces), np.uint8)

    def same(self, documents: Documents, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """bool [documents]: whether the tokens of each one say it, byte for byte."""
        lengths = self._lengths[tokens]
        ends = np.append(0, np.cumsum(lengths))
        same = ends[offsets[1:]] - ends[offsets[:-1]] == np.diff(documents.offsets)
        if not same.all():
            keep = np.repeat(same, np.diff(offsets))
            tokens, lengths = tokens[keep], lengths[keep]
            ends = np.append(0, np.cumsum(lengths))
        said = self._data[np.repeat(self._starts[tokens] - ends[:-1], lengths) + np.arange(ends[-1])]
        raw = documents.data[documents.offsets[0] : documents.offsets[-1]]
        sizes = np.diff(documents.offsets)
        if not same.all():
            raw = raw[np.repeat(same, sizes)]
        wrong = said != raw
        if wrong.any():
            owners = np.repeat(np.flatnonzero(same), sizes[same])
            same[owners[wrong]] = False
        return same


def _decoded_alike(
    tokenizer: Tokenizer, documents: Documents, tokens: np.ndarray, offsets: np.ndarray, tried: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(documents that decode to themselves, documents that do not decode at all), of those tried."""
    same, failed = np.zeros(len(documents), bool), np.zeros(len(documents), bool)
    for d in np.flatnonzero(tried).tolist():
        try:
            said = tokenizer.decode_bytes(tokens[offsets[d] : offsets[d + 1]])
        except (ShardpieceError, UnicodeError):
            failed[d] = True
            continue
        same[d] = said == documents.data[documents.offsets[d] : documents.offsets[d + 1]].tobytes()
    return same, failed


def _numbered(names: list[str]) -> tuple[list[str], np.ndarray]:
    """(the different names, the number of each one's name int64)."""
    numbers: dict[str, int] = {}
    codes = np.fromiter((numbers.setdefault(name, len(numbers)) for name in names), np.int64, len(names))
    return list(numbers), codes


def _sums(codes: np.ndarray, values: np.ndarray, n: int) -> list[int]:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, codes, values)
    return sums.tolist()


# --- word tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableEncoder:
    """How a tokenizer cuts the words of a table. ``exact``: they are the words of its own text engine, and its model gets
    them as they are; else each is encoded like a text of its own, so that what its engine would join across words is not."""

    tokenizer: Tokenizer
    exact: bool
    replace: bytes

    @classmethod
    def of(cls, tokenizer: Tokenizer, words: WordTable) -> "TableEncoder":
        exact = words.engine is not None and words.engine.fingerprint == tokenizer.engine.fingerprint
        return cls(tokenizer, exact, space_mark(words))

    def encode(self, words: Documents) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, offsets) with a document for each word."""
        if self.exact:
            ends = words.offsets[1:]
            each = Words(words.data, int(words.offsets[0]), ends, np.arange(1, len(ends) + 1))
            return self.tokenizer.encoder.encode(each)
        texts = [
            (b"" if self.tokenizer.decodes_by_pieces or raw[:1] == b"\n" else b"\n") + raw
            for raw in plain_words(words, self.replace)
        ]
        tokens, offsets = self.tokenizer.encode_documents(Documents.from_arrow(pa.array(texts, pa.large_binary())))
        before = np.array(self.tokenizer.encode("\n"), np.int32)
        if self.tokenizer.decodes_by_pieces or not len(before):
            return tokens, offsets
        # The line end's tokens do not count where they come first, as they do unless the word goes on with them.
        lengths = np.diff(offsets)
        added = np.array(
            [
                text[:1] == b"\n" and text != raw
                for text, raw in zip(texts, plain_words(words, self.replace), strict=True)
            ]
        )
        starts = offsets[:-1]
        leads = added & (lengths >= len(before))
        for n, i in enumerate(before.tolist()):
            leads[leads] = tokens[starts[leads] + n] == i
        drop = np.zeros(len(tokens), bool)
        for n in range(len(before)):
            drop[starts[leads] + n] = True
        return tokens[~drop], np.append(0, np.cumsum(lengths - leads * len(before)))


def space_mark(words: WordTable) -> bytes:
    """What stands for a space in the table's words, b"" for a space."""
    if words.engine is None:
        return b""
    for step in words.engine.pretokenizer.steps:
        if step.kind == "metaspace":
            return step.replacement.encode()
    return b""


def plain_words(words: Documents, mark: bytes) -> Iterator[bytes]:
    raw, borders = words.data.tobytes(), words.offsets.tolist()
    for first, last in pairwise(borders):
        word = raw[first:last]
        yield word.replace(mark, b" ") if mark else word


class TableMeasurer:
    """Measures the words of a table, each as often as it was counted, with all ``tokenizers``. There are no documents: what
    is per document, round trips and premiums stay open."""

    def __init__(self, tokenizers: Sequence[Tokenizer], stopped: Callable[[], bool] = bool):
        self.text = TextTally()
        self.tokens = [TokenTally(tokenizer.vocab_size) for tokenizer in tokenizers]
        self.exact = [False] * len(tokenizers)
        self._tokenizers = list(tokenizers)
        self._engine = word_engine()

    def add(self, table: WordTable) -> None:
        """A table, or a part of one."""
        encoders = [TableEncoder.of(tokenizer, table) for tokenizer in self._tokenizers]
        self.exact = [encoder.exact for encoder in encoders]
        mark = space_mark(table)
        for batch in table.table.to_batches(_WORDS_AT_ONCE):
            words = Documents.raw(batch["word"].cast(pa.large_binary()))
            counts = batch["count"].to_numpy(zero_copy_only=False)
            names, codes = _numbered([group or "" for group in batch["group"].to_pylist()])
            self._add_text(words, counts, names, codes, mark)
            for encoder, tally in zip(encoders, self.tokens, strict=True):
                tokens, offsets = encoder.encode(words)
                tally.add_tokens(names, codes, tokens, offsets, counts)

    def finish(self) -> tuple[TextTally, list[TokenTally]]:
        return self.text, self.tokens

    def _add_text(self, words: Documents, counts: np.ndarray, names: list[str], codes: np.ndarray, mark: bytes) -> None:
        texts = Documents.from_arrow(pa.array(list(plain_words(words, mark)), pa.large_binary()))
        sizes = np.diff(texts.offsets)
        characters = np.append(0, np.cumsum((texts.data[: texts.offsets[-1]] & 0xC0) != 0x80))
        lengths = characters[texts.offsets[1:]] - characters[texts.offsets[:-1]]
        for code, (size, length) in enumerate(
            zip(_sums(codes, sizes * counts, len(names)), _sums(codes, lengths * counts, len(names)), strict=True)
        ):
            self.text.add(names[code], bytes=size, characters=length)
        check_groups(len(self.text.sums))
        found = self._engine.split(texts)
        per_text = np.diff(np.append(0, found.document_ends))
        times, owner = np.repeat(counts, per_text), np.repeat(codes, per_text)
        offsets = np.append(found.start, found.ends)
        parts = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            len(found.ends),
            [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(found.data))],
        )
        groups = pa.DictionaryArray.from_arrays(pa.array(owner.astype(np.int32)), pa.array(names, pa.string()))
        counted = pa.table(
            {"word": parts.cast(pa.binary()), "group": groups.cast(pa.string()), "count": pa.array(times)}
        )
        counted = counted.group_by(["word", "group"], use_threads=False).aggregate([("count", "sum")])
        counted = counted.rename_columns(["word", "group", "count"])
        if not len(counted):
            return
        self.text.add_words(counted)
        names, codes = _numbered(counted["group"].to_pylist())
        counts = counted["count"].to_numpy()
        for code, n in enumerate(_sums(codes, counts, len(names))):
            self.text.add(names[code], words=n)
        one_word = pa.chunked_array(counted["word"]).combine_chunks()
        for tokenizer, tally in zip(self._tokenizers, self.tokens, strict=True):
            continued = tokens_of_words(tokenizer, one_word) > 1
            for code, n in enumerate(_sums(codes, counts * continued, len(names))):
                tally.add(names[code], continued_words=n)

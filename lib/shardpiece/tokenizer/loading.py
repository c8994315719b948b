"""Any published tokenizer from its file, or from the directory it lies in: what it is is found by content, then by name.

What cannot be read exactly is a FormatError that names the part: nothing is guessed.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardpiece import storage
from shardpiece.errors import ConfigError, FormatError, ShardpieceError, one_line
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats import companions, gpt2_files, subword_nmt, tekken, tiktoken, wordpiece_vocab
from shardpiece.tokenizer.tokenizer import Tokenizer

FORMATS = ("shardpiece", "huggingface", "tekken", "tiktoken", "sentencepiece", "gpt2", "wordpiece", "subword-nmt")
MAX_BYTES = 1 << 30
_STARTED = "_started.json"
# In a directory, the first of these that there is.
_NAMES = (
    r"tokenizer\.json",
    r"tekken.*\.json",
    r".+\.tiktoken",
    r".+\.model",
    r"vocab\.json|encoder\.json",
    r"vocab\.txt",
    r"(.+\.)?(codes|bpe)(\..+)?|(bpe)?codes(\..+)?",
)


@dataclass(frozen=True)
class Source:
    """A file that was read, and what may lie beside it."""

    path: str
    raw: bytes

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    def neighbour(self, name: str) -> str:
        directory = self.path.rpartition("/")[0]
        return storage.join(directory, name) if directory or self.path.startswith("/") else name

    def beside(self, name: str) -> bytes | None:
        """The content of a file in the same directory, None where there is none."""
        path = self.neighbour(name)
        return read_file(path) if storage.exists(path) else None


def load(
    path: str | os.PathLike,
    pretokenizer=None,
    special_tokens=None,
    *,
    lowercase: bool | None = None,
    format: str | None = None,
) -> Tokenizer:
    """The tokenizer in ``path``, a file or a directory, local or any fsspec URL: an artifact of shardpiece, Hugging Face's
    tokenizer.json, tiktoken ranks, Mistral's tekken.json, SentencePiece's .model, vocab.json with merges.txt, BERT's
    vocab.txt, or subword-nmt's codes. Of several in a directory the first one in this order counts (an artifact,
    tokenizer.json, tekken, .tiktoken, .model, vocab.json, vocab.txt, codes); two of one kind are an error.

    For files that do not hold them: ``pretokenizer``, a name or pattern for tiktoken ranks of no published vocabulary, and for
    vocab.json; ``special_tokens``, ids by text (or texts, or the name of a published vocabulary) for the same two;
    ``lowercase`` for vocab.txt. ``format``: one of FORMATS, where the content is that of several.

    Raises FormatError naming the file and what is wrong with it, or cannot be read exactly; ConfigError for settings that the
    format has no use for.
    """
    path = os.fspath(path)
    if not path.strip():
        raise ConfigError("a tokenizer has a path, and this one is empty")
    if format is not None and format not in FORMATS:
        raise ConfigError(f"format {format!r} is not one of {', '.join(FORMATS)}")
    path = _file_in(storage.absolute(path), format)
    given = {"pretokenizer": pretokenizer, "special_tokens": special_tokens, "lowercase": lowercase}
    given = {name: value for name, value in given.items() if value is not None}
    if path.rsplit("/", 1)[-1] == artifact.METADATA_FILE:
        _check_given(given, "shardpiece", path)
        return artifact.load(path.rpartition("/")[0])
    source = Source(path, read_file(path))
    kind = format or detect(source)
    _check_given(given, kind, path)
    try:
        tokenizer = _READERS[kind](source, **given)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, ShardpieceError):
            raise
        raise FormatError(f"{path}: damaged, or not {kind} ({one_line(error)})") from None
    origin = {"format": kind, "name": source.name, "checksum": storage.checksum_bytes(source.raw)}
    tokenizer.provenance.setdefault("read_from", origin)
    return tokenizer


def read_file(path: str) -> bytes:
    """Raises FormatError for a file that is absent, unreadable, or too large to be a tokenizer."""
    try:
        fs, inner = storage.filesystem(path)
        size = fs.size(inner)
        if size is not None and size > MAX_BYTES:
            raise FormatError(f"{path}: {size:,} bytes are too many for a tokenizer (at most {MAX_BYTES:,})")
        return fs.cat_file(inner)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None


def _file_in(path: str, format: str | None) -> str:
    """The file to read: ``path``, or what a directory has. Raises FormatError when that has none, or several that are
    tokenizers alike."""
    if not storage.is_directory(path):
        name, directory = path.rsplit("/", 1)[-1], path.rpartition("/")[0]
        own = storage.join(directory, artifact.METADATA_FILE) if directory else artifact.METADATA_FILE
        # The tokenizer.json of an artifact is read with what lies beside it.
        return (
            own if name == artifact.TOKENIZER_FILE and format in (None, "shardpiece") and storage.exists(own) else path
        )
    names = storage.list_names(path)
    if artifact.METADATA_FILE in names and format in (None, "shardpiece"):
        return storage.join(path, artifact.METADATA_FILE)
    if _STARTED not in names and format != "shardpiece":
        for pattern in _NAMES:
            found = [name for name in names if re.fullmatch(pattern, name)]
            if format is not None:
                found = [name for name in found if _has_format(storage.join(path, name), format)]
            if len(found) > 1:
                raise FormatError(f"{path}: holds several tokenizers, name one: {', '.join(found)}")
            if found:
                return storage.join(path, found[0])
    artifact.read_metadata(path)  # says what is missing
    raise FormatError(f"{path}: no tokenizer here of format {format}")


def candidates(names: Sequence[str]) -> list[str]:
    """Of the names of a directory those that ``load`` would take for a tokenizer, in its order."""
    own = [name for name in names if name == artifact.METADATA_FILE]
    return own + [name for pattern in _NAMES for name in names if re.fullmatch(pattern, name)]


def _has_format(path: str, format: str) -> bool:
    try:
        return detect(Source(path, read_file(path))) == format
    except FormatError:
        return False


def detect(source: Source) -> str:
    """Which of FORMATS the content is. Raises FormatError for what is none of them, or may be several."""
    raw, path = source.raw, source.path
    if not raw.strip():
        raise FormatError(f"{path}: empty")
    if raw.lstrip()[:1] == b"{":
        return _detect_json(source)
    if raw[:1] == b"\n" and raw[2:3] == b"\n":
        return "sentencepiece"  # field 1 of the message, and field 1 of the first piece in it
    if tiktoken.is_ranks(raw):
        return "tiktoken"
    if wordpiece_vocab.is_vocabulary(raw):
        return "wordpiece"
    if raw.startswith(b"#version") or subword_nmt.is_codes(raw):
        return _detect_merges(source)
    raise FormatError(
        f"{path}: not a tokenizer in a format that is known: a directory of shardpiece, tokenizer.json, tiktoken ranks, "
        f"tekken.json, a SentencePiece model, vocab.json with merges.txt, a vocab.txt with [UNK], or subword-nmt's codes"
    )


def _detect_json(source: Source) -> str:
    if re.match(rb'\s*\{\s*"version"\s*:\s*"[^"]*"\s*,\s*"truncation"', source.raw):
        return "huggingface"  # without reading megabytes twice
    try:
        content = json.loads(source.raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source.path}: not readable as JSON ({error})") from None
    if tekken.is_tekken(content):
        return "tekken"
    if isinstance(content.get("model"), dict):
        return "huggingface"
    if gpt2_files.is_vocabulary(content):
        return "gpt2"
    raise FormatError(
        f"{source.path}: JSON, but neither a tokenizer.json (no model), nor tekken (no config with a pattern), nor a "
        f"vocabulary (ids by text)"
    )


def _detect_merges(source: Source) -> str:
    """merges.txt and subword-nmt's codes have the same header."""
    if any(merges == source.name or storage.exists(source.neighbour(vocab)) for vocab, merges in gpt2_files.NAMES):
        return "gpt2"
    text = source.raw.decode("utf-8", "replace")
    byte_level = not re.search("[^\\x00-\\x7f\\xa1-\\u0143\\s]", text) and re.search("[\\u0122-\\u0142]", text)
    if subword_nmt.END_OF_WORD in text and not byte_level:
        return "subword-nmt"
    raise FormatError(
        f"{source.path}: merges, but not said whether of GPT-2's form (then vocab.json lies beside it) or subword-nmt's "
        f"(with {subword_nmt.END_OF_WORD}, of characters and not of bytes): give the format"
    )


# --- readers by format ------------------------------------------------------------------------------------------------

_TAKES = {"tiktoken": ("pretokenizer", "special_tokens"), "gpt2": ("pretokenizer", "special_tokens"),
          "wordpiece": ("lowercase",)}  # fmt: skip


def _check_given(given: dict, kind: str, path: str) -> None:
    for name in given:
        if name not in _TAKES.get(kind, ()):
            takers = [other for other, names in _TAKES.items() if name in names]
            raise ConfigError(
                f"{path}: {name} was given, which is for {', '.join(takers)} alone: a file of format {kind} says itself what it has"
            )


def _huggingface(source: Source) -> Tokenizer:
    from shardpiece.tokenizer.formats.huggingface_read import read_tokenizer_json

    return read_tokenizer_json(source.raw, source.path)


def _sentencepiece(source: Source) -> Tokenizer:
    from shardpiece.tokenizer.formats import sentencepiece_tokenizer

    return sentencepiece_tokenizer.from_bytes(source.raw, source.path)


def _gpt2(source: Source, pretokenizer=None, special_tokens=None) -> Tokenizer:
    """From either of the two files."""
    for vocab, merges in gpt2_files.NAMES:
        other = {vocab: merges, merges: vocab}.get(source.name)
        if other is None:
            continue
        found = source.beside(other)
        if found is None:
            raise FormatError(f"{source.path}: {other}, which belongs to it, is not beside it")
        both = (source.raw, found) if source.name == vocab else (found, source.raw)
        config = source.beside(companions.CONFIG_FILE)
        return gpt2_files.read_files(*both, source.neighbour(vocab), pretokenizer, special_tokens, config)
    known = " or ".join(f"{vocab} and {merges}" for vocab, merges in gpt2_files.NAMES)
    raise FormatError(f"{source.path}: a vocabulary has its merges beside it when the two are named {known}")


_READERS: dict[str, Callable[..., Tokenizer]] = {
    "shardpiece": lambda source: artifact.load(source.path),
    "huggingface": _huggingface,
    "tekken": lambda source: tekken.from_json(json.loads(source.raw), source.path),
    "tiktoken": lambda source, **given: tiktoken.read_ranks(source.raw, source.path, **given),
    "sentencepiece": _sentencepiece,
    "gpt2": _gpt2,
    "wordpiece": lambda source, **given: wordpiece_vocab.read_vocabulary(
        source.raw, source.path, config=source.beside(companions.CONFIG_FILE), **given
    ),
    "subword-nmt": lambda source: subword_nmt.read_codes(source.raw, source.path),
}

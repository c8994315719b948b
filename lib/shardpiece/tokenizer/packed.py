"""A tokenizer as one string of bytes for the workers of a job: arrays as they lie in memory, all else in JSON.

What ``pack`` takes was checked when it was made. ``unpack`` puts the same values into the same fields without checking or
deriving anything again, so that a worker has a tokenizer of 200,000 tokens in the time that copying its arrays takes. It
is no file format: both ends run the same version, and nothing is read that another program wrote. Files are
``artifact``'s.
"""

import io
import json
from dataclasses import fields, is_dataclass
from typing import Any
from zipfile import BadZipFile

import numpy as np

from shardpiece.errors import FormatError
from shardpiece.kernel_cache import read_only
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.bpe_tables import BPETables
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.unigram import UnigramModel
from shardpiece.tokenizer.vocabulary import Vocabulary
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel

FORMAT = "shardpiece-packed-tokenizer"
VERSION = 1

_CLASSES = {
    one.__name__: one
    for one in (Tokenizer, AddedToken, Template, BPEModel, BPETables, WordPieceModel, UnigramModel, WordLevelModel)
}
# What a model derives from its fields when its encoder is made, and workers need not derive again.
_DERIVED = {BPEModel: ("tables",), UnigramModel: ("trie",)}


def pack(tokenizer: Tokenizer) -> bytes:
    """Raises TypeError when the tokenizer holds a value that has no packed form."""
    arrays: list[np.ndarray] = []
    content = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": tokenizer.fingerprint,
        "tokenizer": _packed(tokenizer, arrays),
    }
    out = io.BytesIO()
    header = json.dumps(content, ensure_ascii=False).encode()
    np.savez(out, header=np.frombuffer(header, np.uint8), **{f"a{i}": array for i, array in enumerate(arrays)})
    return out.getvalue()


def unpack(raw: bytes, cache_bytes: int | None = None) -> Tokenizer:
    """The tokenizer that ``pack`` was given. With ``cache_bytes`` its encoder is made too, with a cache of words of that
    size. Raises FormatError for what ``pack`` did not write."""
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            content = json.loads(stored["header"].tobytes())
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"it is {content['format']!r} of version {content['version']!r}")
            tokenizer = _unpacked(content["tokenizer"], {name: stored[name] for name in stored.files})
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError("it holds another object")
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, BadZipFile) as error:
        raise FormatError(f"not a packed tokenizer of this version ({type(error).__name__}: {error})") from None
    object.__setattr__(tokenizer, "_fingerprint", content["fingerprint"])
    if cache_bytes is not None:
        tokenizer.use_cache(cache_bytes)
    return tokenizer


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """``value`` as JSON: what JSON has as it is, all else as an object with one key; arrays go to ``arrays``."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"bytes": value.hex()}
        case list():
            return [_packed(item, arrays) for item in value]
        case dict():
            return {"dict": [[_packed(key, arrays), _packed(item, arrays)] for key, item in value.items()]}
        case np.ndarray():
            place = next((i for i, array in enumerate(arrays) if array is value), len(arrays))
            if place == len(arrays):
                arrays.append(value)
            # Kernels are compiled once for arrays that can be written to and once for those that cannot.
            return {"array": [place, value.flags.writeable]}
        case Vocabulary():
            return {"vocabulary": [_packed(part, arrays) for part in (value.data, value.offsets, value.present)]}
        case tuple() if len(value) > 1000 and all(piece is None or isinstance(piece, bytes) for piece in value):
            return {"pieces": _packed(Vocabulary.of(value), arrays)}
        case tuple():
            return {"tuple": [_packed(item, arrays) for item in value]}
        case TextEngine():
            return {"engine": value.spec}
        case Decoder():
            return {"decoder": value.spec}
    name = type(value).__name__
    if not is_dataclass(value) or _CLASSES.get(name) is not type(value):
        raise TypeError(f"a {name} cannot be packed")
    names = [*(field.name for field in fields(value)), *_DERIVED.get(type(value), ())]
    return {"object": [name, {field: _packed(getattr(value, field), arrays) for field in names}]}


def _unpacked(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    match kind:
        case "bytes":
            return bytes.fromhex(content)
        case "dict":
            return {_unpacked(key, arrays): _unpacked(item, arrays) for key, item in content}
        case "array":
            array = arrays[f"a{content[0]}"]
            return array if content[1] else read_only(array)
        case "vocabulary":
            return Vocabulary(*(_unpacked(part, arrays) for part in content))
        case "pieces":
            return tuple(_unpacked(content, arrays))
        case "tuple":
            return tuple(_unpacked(item, arrays) for item in content)
        case "engine":
            return TextEngine.from_spec(content)
        case "decoder":
            return Decoder(tuple(content))
        case "object":
            name, items = content
            result = object.__new__(_CLASSES[name])
            result.__dict__.update((field, _unpacked(item, arrays)) for field, item in items.items())
            return result
    raise ValueError(f"unknown kind {kind!r}")

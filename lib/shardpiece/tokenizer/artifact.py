"""The tokenizer artifact: a directory with ``tokenizer.json`` (Hugging Face) and ``shardpiece.json``.

shardpiece.json is written last and holds the fingerprint, so a directory that loads is a finished one.
"""

import json
from collections.abc import Mapping

from shardpiece import storage
from shardpiece.errors import FormatError, ShardpieceError, one_line
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.formats import huggingface, sentencepiece_tokenizer
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
SENTENCEPIECE_FILE = "tokenizer.model"
METADATA_FILE = "shardpiece.json"
VOCABULARY_FILE = "vocab.tsv"
TRANSPLANT_FILE = "transplant.parquet"
OPTIONAL_FILES = (SENTENCEPIECE_FILE, VOCABULARY_FILE, TRANSPLANT_FILE)
FORMAT = "shardpiece-tokenizer"
VERSION = 4


def save(tokenizer: Tokenizer, directory: str) -> None:
    """Write the artifact; shardpiece.json is removed first and written last, and what else an older one had goes too."""
    files = to_files(tokenizer)
    for name in (METADATA_FILE, *OPTIONAL_FILES, *({TOKENIZER_FILE} - set(files))):
        storage.remove(storage.join(directory, name))
    for name, content in files.items():
        storage.write_bytes(storage.join(directory, name), content)


def load(directory: str) -> Tokenizer:
    """Read an artifact. Raises FormatError when it is absent, unfinished, of another version or altered."""
    directory = directory.removesuffix(f"/{TOKENIZER_FILE}")
    stored = read_metadata(directory)
    try:
        if TOKENIZER_FILE not in [file["name"] for file in stored["files"]]:
            path = storage.join(directory, SENTENCEPIECE_FILE)
            return _checked(sentencepiece_tokenizer.from_bytes(storage.read_bytes(path), path), stored, path)
        path = storage.join(directory, TOKENIZER_FILE)
        return _assemble(storage.read_bytes(path), stored, path)
    except OSError as error:
        raise FormatError(f"{directory}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, ShardpieceError):
            raise
        raise FormatError(f"{directory}: damaged ({one_line(error)})") from None


def read_metadata(directory: str) -> dict:
    """The content of shardpiece.json. Raises FormatError when this is no finished artifact."""
    path = storage.join(directory, METADATA_FILE)
    if not storage.exists(path):
        names = [name for name in storage.list_names(directory) if name.isdigit()]
        below = [name for name in names if storage.exists(storage.join(directory, name, METADATA_FILE))]
        if below:
            raise FormatError(f"{directory}: holds several tokenizers, name one: {', '.join(below)}")
        raise FormatError(
            f"{directory}: no tokenizer here ({METADATA_FILE} is missing). Make one with: shardpiece train"
        )
    return storage.read_manifest(
        path, FORMAT, VERSION,
        {"fingerprint": str, "vocab_size": int, "engine": dict, "model": dict, "added_tokens": list,
         "template": dict, "files": list, "provenance": dict},
    )  # fmt: skip


def to_files(tokenizer: Tokenizer, more: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """The artifact's files by name, in the order to write them. ``more``: files that are no part of the tokenizer, for people
    or other programs. A tokenizer that tokenizer.json cannot hold lies in tokenizer.model alone. Raises FormatError for one
    that neither can hold."""
    files = {}
    in_model = sentencepiece_tokenizer.problem(tokenizer) is None
    try:
        files[TOKENIZER_FILE] = huggingface.to_bytes(tokenizer)
    except FormatError:
        if not in_model:
            raise
    files.update(more or {})
    if in_model:
        files[SENTENCEPIECE_FILE] = sentencepiece_tokenizer.to_bytes(tokenizer)
    return {**files, METADATA_FILE: storage.pretty_json(metadata(tokenizer, files))}


def metadata(tokenizer: Tokenizer, files: Mapping[str, bytes]) -> dict:
    """The content of shardpiece.json; ``files``: the others by name."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "engine": tokenizer.engine.spec,
        "model": {**tokenizer.model.settings(), "size": len(tokenizer.model)},
        "outside_model": huggingface.outside_model(tokenizer),
        "unwritten_scores": huggingface.unwritten_scores(tokenizer) if TOKENIZER_FILE in files else {},
        "added_tokens": [token.spec for token in tokenizer.added_tokens],
        "template": tokenizer.template.spec,
        "decoder": None if tokenizer.decoder is None else tokenizer.decoder.spec,
        "files": [
            {"name": name, "bytes": len(content), "checksum": storage.checksum_bytes(content)}
            for name, content in files.items()
        ],
        "provenance": tokenizer.provenance,
    }


def from_files(files: dict[str, bytes]) -> Tokenizer:
    """The tokenizer from what ``to_files`` gave."""
    stored = json.loads(files[METADATA_FILE])
    raw = files.get(TOKENIZER_FILE)
    if raw is None:
        read = sentencepiece_tokenizer.from_bytes(files[SENTENCEPIECE_FILE], SENTENCEPIECE_FILE)
        return _checked(read, stored, SENTENCEPIECE_FILE)
    return _assemble(raw, stored, TOKENIZER_FILE)


def _assemble(raw: bytes, stored: dict, source: str) -> Tokenizer:
    [file] = (file for file in stored["files"] if file["name"] == TOKENIZER_FILE)
    ours = file["checksum"] == storage.checksum_bytes(raw)
    # Where the library has written the file again, its numbers are as they were, and spelled anew.
    content = huggingface.read_content(raw) if ours else json.loads(raw)
    if not isinstance(content, dict):
        raise FormatError(f"{source}: expected a JSON object, found {type(content).__name__}")
    parts = {
        "added_tokens": tuple(map(AddedToken.from_spec, stored["added_tokens"])),
        "template": Template.from_spec(stored["template"]),
        "decoder": None if stored["decoder"] is None else Decoder(tuple(stored["decoder"])),
    }
    engine = TextEngine.from_spec(stored["engine"])
    tokenizer = huggingface.from_json(content, engine, stored["model"], stored, parts, source)
    if not ours:
        huggingface.check_same(content, tokenizer, source)  # the library may have written it again
    return _checked(tokenizer, stored, source)


def _checked(tokenizer: Tokenizer, stored: dict, source: str) -> Tokenizer:
    if stored["vocab_size"] != tokenizer.vocab_size:
        raise FormatError(f"{source}: its vocabulary is not that of {METADATA_FILE}")
    if tokenizer.fingerprint != stored["fingerprint"]:
        raise FormatError(
            f"{source}: its content has the fingerprint {tokenizer.fingerprint[:12]}…, "
            f"{METADATA_FILE} says {stored['fingerprint'][:12]}…: one of the two files was changed"
        )
    tokenizer.provenance.update(stored["provenance"])
    return tokenizer

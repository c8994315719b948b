"""The tokenizer artifact: a directory with ``tokenizer.json`` (Hugging Face) and ``shardpiece.json``.

shardpiece.json is written last and holds the fingerprint, so a directory that loads is a finished one.
"""

import json

from shardpiece import storage
from shardpiece.errors import FormatError, ShardpieceError, one_line
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.formats import huggingface
from shardpiece.tokenizer.tokenizer import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
METADATA_FILE = "shardpiece.json"
FORMAT = "shardpiece-tokenizer"
VERSION = 2


def save(tokenizer: Tokenizer, directory: str) -> None:
    """Write the artifact; shardpiece.json is removed first and written last."""
    storage.remove(storage.join(directory, METADATA_FILE))
    for name, content in to_files(tokenizer).items():
        storage.write_bytes(storage.join(directory, name), content)


def load(directory: str) -> Tokenizer:
    """Read an artifact. Raises FormatError when it is absent, unfinished, of another version or altered."""
    directory = directory.removesuffix(f"/{TOKENIZER_FILE}")
    stored = read_metadata(directory)
    path = storage.join(directory, TOKENIZER_FILE)
    try:
        content, checksum = storage.read_json_and_checksum(path)
        return _assemble(content, stored, path, checksum)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, ShardpieceError):
            raise
        raise FormatError(f"{directory}: damaged ({one_line(error)})") from None


def read_metadata(directory: str) -> dict:
    """The content of shardpiece.json. Raises FormatError when this is no finished artifact."""
    path = storage.join(directory, METADATA_FILE)
    if not storage.exists(path):
        raise FormatError(
            f"{directory}: no tokenizer here ({METADATA_FILE} is missing). Make one with: shardpiece train"
        )
    return storage.read_manifest(
        path, FORMAT, VERSION,
        {"fingerprint": str, "vocab_size": int, "engine": dict, "files": list, "provenance": dict},
    )  # fmt: skip


def to_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The artifact's files by name, in the order to write them; also what the driver broadcasts."""
    content = huggingface.to_bytes(tokenizer)
    return {TOKENIZER_FILE: content, METADATA_FILE: storage.pretty_json(metadata(tokenizer, content))}


def metadata(tokenizer: Tokenizer, content: bytes) -> dict:
    """The content of shardpiece.json; ``content``: that of tokenizer.json."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "engine": tokenizer.engine.spec,
        "special_tokens": {text: tokenizer.special_id(text) for text in tokenizer.special_tokens},
        "files": [{"name": TOKENIZER_FILE, "bytes": len(content), "checksum": storage.checksum_bytes(content)}],
        "provenance": tokenizer.provenance,
    }


def from_files(files: dict[str, bytes]) -> Tokenizer:
    """The tokenizer from what ``to_files`` gave."""
    raw = files[TOKENIZER_FILE]
    return _assemble(json.loads(raw), json.loads(files[METADATA_FILE]), TOKENIZER_FILE, storage.checksum_bytes(raw))


def _assemble(content: dict, stored: dict, source: str, checksum: str) -> Tokenizer:
    tokenizer = huggingface.from_json(content, TextEngine.from_spec(stored["engine"]), source)
    [file] = stored["files"]
    if file["checksum"] != checksum:
        huggingface.check_same(content, tokenizer, source)  # the library may have written it again
    special = {text: tokenizer.special_id(text) for text in tokenizer.special_tokens}
    if stored["vocab_size"] != tokenizer.vocab_size or stored["special_tokens"] != special:
        raise FormatError(f"{source}: its vocabulary or special tokens are not those of {METADATA_FILE}")
    if tokenizer.fingerprint != stored["fingerprint"]:
        raise FormatError(
            f"{source}: its content has the fingerprint {tokenizer.fingerprint[:12]}…, "
            f"{METADATA_FILE} says {stored['fingerprint'][:12]}…: one of the two files was changed"
        )
    tokenizer.provenance.update(stored["provenance"])
    return tokenizer

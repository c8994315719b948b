"""Shards back to bytes, with the tokenizer that wrote them and no other."""

from collections.abc import Iterator

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.shards.manifest import read_manifest
from shardpiece.shards.readers import iter_documents
from shardpiece.tokenizer.tokenizer import Tokenizer


def decoded_documents(directory: str, tokenizer: Tokenizer) -> Iterator[tuple[str | None, int, bytes]]:
    """(id, number of tokens, bytes) of every document; an appended end-of-text token is counted, not decoded.

    Raises FormatError when another tokenizer wrote the shards.
    """
    directory = storage.absolute(directory)
    manifest = read_manifest(directory)
    if manifest["tokenizer"] != tokenizer.fingerprint:
        raise FormatError(
            f"{directory}: encoded with the tokenizer {manifest['tokenizer'][:12]}…, "
            f"this one is {tokenizer.fingerprint[:12]}…: decode with the one that wrote the shards"
        )
    eos = manifest["eos"]
    for name, tokens in iter_documents(directory, manifest):
        text = tokens
        if eos["appended"]:
            if not len(tokens) or tokens[-1] != eos["id"]:
                raise FormatError(f"{directory}: a document does not end with the end-of-text token {eos['id']}")
            text = tokens[:-1]
        yield name, len(tokens), tokenizer.decode_bytes(text)

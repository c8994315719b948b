"""Shards back to bytes, with the tokenizer that wrote them and no other."""

from collections.abc import Iterator

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.shards.manifest import around, read_manifest
from shardpiece.shards.readers import iter_rows
from shardpiece.tokenizer.tokenizer import Tokenizer


def decoded_documents(directory: str, tokenizer: Tokenizer) -> Iterator[tuple[str | None, int, bytes]]:
    """(id, number of tokens, bytes) of every document; what was put around it, such as an end-of-text token,
    is counted, not decoded. Of packed shards: (None, number of tokens, bytes) of every sequence, as it is.

    Raises FormatError when another tokenizer wrote the shards.
    """
    directory = storage.absolute(directory)
    manifest = read_manifest(directory)
    if manifest["tokenizer"] != tokenizer.fingerprint:
        raise FormatError(
            f"{directory}: encoded with the tokenizer {manifest['tokenizer'][:12]}…, "
            f"this one is {tokenizer.fingerprint[:12]}…: decode with the one that wrote the shards"
        )
    if "packing" in manifest:
        for row in iter_rows(directory, manifest):
            yield None, len(row.tokens), tokenizer.decode_bytes(row.tokens)
        return
    before, after = around(manifest)
    for name, tokens, _ in iter_rows(directory, manifest):
        end = len(tokens) - len(after)
        if end < len(before) or tokens[: len(before)].tolist() != before or tokens[end:].tolist() != after:
            said = (
                f"end with the end-of-text token {after[0]}"
                if not before and len(after) == 1
                else "stand between the ids of the manifest"
            )
            raise FormatError(f"{directory}: a document does not {said}")
        yield name, len(tokens), tokenizer.decode_bytes(tokens[len(before) : end])

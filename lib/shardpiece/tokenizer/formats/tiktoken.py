"""tiktoken ranks: one line per token, base64 of its bytes, a space, its rank."""

import base64

from shardpiece.errors import FormatError
from shardpiece.tokenizer.tokenizer import Tokenizer


def ranks(tokenizer: Tokenizer) -> dict[bytes, int]:
    """mergeable_ranks for ``tiktoken.Encoding``; its pat_str is the pre-tokenizer's pattern.

    tiktoken has no merge list: it merges the pair whose concatenation has the lowest id. Raises FormatError when the
    order of the ids is not the order of the merges, which that format cannot express.
    """
    if tokenizer.engine.normalizer is not None or tokenizer.pretokenizer.pattern is None:
        raise FormatError(
            f"tiktoken splits by one pattern and does not normalize, and this tokenizer has {tokenizer.engine.name}"
        )
    merged = tokenizer.model.merged.tolist()
    if merged != sorted(merged):
        raise FormatError("tiktoken ranks need token ids in merge order, and this tokenizer has others")
    return {token: i for i, token in enumerate(tokenizer.model.vocab)}


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of a ``.tiktoken`` file; special tokens are not part of it."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks(tokenizer).items())

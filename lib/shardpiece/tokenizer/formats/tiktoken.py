"""tiktoken ranks: one line per token, base64 of its bytes, a space, its rank."""

import base64

from shardpiece.errors import FormatError
from shardpiece.tokenizer.formats.huggingface_models import is_byte_level
from shardpiece.tokenizer.formats.oniguruma import spelled
from shardpiece.tokenizer.tokenizer import Tokenizer


def pat_str(tokenizer: Tokenizer) -> str:
    """The pattern for ``tiktoken.Encoding``. Raises FormatError when there is more to the text engine than one pattern, or
    when that leaves text between its matches, which tiktoken would drop."""
    pattern = tokenizer.pretokenizer.pattern
    if tokenizer.engine.normalizer is not None or pattern is None:
        raise FormatError(
            f"tiktoken splits by one pattern and does not normalize, and this tokenizer has {tokenizer.engine.name}"
        )
    [step] = tokenizer.pretokenizer.steps
    if step.dfa is None or not step.dfa.total:
        raise FormatError(
            f"tiktoken drops what the pattern {pattern!r} does not match: let it match every character, such as by "
            f"adding |[\\s\\S]"
        )
    return spelled(pattern)


def ranks(tokenizer: Tokenizer) -> dict[bytes, int]:
    """mergeable_ranks for ``tiktoken.Encoding``, beside ``pat_str``.

    tiktoken has no merge list: it merges the pair whose concatenation has the lowest id. Raises FormatError when the
    order of the ids is not the order of the merges, which that format cannot express.
    """
    if not is_byte_level(tokenizer.model):
        raise FormatError(f"tiktoken has byte-level BPE alone, and this model is one of kind {tokenizer.model.kind}")
    pat_str(tokenizer)
    if None in tokenizer.model.vocab:
        raise FormatError(
            "tiktoken ranks need dense ids from 0, and here special tokens lie in front of them or between"
        )
    merged = tokenizer.model.merged.tolist()
    if merged != sorted(merged):
        raise FormatError("tiktoken ranks need token ids in merge order, and this tokenizer has others")
    return {token: i for i, token in enumerate(tokenizer.model.vocab)}


def to_bytes(tokenizer: Tokenizer) -> bytes:
    """The content of a ``.tiktoken`` file; special tokens are not part of it."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks(tokenizer).items())

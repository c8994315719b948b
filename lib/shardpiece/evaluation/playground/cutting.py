"""A text cut by several tokenizers, as the page wants it."""

import threading
from collections.abc import Mapping
from itertools import islice
from typing import Any

from shardpiece.errors import ConfigError
from shardpiece.evaluation.segments import strip, token_bytes_in
from shardpiece.tokenizer.pieces import readable
from shardpiece.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 1 << 20
# So many tokens of each tokenizer are drawn; figures and copies are of all of them.
SHOWN_TOKENS = 2000
_CACHE_BYTES = 8 << 20


class Cutter:
    """Tokenizers by the names the page shows. Encoders keep caches that are not for several threads at once, so requests go
    through one after the other."""

    def __init__(self, tokenizers: Mapping[str, Tokenizer]):
        if not tokenizers:
            raise ConfigError("the playground needs a tokenizer")
        self.tokenizers = dict(tokenizers)
        self._lock = threading.Lock()
        for tokenizer in self.tokenizers.values():
            tokenizer.use_cache(_CACHE_BYTES)
            tokenizer.encode("What the kernels need is compiled or loaded now, 1 by 1.\n")

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "vocab_size": tokenizer.vocab_size,
                "algorithm": tokenizer.model.kind,
                "fingerprint": tokenizer.fingerprint,
            }
            for name, tokenizer in self.tokenizers.items()
        ]

    def encode(self, text: str, in_text: str) -> dict[str, list[int]]:
        with self._lock:
            return {name: tokenizer.encode(text, in_text) for name, tokenizer in self.tokenizers.items()}

    def cut(self, text: str, in_text: str = "text", shown: int = SHOWN_TOKENS) -> dict[str, Any]:
        """Figures of the whole text, and its first ``shown`` tokens by every tokenizer."""
        raw = text.encode()
        results = []
        for name, ids in self.encode(text, in_text).items():
            tokenizer = self.tokenizers[name]
            spoken, exact = token_bytes_in(tokenizer, ids, raw)
            first = list(islice(ids, shown))
            results.append(
                {
                    "name": name,
                    "tokens": len(ids),
                    "distinct": len(set(ids)),
                    "exact": exact,
                    "strip": strip(first, spoken[: len(first)]),
                }
            )
        return {"bytes": len(raw), "characters": len(text), "results": results}

    def as_json(self, text: str, in_text: str = "text") -> dict[str, Any]:
        """Text, ids and pieces of all tokens: what "copy as JSON" copies."""
        result = []
        for name, ids in self.encode(text, in_text).items():
            tokenizer = self.tokenizers[name]
            pieces = {i: readable(tokenizer.token_bytes(i)) for i in sorted(set(ids))}
            result.append(
                {
                    "name": name,
                    "fingerprint": tokenizer.fingerprint,
                    "tokens": len(ids),
                    "ids": ids,
                    "pieces": [pieces[i] for i in ids],
                }
            )
        return {"text": text, "tokenizers": result}

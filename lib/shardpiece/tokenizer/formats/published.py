"""Published vocabularies in tiktoken's format: what their rank files do not hold, the pattern and the special tokens.

As tiktoken 0.14 (``tiktoken_ext.openai_public``) and Llama's own code give them. A file is known by its name, by that of its
directory, or by its content.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from shardpiece.errors import FormatError

_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")


@dataclass(frozen=True)
class Published:
    """``pretokenizer``: the name of its pattern; ``make``: gives the special tokens with their ids; ``sha256``: of the rank
    file as it was published."""

    name: str
    pretokenizer: str
    make: Callable[[], dict[str, int]]
    sha256: str

    @property
    def special_tokens(self) -> dict[str, int]:
        return self.make()


def _numbered(first: int, texts: list[str]) -> dict[str, int]:
    return {text: first + i for i, text in enumerate(texts)}


def _harmony() -> dict[str, int]:
    named = {
        199998: "startoftext", 199999: "endoftext", 200002: "return", 200003: "constrain", 200005: "channel",
        200006: "start", 200007: "end", 200008: "message", 200012: "call", 200018: "endofprompt",
    }  # fmt: skip
    texts = [named.get(i, f"reserved_{i}") for i in range(199998, 201088)]
    # 200018 is <|reserved_200018|> there as well; a token has one text here, that of o200k_base and gpt-oss.
    return _numbered(199998, [f"<|{text}|>" for text in texts])


def _llama(named: dict[int, str]) -> dict[str, int]:
    """256 tokens; those without a name are reserved, numbered in order."""
    texts, reserved = [], 0
    for i in range(256):
        if i in named:
            texts.append(f"<|{named[i]}|>")
        else:
            texts.append(f"<|reserved_special_token_{reserved}|>")
            reserved += 1
    return _numbered(128000, texts)


_LLAMA3 = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
_LLAMA3_1 = {**_LLAMA3, 4: "finetune_right_pad_id", 8: "eom_id", 10: "python_tag"}
_R50K = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
_P50K = "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
_CL100K = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_O200K = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_LLAMA = "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"
_END = "<|endoftext|>"
PUBLISHED = {
    one.name: one
    for one in (
        Published("gpt2", "gpt2", lambda: {_END: 50256}, _R50K),
        Published("r50k_base", "gpt2", lambda: {_END: 50256}, _R50K),
        Published("p50k_base", "gpt2", lambda: {_END: 50256}, _P50K),
        Published("p50k_edit", "gpt2", lambda: {_END: 50256, **_numbered(50281, [*_FIM])}, _P50K),
        Published(
            "cl100k_base",
            "cl100k_base",
            lambda: {**_numbered(100257, [_END, *_FIM]), "<|endofprompt|>": 100276},
            _CL100K,
        ),
        Published("o200k_base", "o200k_base", lambda: {_END: 199999, "<|endofprompt|>": 200018}, _O200K),
        Published("o200k_harmony", "o200k_base", _harmony, _O200K),
        Published("llama3", "llama3", lambda: _llama(_LLAMA3), _LLAMA),
        Published("llama3.1", "llama3", lambda: _llama(_LLAMA3_1), _LLAMA),
    )
}
# Of vocabularies that share a file, the one whose name it was published under; Llama's has no name of its own.
_OF_CONTENT = {_R50K: "r50k_base", _P50K: "p50k_base", _CL100K: "cl100k_base", _O200K: "o200k_base"}


def by_name(name: str) -> Published | None:
    """Of a file or directory: cl100k_base.tiktoken, o200k-harmony, Meta-Llama-3.1-8B."""
    stem = re.sub(r"\.(tiktoken|model|bpe|txt|json)$", "", name.lower())
    plain = re.sub(r"[-. ]", "_", stem)
    if plain in PUBLISHED:
        return PUBLISHED[plain]
    if llama := re.fullmatch(r"(?:meta_)?llama_?3(?:_([0-9]))?(?:_\d+b)?(?:_instruct)?", plain):
        return PUBLISHED["llama3" if llama[1] in (None, "0") else "llama3.1"] if (llama[1] or "0") < "4" else None
    return None


def find(raw: bytes, source: str) -> tuple[str, Published | None]:
    """(the name of the pre-tokenizer, which vocabulary it is) of a rank file, "" and None where neither name nor content is
    known; the vocabulary is None too where several have this content and no name says which.

    Raises FormatError for a file that is named after one vocabulary and has the content of another.
    """
    parts = [part for part in source.replace("\\", "/").split("/") if part]
    named = next((found for part in reversed(parts[-2:]) if (found := by_name(part))), None)
    digest = hashlib.sha256(raw).hexdigest()
    alike = [one for one in PUBLISHED.values() if one.sha256 == digest]
    if named is not None and alike and named not in alike:
        raise FormatError(
            f"{source}: named after {named.name}, but its content is that of {alike[0].name}: rename one, or give the "
            f"pre-tokenizer and the special tokens"
        )
    if named is not None:
        return named.pretokenizer, named
    if alike:
        return alike[0].pretokenizer, PUBLISHED.get(_OF_CONTENT.get(digest, ""))
    return "", None

"""The split patterns of published pre-tokenizers, by name.

Each is spelled so that Python's ``regex``, Oniguruma (Hugging Face) and fancy-regex (tiktoken) read it alike: no
possessive quantifiers (Oniguruma reads ``{1,3}+`` as a repeat of a repeat), and ``\\z`` for the end of the text, since
``$`` also matches before a final newline in Python and at every line in Oniguruma. Where a published pattern uses
those, the spelling here matches the same substrings.
"""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

ALIASES = {"r50k_base": "gpt2", "p50k_base": "gpt2"}
"""Other names of the same pattern."""

PATTERNS: dict[str, str] = {
    # GPT-2, r50k_base and p50k_base.
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # GPT-3.5 and GPT-4 as tiktoken splits them now: white space at the very end of a text is one word.
    "cl100k_base": (
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    # GPT-4o and later.
    "o200k_base": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Llama 3.
    "llama3": (
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

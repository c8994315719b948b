"""The split patterns of published pre-tokenizers, by name.

Each is spelled so that Python's ``regex``, Oniguruma (Hugging Face) and fancy-regex (tiktoken) read it alike: no
possessive quantifiers (Oniguruma reads ``{1,3}+`` as a repeat of a repeat), and ``\\z`` for the end of the text, since
``$`` also matches before a final newline in Python and at every line in Oniguruma. Where a published pattern uses
those, the spelling here matches the same substrings.
"""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

PATTERNS: dict[str, str] = {
    # GPT-2, r50k_base and p50k_base; Hugging Face's ByteLevel.
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
    # Qwen 2 and 3: as Llama 3, digits alone.
    "qwen2": (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    # Mistral's Tekken: as o200k_base, without contractions, digits alone.
    "tekken": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

# DeepSeek V3 applies these three one after the other.
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)

# Chinese characters as Hugging Face's BERT sets them apart: from U+2B920 on, where Google's begins at U+2B820. Spelled as
# characters, since Python and Oniguruma have no common escape for those beyond U+FFFF.
_CJK_RANGES = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)  # fmt: skip
CJK = "".join(f"{chr(first)}-{chr(last)}" for first, last in _CJK_RANGES)
# The properties hf_.. are sets of the frozen table (see unicode_sets), which regex does not know.
BERT = rf"\p{{hf_punctuation}}|[{CJK}]|[^\s\p{{hf_punctuation}}{CJK}]+"
WHITESPACE = r"\w+|[^\w\s]+"
WHITESPACE_SPLIT = r"\S+"
PUNCTUATION = r"\p{hf_punctuation}"
DIGIT = r"\p{hf_numeric}"
DIGITS = r"\p{hf_numeric}+"
NUMBER_GROUPS = r"\p{N}{1,3}"
NUMBERS = r"\p{N}+"
WORD = r"\s*\S+|\s+"
CHARACTER = r"[\s\S]"

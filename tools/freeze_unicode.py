"""Write lib/shardpiece/text/data/unicode.txt: what the reference libraries take for a letter, a digit, a script.

    python -m tools.freeze_unicode

Every set is asked of the library that defines it, one code point after the other, so the file states facts about
released versions of those libraries and not about any Unicode database:

- general categories and ``White_Space`` as Oniguruma in Hugging Face tokenizers has them, and as tiktoken's regex engine
  has them (the tool fails when the two differ);
- ``word`` (``\\w``) of tiktoken's engine, which is also that of tokenizers' ``Whitespace``;
- ``hf_numeric``, ``hf_punctuation``: what tokenizers' ``Digits`` and ``Punctuation`` split at, which come with tables of
  their own age;
- ``script0`` and so on: what tokenizers' ``UnicodeScripts`` keeps together; code points in none of these go with any.
"""

from pathlib import Path

import tiktoken
import tokenizers
from tokenizers import Regex, pre_tokenizers

TARGET = Path(__file__).parents[1] / "lib" / "shardpiece" / "text" / "data" / "unicode.txt"
CATEGORIES = [
    "Lu",
    "Ll",
    "Lt",
    "Lm",
    "Lo",
    "Mn",
    "Mc",
    "Me",
    "Nd",
    "Nl",
    "No",
    "Pc",
    "Pd",
    "Ps",
    "Pe",
    "Pi",
    "Pf",
    "Po",
    "Sm",
    "Sc",
    "Sk",
    "So",
    "Zs",
    "Zl",
    "Zp",
    "Cc",
    "Cf",
    "Co",
    "Cn",
]
ALL = [*range(0xD800), *range(0xE000, 0x110000)]
TEXT = "".join(map(chr, ALL))


def by_oniguruma(expression: str) -> set[int]:
    split = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    found: set[int] = set()
    for i in range(0, len(TEXT), 20_000):
        for word, _ in split.pre_tokenize_str(TEXT[i : i + 20_000]):
            found.update(map(ord, word))
    return found


def by_tiktoken(expression: str) -> set[int]:
    single_bytes = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("set", pat_str=expression, mergeable_ranks=single_bytes, special_tokens={})
    return set(map(ord, bytes(encoding.encode_ordinary(TEXT)).decode()))


def splitting(pretokenizer) -> set[int]:
    """The code points at which letters around them are split."""
    return {c for c in ALL if len(pretokenizer.pre_tokenize_str(f"a{chr(c)}b")) > 1}


def scripts() -> list[set[int]]:
    """Two neighbours stay together when their scripts are equal or one has none; none is what stays with everything."""
    pretokenizer = pre_tokenizers.UnicodeScripts()

    def together(a: str, b: str) -> bool:
        return len(pretokenizer.pre_tokenize_str(a + b)) == 1

    found: list[set[int]] = []
    representatives: list[str] = []
    last = 0
    for code_point in ALL:
        c = chr(code_point)
        if together("a", c) and together("я", c):
            continue
        candidates = (last, *range(len(found))) if found else ()
        last = next((i for i in candidates if together(representatives[i], c)), len(found))
        if last == len(found):
            found.append(set())
            representatives.append(c)
        found[last].add(code_point)
    return found


def ranges(code_points: set[int]) -> str:
    parts: list[list[int]] = []
    for c in sorted(code_points):
        if parts and parts[-1][1] == c - 1:
            parts[-1][1] = c
        else:
            parts.append([c, c])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in parts)


def main() -> None:
    sets = {name: by_oniguruma(rf"\p{{{name}}}") for name in CATEGORIES}
    for name, members in sets.items():
        assert members == by_tiktoken(rf"\p{{{name}}}"), name
    sets["space"] = by_oniguruma(r"\s")
    sets["word"] = by_tiktoken(r"\w")
    assert sets["space"] == by_tiktoken(r"\s") == splitting(pre_tokenizers.WhitespaceSplit())
    whole_words = pre_tokenizers.Whitespace()
    assert sets["word"] == {c for c in ALL if len(whole_words.pre_tokenize_str(f"a{chr(c)}b")) == 1}
    sets["hf_numeric"] = splitting(pre_tokenizers.Digits(individual_digits=True))
    sets["hf_punctuation"] = splitting(pre_tokenizers.Punctuation())
    sets |= {f"script{i}": members for i, members in enumerate(scripts())}
    lines = [
        f"# Unicode 16.0 as tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__} have it; "
        "made by tools/freeze_unicode.py",
        *(f"{name}: {ranges(members)}" for name, members in sets.items()),
    ]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

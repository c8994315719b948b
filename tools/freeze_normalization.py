"""Write the frozen Unicode tables of the normalizers: lib/shardpiece/text/data/*.txt.

    pip install tokenizers sentencepiece unicodedata2
    python tools/freeze_normalization.py

unicodedata2 says what a decomposition or a combining class is; which characters have one is asked of the reference
libraries, code point by code point, because each carries the Unicode version it was built with. The tables are facts of
those versions, so the files change only when a reference is updated (the suite compares them exhaustively).
"""

from collections.abc import Iterable
from pathlib import Path

import unicodedata2 as unicodedata
from sentencepiece import SentencePieceNormalizer
from tokenizers import normalizers

DATA = Path(__file__).resolve().parents[1] / "lib" / "shardpiece" / "text" / "data"
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ACUTE, ZWJ = "\u0301", "\u200d"


def charsmap_of(mapping: dict[str, str]) -> bytes:
    """A precompiled charsmap, built by sentencepiece: field 2 of its NormalizerSpec message."""
    spec = SentencePieceNormalizer(norm_map=list(mapping.items())).serialized_normalizer_spec()
    i = 0

    def varint() -> int:
        nonlocal i
        value = shift = 0
        while True:
            byte = spec[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while True:
        tag = varint()
        length = varint()
        if tag & 7 == 2:
            if tag >> 3 == 2:
                return spec[i : i + length]
            i += length


def ranges(characters: Iterable[str]) -> str:
    """Code points as hexadecimal ranges."""
    runs: list[list[int]] = []
    for c in sorted(map(ord, characters)):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    words = [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in runs]
    return "\n".join(" ".join(words[i : i + 14]) for i in range(0, len(words), 14))


def shifts(mapping: dict[str, str]) -> str:
    """A map of characters to characters as lines "first-last/step distance"."""
    runs: list[list[int]] = []
    for source, target in sorted(mapping.items()):
        c, distance = ord(source), ord(target) - ord(source)
        if runs and runs[-1][3] == distance:
            first, last, step, _ = runs[-1]
            if c - last in ((1, 2) if first == last else (step,)):
                runs[-1][1:3] = [c, c - last]
                continue
        runs.append([c, c, 1, distance])
    words = [f"{a:X}-{b:X}/{s}{d:+d}" if a != b else f"{a:X}{d:+d}" for a, b, s, d in runs]
    return "\n".join(" ".join(words[i : i + 10]) for i in range(0, len(words), 10))


def decompositions() -> tuple[str, dict[str, int]]:
    """Lines "code point, ~ if compatibility, * if Hugging Face does not know it, targets"; and the combining classes of
    the marks they end in."""
    nfkd = normalizers.NFKD().normalize_str
    nfkc = SentencePieceNormalizer(
        rule_name="nfkc", add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
    ).normalize
    lines, classes = [], {}
    for c in CHARACTERS:
        raw = unicodedata.decomposition(c)
        if not raw or "\uac00" <= c <= "\ud7a3":  # Hangul syllables decompose by a formula
            continue
        full, composed = unicodedata.normalize("NFKD", c), unicodedata.normalize("NFKC", c)
        known = nfkd(c) != c
        if nfkc(full if composed == c else c) != composed:
            assert not known, c
            continue  # newer than both
        targets = raw.split()
        tag = "~" if targets[0].startswith("<") else ""
        lines.append(f"{ord(c):X}{tag}{'' if known else '*'} {' '.join(t.lstrip('0') for t in targets if t[0] != '<')}")
        classes.update({d: unicodedata.combining(d) for d in full if unicodedata.combining(d)})
    return "\n".join(lines), classes


def known_marks() -> dict[str, int]:
    """The characters that Hugging Face gives a combining class, found by what they change places with."""
    nfd = normalizers.NFD().normalize_str
    found = {}
    for c in CHARACTERS:
        if nfd(c) == c and (nfd(c + "\u0334") != c + "\u0334" or nfd("\u0345" + c) != "\u0345" + c):
            found[c] = unicodedata.combining(c)
    # A mark with a decomposition of its own has the class of its first character.
    found.update({c: unicodedata.combining(nfd(c)[0]) for c in CHARACTERS if nfd(c) != c and nfd(c)[0] in found})
    return found


def main() -> None:
    single = {
        "lower": normalizers.Lowercase(),
        "marks": normalizers.StripAccents(),
        "clean": normalizers.BertNormalizer(True, False, False, False),
        "accents": normalizers.BertNormalizer(False, False, True, False),
    }
    out = {name: {c: n.normalize_str(c) for c in CHARACTERS} for name, n in single.items()}
    nfd = normalizers.NFD().normalize_str
    changed = {c: t for c, t in out["lower"].items() if t != c}
    rules = {name: dict(SentencePieceNormalizer(rule_name=name).decompile()) for name in ("nfkc", "nfkc_cf")}
    fold = {c: t for c, t in rules["nfkc_cf"].items() if len(c) == 1 and c not in rules["nfkc"]}
    lines, new_classes = decompositions()
    old_classes = known_marks()

    def graphemes(mapping: dict[str, str]):
        return normalizers.Precompiled(charsmap_of(mapping)).normalize_str

    # A grapheme below six bytes is looked up whole and its first rule replaces all of it: that shows where it ends.
    f, g, h, q = (graphemes(m) for m in ({"a": "X"}, {ACUTE: "Z"}, {"❤": "H"}, {"\u0958": "Q"}))
    extend = {c for c in CHARACTERS if f("a" + c) == "X"}
    prepend = {c for c in CHARACTERS if c != "a" and f(c + "a" + ACUTE) == c + "X" + ACUTE}
    control = {c for c in CHARACTERS if g(c + ACUTE + "\u0302") == c + "Z"}
    pictographic = {c for c in CHARACTERS if h(c + ZWJ + "❤" + ACUTE).endswith("H" + ACUTE)}
    consonant = {c for c in CHARACTERS if q(c + "\u094d\u0958" + ACUTE).endswith("Q" + ACUTE)}
    linker = {c for c in CHARACTERS if q("\u0915" + c + "\u0958" + ACUTE).endswith("Q" + ACUTE)} - prepend
    spacing = {c for c in extend if not h("©" + c + ZWJ + "❤" + ACUTE).endswith("H" + ACUTE)}
    inside = {c for c in extend if q("\u0915" + c + "\u094d\u0958" + ACUTE).endswith("Q" + ACUTE)}

    sections = {
        "lower: Lowercase, but U+0130, which becomes U+0069 U+0307": shifts(
            {c: t for c, t in changed.items() if len(t) == 1}
        ),
        "fold: the simple case folding of SentencePiece's *_cf rules": shifts(fold),
        "combining_marks: what StripAccents removes": ranges(c for c, t in out["marks"].items() if not t),
        "nonspacing_marks: what BertNormalizer's strip_accents removes": ranges(
            c for c, t in out["accents"].items() if not t and nfd(c) == c
        ),
        "controls: what BertNormalizer's clean_text removes": ranges(c for c, t in out["clean"].items() if not t),
        "joins: Extend, SpacingMark and ZWJ, part of the grapheme before": ranges(extend),
        "spacing: of these, SpacingMark": ranges(spacing),
        "prepends: part of the grapheme after": ranges(prepend),
        "breaks: Control, CR and LF": ranges(control),
        "pictographic: Extended_Pictographic": ranges(pictographic),
        "conjunct_consonant": ranges(consonant),
        "conjunct_linker": ranges(linker),
        "conjunct_stop: of the first set, what may not stand inside a conjunct": ranges(extend - inside),
    }
    for value in sorted(set(old_classes.values())):
        sections[f"class {value}"] = ranges(c for c, k in old_classes.items() if k == value)
    assert new_classes.items() <= old_classes.items()
    DATA.mkdir(exist_ok=True)
    head = "# Written by tools/freeze_normalization.py from facts of the Unicode Character Database."
    body = "\n".join(f"[{name}]\n{text}" for name, text in sections.items() if text)
    (DATA / "normalization_sets.txt").write_text(f"{head}\n{body}\n")
    note = "# code point (~ compatibility, * newer than Unicode 9), then what it decomposes to"
    (DATA / "decompositions.txt").write_text(f"{head}\n{note}\n{lines}\n")


if __name__ == "__main__":
    main()

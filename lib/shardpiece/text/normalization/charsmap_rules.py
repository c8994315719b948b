"""SentencePiece's own rules, made of the frozen Unicode 17 data by the algorithm of its builder.

``nfkc``: every character that NFKC changes, and every sequence of characters that are one each under NFKD and compose
(so "ｶ" + "ﾞ" as well as "カ" + U+3099); sequences that shorter rules get right are left out. ``nmt_`` adds the white space
and control rules of neural machine translation and lets U+FF5E be, ``_cf`` folds case, simply. The suite compares all
of them with what sentencepiece ships.
"""

from functools import cache
from itertools import product

from shardpiece.text.normalization import frozen_data
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.frozen_data import HANGUL, HANGUL_END

RULES = ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")


@cache
def named_charsmap(name: str) -> Charsmap:
    """One of RULES, or "identity"; made once per process, which takes about two seconds."""
    return Charsmap.from_mapping({} if name == "identity" else named_rules(name))


def named_rules(name: str) -> dict[str, str]:
    rules = dict(_nfkc())
    if name.startswith("nmt_"):
        spaces = {*frozen_data.NMT_SPACES, 0x061C} - {0x200D}
        rules |= {chr(c): " " for c in spaces} | {chr(c): "" for c in frozen_data.NMT_REMOVED}
        rules.pop("\uff5e")
        rules = _without_redundant(rules)
    if name.endswith("_cf"):
        fold = frozen_data.simple_folding()
        table = str.maketrans(fold)
        rules = {source: target.translate(table) for source, target in rules.items()}
        rules = _without_redundant(fold | rules)
    return rules


@cache
def _nfkc() -> dict[str, str]:
    full = {chr(c): "".join(map(chr, codes)) for c, codes in frozen_data.decompositions(True, newer=True).items()}
    for c in range(HANGUL, HANGUL_END):
        full[chr(c)] = "".join(map(chr, frozen_data.hangul_jamo(c)))
    rules = {}
    # Which single characters each character is the NFKD form of.
    origins: dict[str, list[str]] = {}
    sequences = {}
    for c, decomposed in full.items():
        if decomposed not in sequences:
            composed = frozen_data.compose([*map(ord, decomposed)], newer=True)
            sequences[decomposed] = "".join(map(chr, composed))
        if sequences[decomposed] != c:
            rules[c] = sequences[decomposed]
        if len(decomposed) == 1:
            origins.setdefault(decomposed, []).append(c)
    for decomposed, composed in sequences.items():
        if len(decomposed) > 1 and composed != decomposed:
            for characters in product(*([c, *origins.get(c, ())] for c in decomposed)):
                source = "".join(characters)
                if source != composed:
                    rules[source] = composed
    return _without_redundant(rules)


def _without_redundant(rules: dict[str, str]) -> dict[str, str]:
    """Drop the rules whose source the shorter rules that are kept normalize alike, shorter ones first."""
    kept = {source: target for source, target in rules.items() if len(source) == 1}
    by_length: dict[int, list[str]] = {}
    for source in rules:
        by_length.setdefault(len(source), []).append(source)
    for length in sorted(by_length):
        if length == 1:
            continue
        for source in by_length[length]:
            done, i = "", 0
            while i < length:
                for end in range(min(length, i + length - 1), i, -1):
                    target = kept.get(source[i:end])
                    if target is not None:
                        done += target
                        i = end
                        break
                else:
                    done += source[i]
                    i += 1
            if done != rules[source]:
                kept[source] = rules[source]
    return kept

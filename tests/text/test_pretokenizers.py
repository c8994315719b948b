"""The named pre-tokenizers against their reference implementations; behaviors, sequences, settings, and hostile patterns."""

import itertools
import json
import random
import re

import numpy as np
import pytest
import regex

from shardpiece.errors import ConfigError, DocumentError, FormatError, ShardpieceWarning
from shardpiece.text import patterns, steps, unicode_sets, user_patterns
from shardpiece.text.documents import Documents
from shardpiece.text.pretokenizers import PRETOKENIZERS, PreTokenizer
from tests.conftest import TEXTS
from tests.text import reference
from tests.text.reference import ADVERSARIAL, ALL_CODE_POINTS, split

# The patterns as their publishers spell them, for the regex module.
PUBLISHED = {
    "gpt2": [r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\Z|\s+(?!\S)|\s"],
    "cl100k_base": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\Z|"
        r"\s*[\r\n]|\s+(?!\S)|\s"
    ],
    "o200k_base": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|"
        r"'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|"
        r"'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "llama3": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    ],
    "qwen2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek_v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
        "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ],
    "word": [r"\s*\S+|\s+"],
    "character": [r"[\s\S]"],
    "digits_left3": [r"\p{N}{1,3}"],
    "digits_right3": [r"\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N}))"],
}


def by_patterns(compiled: list, text: str) -> list[str]:
    words = [text] if text else []
    for pattern in compiled:
        words = [word for piece in words for word in reference.words(pattern, piece)]
    return words


def hugging_face(name: str):
    """text → words, by the library that defines ``name``, or by its Split with the published patterns."""
    t = pytest.importorskip("tokenizers")
    p = t.pre_tokenizers
    spelled = PUBLISHED.get(name, [])
    if name in ("gpt2", "cl100k_base", "digits_right3"):  # what Oniguruma reads as the others read the published one
        spelled = [patterns.PATTERNS.get(name, spelled[0].replace(")*+", ")*"))]
    split_by = [p.Split(t.Regex(pattern), "isolated") for pattern in spelled]
    if split_by:
        return _words(p.Sequence(split_by))
    if name == "bert":
        cjk = t.normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
        )
        bert = _words(p.BertPreTokenizer())
        return lambda text: bert(cjk.normalize_str(text))
    gpt2 = p.Split(t.Regex(patterns.PATTERNS["gpt2"]), "isolated")
    return _words({
        "r50k_base": gpt2, "p50k_base": gpt2, "gpt_neox": gpt2,
        "starcoder": p.Sequence([p.Digits(individual_digits=True), gpt2]),
        "whitespace": p.Whitespace(), "whitespace_split": p.WhitespaceSplit(),
        "metaspace": p.Metaspace(), "metaspace_first": p.Metaspace(prepend_scheme="first"),
        "metaspace_never": p.Metaspace(prepend_scheme="never"),
        "unicode_scripts": p.UnicodeScripts(), "digits": p.Digits(individual_digits=True),
        "digits_runs": p.Digits(individual_digits=False), "punctuation": p.Punctuation(),
    }[name])  # fmt: skip


def _words(pretokenizer):
    return lambda text: [word for word, _ in pretokenizer.pre_tokenize_str(text)]


def generated(n: int, seed: int) -> list[str]:
    """Texts from alphabets of a few adversarial characters each, with runs."""
    rng = random.Random(seed)
    texts = []
    for _ in range(n):
        alphabet = rng.sample(ADVERSARIAL, rng.randint(1, 6)) + rng.choices(" a'1.\n", k=2)
        text = "".join(rng.choice(alphabet) * rng.choice((1, 1, 1, 1, 2, 3, 7)) for _ in range(rng.randint(1, 16)))
        texts.append(text)
    return texts


EXTREMES = ("byte", "none")
DROPS = ("bert", "whitespace", "whitespace_split", "unicode_scripts")
REGEX_DISAGREES = unicode_sets.frozen("Cn") != unicode_sets.asked(r"\p{Cn}")
REGEX_DISAGREES[0x295] = True  # a letter whose case was changed


@pytest.mark.parametrize("name", PUBLISHED)
def test_generated_texts_split_as_the_published_patterns(name):
    texts = generated(1500, 1)
    compiled = [reference.frozen(pattern) for pattern in PUBLISHED[name]]
    assert split(PreTokenizer(name), texts) == [by_patterns(compiled, text) for text in texts]


@pytest.mark.parametrize("name", [name for name in PRETOKENIZERS if name not in EXTREMES])
def test_generated_texts_split_as_the_reference_library(name):
    texts = [text for text in TEXTS if text is not None] + generated(3000, 2)
    peer = hugging_face(name)
    for text, words in zip(texts, split(PreTokenizer(name), texts), strict=True):
        assert words == peer(text), repr(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRETOKENIZERS if name not in EXTREMES])
def test_many_generated_texts_and_every_code_point_split_as_the_reference_library(name):
    peer = hugging_face(name)
    texts = generated(200_000, 3)
    texts += [chr(c) for c in ALL_CODE_POINTS]
    texts += ["".join(map(in_context, map(chr, some))) for some in batched(ALL_CODE_POINTS, 1000)]
    for text, words in zip(texts, split(PreTokenizer(name), texts), strict=True):
        assert words == peer(text), repr(text)[:200]


def in_context(c: str) -> str:
    return f"a{c}b {c}1{c}\n"


def batched(values, n: int):
    values = iter(values)
    return iter(lambda: list(itertools.islice(values, n)), [])


@pytest.mark.parametrize("name", [name for name in PRETOKENIZERS if name not in EXTREMES])
def test_code_points_at_the_edges_of_classes_split_as_the_reference_library(name):
    """Every code point where some set begins or ends, and those whose properties were changed lately: in context."""
    edges = REGEX_DISAGREES & (np.arange(0x110000) % 16 == 0)
    for table in unicode_sets._table():
        members = unicode_sets.frozen(table)
        edges[np.flatnonzero(np.diff(members))] = edges[np.flatnonzero(np.diff(members)) + 1] = True
    characters = [chr(c) for c in np.flatnonzero(edges).tolist() if not 0xD800 <= c < 0xE000]
    peer = hugging_face(name)
    texts = characters[::7] + ["".join(map(in_context, some)) for some in batched(characters, 500)]
    for text, words in zip(texts, split(PreTokenizer(name), texts), strict=True):
        assert words == peer(text)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name in patterns.PATTERNS or name == "deepseek_v3"])
def test_every_code_point_alone_and_in_context(name):
    """Where regex has the same idea of the character; the others are compared above, and all of them in a slow test."""
    characters = [chr(c) for c in ALL_CODE_POINTS if not REGEX_DISAGREES[c]]
    pretokenizer = PreTokenizer(name)
    alone = Documents.from_strings(characters)
    words = pretokenizer.split(alone)
    assert words.document_ends.tolist() == list(range(1, len(characters) + 1))
    assert words.ends.tolist() == alone.offsets[1:].tolist()
    together = "".join(f"a{c}b\n" for c in characters)
    compiled = [regex.compile(pattern) for pattern in PUBLISHED[name]]
    assert split(pretokenizer, [together]) == [by_patterns(compiled, together)]


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_what_a_name_promises(name):
    """Batches and single texts agree; what is not dropped stands in order; the spec gives the same splits."""
    texts = [text or "" for text in TEXTS]
    pretokenizer = PreTokenizer(name)
    words = split_bytes(pretokenizer, texts)
    again = PreTokenizer.from_spec(json.loads(json.dumps(pretokenizer.spec)))
    assert again.fingerprint == pretokenizer.fingerprint
    assert split_bytes(again, texts) == words
    for text, found in zip(texts, words, strict=True):
        assert split_bytes(pretokenizer, [text]) == [found]
        assert b"" not in found
        joined = b"".join(found)
        if name.startswith("metaspace"):
            assert joined.removeprefix("▁".encode()) == text.replace(" ", "▁").removeprefix("▁").encode()
        elif name in DROPS:
            assert re.sub(rb"\s", b"", joined) == re.sub(r"[\s\x85]", "", text, flags=re.A).encode()
        else:
            assert joined == text.encode()


def split_bytes(pretokenizer, texts: list[str]) -> list[list[bytes]]:
    return pretokenizer.split(Documents.from_strings(texts)).to_list()


def test_the_extremes():
    assert PreTokenizer("none").split_text("a b\n") == ["a b\n"]
    assert split_bytes(PreTokenizer("byte"), ["aé", "", "b"]) == [[b"a", b"\xc3", b"\xa9"], [], [b"b"]]
    assert PreTokenizer("byte").split_text("é") == ["\\xc3", "\\xa9"]


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5, 6, 7, 1000, 1001])
def test_digits_from_the_right(digits):
    text = ("1234567890" * 101)[:digits]
    words = PreTokenizer("digits_right3").split_text(f"a{text}.{text}")
    number = f"{int('1' + text):,}".split(",") if digits % 3 else None
    sizes = [digits % 3] * (digits % 3 > 0) + [3] * (digits // 3)
    cuts = list(itertools.accumulate(sizes, initial=0))
    groups = [text[a:b] for a, b in itertools.pairwise(cuts)]
    assert words == ["a", *groups, ".", *groups]
    assert number is None or len(number) >= len(groups)


@pytest.mark.parametrize("behavior", steps.BEHAVIORS)
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", [r"\s", r"\d+", r"a+(?!b)", r"[^\n]", r"\bx|-"])
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_behaviors_are_those_of_hugging_face(pattern, behavior, invert):
    t = pytest.importorskip("tokenizers")
    peer = t.pre_tokenizers.Split(t.Regex(pattern), behavior, invert)
    ours = PreTokenizer({"type": "split", "pattern": pattern, "behavior": behavior, "invert": invert})
    rng = random.Random(3)
    texts = ["", " ", "x", *("".join(rng.choices("aab  12\nx-é", k=rng.randint(1, 12))) for _ in range(500))]
    for text, words in zip(texts, split(ours, texts), strict=True):
        assert words == _words(peer)(text), repr(text)


@pytest.mark.parametrize("prepend", steps.PREPENDS)
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("mark", ["▁", "_", "é", "😀"])
def test_metaspace_after_a_step_that_drops_white_space(prepend, cut, mark):
    t = pytest.importorskip("tokenizers")
    p = t.pre_tokenizers
    metaspace = p.Metaspace(replacement=mark, prepend_scheme=prepend, split=cut)
    setting = {"type": "metaspace", "replacement": mark, "prepend": prepend, "split": cut}
    rng = random.Random(4)
    texts = ["", " ", mark, *("".join(rng.choices(f"ab  \n{mark}é", k=rng.randint(1, 12))) for _ in range(500))]
    for first, peer_first in (
        (["whitespace_split"], [p.WhitespaceSplit()]),
        ([{"type": "split", "pattern": r"\n"}], [p.Split("\n", "isolated")]),
        ([], []),
    ):
        ours = PreTokenizer([*first, setting])
        peer = p.Sequence([*peer_first, metaspace])
        for text, words in zip(texts, split(ours, texts), strict=True):
            assert words == _words(peer)(text), repr(text)


def test_sequences_cut_further():
    sequence = PreTokenizer(["digits", {"type": "split", "pattern": r"\s+"}, "(?:ab)+"])
    assert sequence.split_text("xab12  abab y") == ["x", "ab", "1", "2", "  ", "abab", " ", "y"]
    assert PreTokenizer(["gpt2"]).fingerprint == PreTokenizer("gpt2").fingerprint
    assert sequence.pattern is None
    assert sequence.split(Documents.from_strings([])).to_list() == []


@pytest.mark.parametrize(
    ("pattern", "text", "words"),
    [
        (r"\d+", "ab12cd3", ["ab", "12", "cd", "3"]),  # text between matches is a word
        (r"x*", "axxb", ["a", "xx", "b"]),  # empty matches split nothing by themselves
        (r"(?=b)", "aabb", ["aa", "b", "b"]),  # but a look-ahead's position is a border
        (r"(a)(b)?", "abaab", ["ab", "a", "ab"]),  # groups do not matter
        (r"é|日", "xé日y", ["x", "é", "日", "y"]),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_gaps_empty_matches_and_groups(pattern, text, words):
    assert PreTokenizer(pattern).split_text(text) == words


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cl100k", "did you mean 'cl100k_base'"),
        ("GPT2", "did you mean 'gpt2'"),
        ("digits,gpt2", r"give several as a list \(\[digits, gpt2\]"),
        ("gpt2 ", "one as gpt2"),
        ("{type: metaspace, prepend: first}", "goes into a configuration"),
        ("(unclosed", "not a regular expression"),
        ("", "expected a name"),
        (None, "expected a name"),
        (3, "expected a name"),
        (["gpt2", 3], "expected a name"),
        ({"type": "splt"}, "is not one of split, metaspace"),
        ({"pattern": "a"}, "type None"),
        ({"type": "split"}, "a pattern is missing"),
        ({"type": "split", "pattern": "("}, "not a regular expression"),
        ({"type": "split", "pattern": "a", "behaviour": "removed"}, "unknown key 'behaviour'"),
        ({"type": "split", "pattern": "a", "behavior": "gone"}, "not one of isolated"),
        ({"type": "split", "pattern": "a", "invert": "yes"}, "true or false"),
        ({"type": "metaspace", "prepend": "sometimes"}, "not one of never"),
        ({"type": "metaspace", "replacement": "ab"}, "not one character"),
        ({"type": "digit_groups", "size": 0}, "from 1 to 1000"),
        ({"type": "digit_groups", "size": True}, "from 1 to 1000"),
        ({"type": [1]}, "is not one of split"),
        ({"type": "metaspace", "replacement": "\ud800"}, "not valid Unicode"),
        ({"type": "metaspace", "split": 1}, "true or false"),
        ("\ud800+", "not valid Unicode"),
        (["byte", "gpt2"], "only be the last step"),
        ("(" * 1000, r"\.\.\. is not a regular expression"),
    ],
)
def test_a_setting_is_checked_before_a_job_starts(setting, message):
    with pytest.raises(ConfigError, match=message):
        PreTokenizer(setting)


def test_a_list_in_itself_is_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="lists in lists"):
        PreTokenizer(endless)


def test_a_pattern_that_would_hang_is_stopped(monkeypatch):
    monkeypatch.setattr(user_patterns, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(user_patterns, "TIMEOUT_SECONDS_PER_MB", 0.0)
    # Look-behind is left to regex, which backtracks.
    with pytest.warns(ShardpieceWarning, match="look-behind|group"):
        catastrophic = PreTokenizer(["whitespace_split", r"(?<!x)(?:a+a+)+b"])
    with pytest.raises(DocumentError, match="ran for more than") as caught:
        catastrophic.split(Documents.from_strings(["fine", "", "also fine", "a " + "a" * 5000]))
    assert caught.value.index == 3


def test_fingerprint_is_of_what_splits_alone():
    named = PreTokenizer("gpt2")
    assert PreTokenizer(patterns.PATTERNS["gpt2"]).fingerprint == named.fingerprint
    assert PreTokenizer("r50k_base").fingerprint == named.fingerprint
    different = {PreTokenizer(name).fingerprint for name in PRETOKENIZERS}
    assert len(different) == len(PRETOKENIZERS) - 3  # gpt2 by four names


@pytest.mark.parametrize("name", ["metaspace", "digits_right3", "starcoder", "unicode_scripts"])
def test_a_damaged_spec_is_refused(name):
    spec = PreTokenizer(name).spec
    for step in range(len(spec["steps"])):
        for key in spec["steps"][step]:
            for value in (None, "damaged", 10**6, {}):
                if key in ("pattern", "invert", "split"):
                    continue  # the pattern is kept for people to read; any value has a truth
                damaged = json.loads(json.dumps(spec))
                damaged["steps"][step][key] = value
                with pytest.raises((FormatError, ConfigError)):
                    PreTokenizer.from_spec(damaged)
    for value in ("17.0", None):
        with pytest.raises(FormatError, match="Unicode"):
            PreTokenizer.from_spec({**spec, "unicode": value})
    groups = PreTokenizer("digits_right3").spec
    groups["steps"][0]["numbers"] |= {"engine": "regex", "unicode": f"regex {regex.__version__}"}
    with pytest.raises(ConfigError, match="compiled pattern"):
        PreTokenizer.from_spec(groups)

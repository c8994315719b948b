"""Compiled patterns against the regex module: published ones, generated ones, and what is left to that module."""

import json
import warnings

import numpy as np
import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardpiece.errors import DocumentError, FormatError, ShardpieceWarning
from shardpiece.text import regex_syntax, unicode_sets
from shardpiece.text import splitter as splitters
from shardpiece.text.dfa import DFA, compile_pattern
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.splitter import Splitter
from tests.text import reference
from tests.text.reference import split_by


def split(pattern: str, texts: list[str]) -> list[list[str]]:
    """Words by the compiled pattern alone."""
    return split_by(Splitter(compile_pattern(pattern)), texts)


atoms = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "1",
        r"\s",
        r"\p{L}",
        r"\p{N}",
        r"[^\s\p{L}]",
        "[ab1-3]",
        ".",
        "(?i:s)",
        "(?i:s(?-i:k)s)",
        r"[^a]",
        " ",
        r"\n",
        r"\p{Lu}",
        "(?i:[k-s])",
    ]
)


def extend(inner):
    # regex joins two quantifiers on one item; a group keeps them apart.
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?", "+?", "??"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, repeats).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, st.sampled_from([r"(?!\S)", "(?=a)", "(?![ab])", r"\z", r"(?=\s)"])).map("".join),
        st.tuples(atoms, st.sampled_from(["++", "*+", "?+", "{1,2}+"])).map("".join),
    )


patterns = st.recursive(atoms, extend, max_leaves=8)
texts = st.lists(st.text("ab1 \nésSK\u212aſX中😀\t3", max_size=14), min_size=1, max_size=8)


@settings(max_examples=600, deadline=None)
@given(patterns, texts)
def test_generated_patterns_split_as_regex(pattern, texts):
    try:
        compiled = split(pattern, texts)
    except UnsupportedPattern:
        assume(False)
    assert compiled == [reference.words(regex.compile(pattern), text) for text in texts]


@pytest.mark.parametrize("name", PATTERNS)
def test_long_runs_take_linear_time(name):
    """A megabyte of anything is split, and as regex splits a short piece of it."""
    compiled = Splitter(compile_pattern(PATTERNS[name]))
    for unit in (
        "a",
        "A",
        "aA",
        " ",
        "\n",
        " \n",
        "1",
        "^",
        "'",
        "'s",
        "é",
        "中",
        "\u0301",
        "\r\n",
        "a ",
        "=-",
        "\u00a0",
        "😀",
    ):
        text = unit * (1_000_000 // len(unit.encode()))
        ends, _ = compiled.split(Documents.from_strings([text]))
        assert ends[-1] == len(text.encode())
        short = unit * 200
        assert split(PATTERNS[name], [short]) == [regex.findall(PATTERNS[name], short)]


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"(?<=a)b", r"group \(\?<="),
        (r"\bword", r"escape \\b"),
        (r"^a|b", r"anchor \^"),
        (r"a$", r"anchor \$"),
        (r"(a)\1", r"escape \\1"),
        (r"(?=ab)a", "look-ahead of other than one character"),
        (r"a*", "matches the empty string"),
        (r"(?>a|ab)c", r"group \(\?>"),
        (r"[a-z&&[aeiou]]", "class"),
        (r"(?:ab){e<=1}", "fuzzy"),
        (r"a{100}", "more than 64"),
        (r"(?:ab)++a", "possessive repeat of more than"),
        (r"a++a", "what follows could have matched"),
        (r"\s++(?!\S)", "before a look-ahead"),
        (r"(?:a*)*b", "may be empty"),
        (r"a(*SKIP)b", r"group \(\*SK"),
    ],
)  # fmt: skip
def test_what_is_left_to_regex_is_named(pattern, construct):
    with pytest.raises(UnsupportedPattern, match=construct):
        compile_pattern(pattern)
    with pytest.warns(ShardpieceWarning, match="the regex module splits instead"):
        fallback = PreTokenizer(pattern)
    for text in ("abcab word aab", "a", "b a\nb", "aeiou"):
        assert fallback.split_text(text) == reference.words(regex.compile(pattern), text)
    assert PreTokenizer.from_spec(fallback.spec).fingerprint == fallback.fingerprint


def test_published_patterns_compile_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in PATTERNS:
            assert PreTokenizer(name).steps[0].dfa is not None


def test_the_stored_tables_decide_not_the_installed_regex(monkeypatch):
    """An artifact keeps its own idea of what a letter is."""
    spec = json.loads(json.dumps(PreTokenizer("gpt2").spec))
    [step] = spec["steps"]
    dfa = DFA.from_spec(step["tables"])
    altered = dfa.class_of.copy()
    altered[ord("é")] = altered[ord("!")]
    changed = {**spec, "steps": [{**step, "tables": DFA(altered, dfa.transitions).to_spec()}]}
    monkeypatch.setattr("shardpiece.text.steps.compile_pattern", None)
    assert PreTokenizer.from_spec(spec).split_text("caféx") == ["caféx"]
    frozen = PreTokenizer.from_spec(changed)
    assert frozen.split_text("caféx") == ["caf", "é", "x"]
    assert frozen.fingerprint != PreTokenizer.from_spec(spec).fingerprint


@pytest.mark.parametrize(
    "damage",
    [
        {"transitions": ["0 0"]},
        {"transitions": []},
        {"transitions": ["0 0 9999", "0 0 0"]},
        {"transitions": ["x"]},
        {"classes": ""},
        {"classes": "5:0"},
        {"classes": "0:0 0:1"},
        {"classes": "0:ff"},
        {"classes": "0:0 110000:0"},
        {"classes": None},
        {"classes": "0:0 fffffffffffffffffff:1"},
        {"transitions": ["0 0 0", "1 1 1"]},
    ],
)
def test_damaged_tables_never_reach_the_kernel(damage):
    spec = PreTokenizer("gpt2").spec
    [step] = spec["steps"]
    with pytest.raises(FormatError, match="damaged"):
        PreTokenizer.from_spec({**spec, "steps": [{**step, "tables": {**step["tables"], **damage}}]})
    with pytest.raises(FormatError, match="damaged"):
        PreTokenizer.from_spec({**spec, "steps": [{**step, "engine": "java"}]})


def test_a_pattern_that_reads_ahead_for_nothing_is_stopped(monkeypatch):
    monkeypatch.setattr(splitters, "WORK_PER_DOCUMENT", 1000)
    greedy = PreTokenizer(r"(?:a+a+)+b|a")
    assert greedy.split_text("aab" * 1000) == ["aab"] * 1000
    with pytest.raises(DocumentError, match="too many steps") as caught:
        greedy.split(Documents.from_strings(["fine", "a" * 5000]))
    assert caught.value.index == 1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_utf8_stay_in_bounds(raw):
    """Documents are valid UTF-8 by construction; the kernel must not read astray even if they were not."""
    data = np.frombuffer(raw, np.uint8)
    offsets = np.array([0, len(raw)])
    offsets.flags.writeable = False
    for name in PATTERNS:
        ends, _ = Splitter(compile_pattern(PATTERNS[name])).split(Documents(data, offsets))
        assert ends.tolist() == sorted(set(ends.tolist()))
        assert not raw or ends[-1] == len(raw)


@pytest.mark.parametrize(
    "expression",
    [r"(?i:[\p{Ll}a])", r"(?i:[\p{Lu}a])", r"(?i:[\p{L}'])", r"(?i:[^\s\p{L}\p{N}])", r"(?i:[\P{L}k])", r"(?i:\ua7cb)",
     r"(?i:[^k-s])", r"(?i:\P{Lu})", r"(?i:[\w-])", r"[]a\-b-f]", r"[^]a]", r"[+--]", r"[\D\n]", r"\p{^L}", r"[\x41-\u0100]"],
)  # fmt: skip
def test_classes_have_the_characters_regex_gives_them(expression):
    """Where regex has the same idea of a character as the frozen sets."""
    node = regex_syntax.parse(expression)
    while not isinstance(node, regex_syntax.Chars):
        [node] = node.parts
    agree = unicode_sets.frozen("Cn") == unicode_sets.asked(r"\p{Cn}")
    agree[0x295] = False  # a letter whose case was changed
    assert not ((node.members != unicode_sets.asked(expression)) & agree).any()


@pytest.mark.parametrize(
    "pattern",
    ["|".join(map(chr, range(0x4E00, 0x5E00))), f"(?:{'a' * 30_000})", "|".join(f"ab{i}" for i in range(9000))],
)
def test_patterns_too_large_to_compile_are_left_to_regex(pattern):
    with pytest.warns(ShardpieceWarning, match="more than 300 different|a pattern of this size"):
        words = PreTokenizer(pattern).split_text("一x丁")
    assert words == (["一", "x", "丁"] if pattern[0] == "一" else ["一x丁"])

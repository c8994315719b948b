"""Patterns as they are written into tokenizer.json: Hugging Face's library splits by them as we do."""

import json

import pytest
from hypothesis import assume, given, settings

import shardpiece
from shardpiece.errors import FormatError
from shardpiece.text.dfa import compile_pattern
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.splitter import Splitter
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats.oniguruma import spelled
from tests.conftest import TEXTS
from tests.text.reference import split, split_by
from tests.text.test_dfa import patterns, texts
from tests.text.test_pretokenizers import generated

tokenizers = pytest.importorskip("tokenizers")


def peer(pattern: str):
    found = tokenizers.pre_tokenizers.Split(tokenizers.Regex(spelled(pattern)), "isolated")
    return lambda text: [word for word, _ in found.pre_tokenize_str(text)]


@settings(max_examples=300, deadline=None)
@given(patterns, texts)
def test_generated_patterns(pattern, texts):
    try:
        ours = Splitter(compile_pattern(pattern))
    except UnsupportedPattern:
        assume(False)
    assert split_by(ours, texts) == [peer(pattern)(text) for text in texts]


@pytest.mark.parametrize(
    "pattern",
    [r"\w+", r"\W", r"[\w-]+", r"\d{1,3}+", r"(?s:.)", r"(?s).+", r"(?P<n>a)b*", r"\p{Script=Greek}+", r"\p{IsGreek}|a",
     r"(?i:ss|straße)", r"(?i:[a-k])+", r"(?i:\p{Lu})", r"\U0001F600", r"a{3}?b|a", r"(?:ab){2,}?", r"[^\S\r\n]+",
     r"\s++|\S", r"x\z|a(?!b)", r"é|[à-ü]+", r"."],
)  # fmt: skip
def test_what_ruby_reads_in_another_way_is_written_out(pattern):
    some = [text for text in [*TEXTS, *generated(300, 8)] if text]
    for text, words in zip(some, split(shardpiece.PreTokenizer(pattern), some), strict=True):
        assert words == peer(pattern)(text), repr(text)


@pytest.mark.parametrize(
    "pattern",
    [r"\s+$|\S+", r"^a|b", r"\bx", r"(?m)a$", r"[a-z&&[^aeiou]]", r"(?:ab){e<=1}", r"(?V1)[\w--\d]", r"\X", r"\m",
     r"a(*SKIP)b"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_what_has_no_equal_is_refused_before_training(pattern):
    with pytest.raises(FormatError, match=r"cannot be written into tokenizer\.json"):
        shardpiece.train_bpe(shardpiece.WordTable.from_texts(["ab ab"], pattern), 257)
    replacing = shardpiece.TextEngine("gpt2", {"type": "replace", "pattern": pattern, "content": ""})
    with pytest.raises(FormatError, match=r"cannot be written into tokenizer\.json"):
        shardpiece.train_bpe(shardpiece.WordTable.from_texts(["ab ab"], replacing), 257)


def test_patterns_are_spelled_for_people_where_they_can_be():
    assert spelled(r"ab?c{2,3}|[x-z]+(?!a)\z") == r"ab?c{2,3}|[x-z]+(?!a)\z"
    assert spelled(r"a{3}?b?\U00000061") == r"(?:a{3})(?:b?)a"
    assert spelled(PATTERNS["o200k_base"]) == PATTERNS["o200k_base"]


def test_a_file_that_the_library_has_written_again_loads_and_an_altered_one_does_not(tmp_path):
    ours = shardpiece.train_bpe(
        shardpiece.WordTable.from_texts([text or "" for text in TEXTS], shardpiece.TextEngine(r"\w+|\W", "nfc")),
        400, special_tokens=["<s>"],
    )  # fmt: skip
    artifact.save(ours, str(tmp_path))
    path = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer.from_file(str(path)).save(str(path))
    assert shardpiece.load(str(tmp_path)).fingerprint == ours.fingerprint
    good = json.loads(path.read_text())
    for change in (
        lambda c: c["model"].update(ignore_merges=True),
        lambda c: c["model"].update(byte_fallback=True),
        lambda c: c["added_tokens"][0].update(lstrip=True),
        lambda c: c.update(normalizer=None),
        lambda c: c.update(decoder=None),
        lambda c: c["pre_tokenizer"]["pretokenizers"].pop(),
    ):
        content = json.loads(json.dumps(good))
        change(content)
        path.write_text(json.dumps(content))
        with pytest.raises(FormatError, match="one of the two files was changed"):
            shardpiece.load(str(tmp_path))

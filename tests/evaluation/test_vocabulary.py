"""What tokens say and are, numbers and white space, glitch candidates, probes."""

import numpy as np
import pytest

import shardpiece
from shardpiece.evaluation import cuts, glitch, numbers
from shardpiece.evaluation.tally import TokenTally
from shardpiece.evaluation.vocabulary import CATEGORIES, SCRIPTS, Said, allocation, serves
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.tokenizer import Tokenizer


def of_tokens(*more: bytes, engine="gpt2", special=()) -> Tokenizer:
    """Every byte, and tokens that are words of their own."""
    return Tokenizer(
        shardpiece.TextEngine(engine), BPEModel.from_ranks([*(bytes([b]) for b in range(256)), *more]), special
    )


def test_what_tokens_say(tokenizers):
    said = Said(tokenizers["bpe"])
    assert said.texts[: len(tokenizers["bpe"].model)] == list(tokenizers["bpe"].model.vocab)
    wordpiece = Said(tokenizers["wordpiece"])
    model = tokenizers["wordpiece"].model.vocab
    assert wordpiece.texts[model.index(b"##e")] == b"e"
    assert wordpiece.texts[model.index(b"e")] == b" e"
    assert not wordpiece.ordinary[tokenizers["wordpiece"].special_id("[UNK]")]
    unigram = Said(tokenizers["unigram"])
    vocab = tokenizers["unigram"].model.vocab
    assert unigram.texts[vocab.index("▁".encode())] == b" "
    assert unigram.texts[vocab.index(b"e")] == b"e"


def test_categories_and_scripts():
    pieces = {
        b" river": ("letters", "Latin"),
        "नदी".encode(): ("letters", "Devanagari"),
        b"123": ("digits", "none"),
        b"!=": ("punctuation and symbols", "none"),
        b"   ": ("white space", "none"),
        b"x1": ("mixed", "Latin"),
        "aбв".encode(): ("letters", "Cyrillic"),
        "大海".encode(): ("letters", "Han"),
        b"\xe0\xa4": ("partial characters", "none"),
        "е̄".encode(): ("letters", "Cyrillic"),
    }
    said = Said(of_tokens(*pieces, special=["<|end|>"]))
    for i, (piece, (category, script)) in enumerate(pieces.items(), 256):
        assert (CATEGORIES[said.categories[i]], SCRIPTS[said.scripts[i]]) == (category, script), piece
    assert CATEGORIES[said.categories[0xE0]] == "single bytes"
    assert CATEGORIES[said.categories[256 + len(pieces)]] == "special"
    assert said.white_space[256 + 4] == 3
    assert said.white_space[ord("\n")] == 1
    assert said.white_space.sum() == 3 + said.of("white space")[:256].sum()
    found = allocation(said, TokenTally(said.tokenizer.vocab_size))
    assert found.by_category["partial characters"] == 1
    assert found.by_category["special"] == 1
    assert found.by_script["Devanagari"] == 1
    assert sum(found.by_length.values()) == 256 + len(pieces)
    assert found.by_group == {"unused": 256 + len(pieces)}


def test_tokens_serve_the_group_with_the_highest_share():
    tally = TokenTally(4)
    one = np.array([0, 1, 1, 2, 2, 2, 2, 2])
    tally.add_tokens(["b"], np.array([0]), one, np.array([0, 8]))
    tally.add_tokens(["a"], np.array([0]), np.array([0, 1]), np.array([0, 2]))
    owner, names = serves(tally)
    assert [names[n] if n >= 0 else None for n in owner.tolist()] == ["a", "a", "b", None]


def test_numbers_are_grouped_by_the_pre_tokenizer():
    every = [b"%0*d" % (width, n) for width in (2, 3) for n in range(10**width)]
    left = numbers.numbers(Said(of_tokens(*every, engine="cl100k_base")))
    assert (left.alike, left.grouping) == (1.0, "groups of 3 from the left")
    assert left.lengths[7].patterns == {"3+3+1": 200}
    assert left.lengths[7].tokens == 3
    right = numbers.numbers(Said(of_tokens(*every, engine=["digits_right3", "gpt2"])))
    assert right.grouping == "groups of 3 from the right"
    assert right.lengths[7].patterns == {"1+3+3": 200}
    single = numbers.numbers(Said(of_tokens(engine="qwen2")))
    assert (single.alike, single.grouping) == (1.0, "single digits")
    some = numbers.numbers(Said(of_tokens(b"12", b"123", b"99")))
    assert some.grouping == "numbers of one length are cut in different ways"
    assert some.lengths[2].numbers == 90
    assert some.lengths[2].patterns == {"1+1": 88, "2": 2}
    assert some.lengths[2].alike == pytest.approx(88 / 90)


def test_numbers_that_are_unknown_are_said_to_be(tokenizers):
    found = numbers.numbers(Said(tokenizers["unigram"]))
    assert found.grouping is not None
    assert all(sum(one.patterns.values()) <= one.numbers for one in found.lengths.values())


def test_white_space_of_code():
    plain = numbers.white_space(Said(of_tokens()))
    assert plain.indentation["4 spaces"] == [4 * n for n in range(1, 9)]
    assert plain.indentation["tab"] == list(range(1, 9))
    assert plain.longest_spaces_in_one_token == 1
    wide = numbers.white_space(Said(of_tokens(b"  ", b"   ", b" x", engine="gpt2")))
    assert wide.indentation["4 spaces"][0] == 1  # three spaces, and one that goes with the word
    assert wide.longest_spaces_in_one_token == 3


def test_glitch_candidates():
    tokenizer = of_tokens(b"river", b" sea", b"a b", b"\xe4\xb8", b"lo", b"low", special=["<|end|>"])
    said = Said(tokenizer)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    tokens, _ = tokenizer.encode_documents(_documents("river low low low"))
    np.add.at(counts, tokens, 1)
    found = glitch.glitches(said, counts, None, 10_000)
    by_id = {one.id: one for one in found.candidates}
    assert by_id[258].reasons == ["unreachable", "unused"]  # "a b": the pre-tokenizer cuts at the space
    assert by_id[257].reasons == ["unused"]
    assert by_id[259].reasons == ["partial_utf8", "unused"]
    assert 256 not in by_id
    assert by_id[0xC0].reasons == ["unreachable", "unused"]
    assert by_id[ord("q")].reasons == ["unused"]
    assert tokenizer.vocab_size - 1 not in by_id  # special
    assert found.counts["unreachable"] == 14
    assert found.counts["unused"] == int((counts == 0).sum()) - 1
    assert found.candidates[0].reasons[0] == "unreachable"
    assert len(glitch.glitches(said, counts, None, 5).candidates) == 5


def test_counts_of_the_training_say_what_to_expect():
    tokenizer = of_tokens(b"river", b" sea", b"low")
    said = Said(tokenizer)
    training = np.zeros(tokenizer.vocab_size, np.int64)
    training[[ord("a"), 256, 257, 258]] = [10_000, 1_000, 1_000, 4]
    counts = np.zeros_like(training)
    counts[[ord("a"), 256, 258]] = [12_000, 9, 1]
    found = {one.id: one for one in glitch.glitches(said, counts, training, 1_000).candidates}
    assert found[256].reasons == ["rare"]
    assert found[256].expected == pytest.approx(1_000 * 12_010 / 12_004, abs=1e-3)
    assert found[257].reasons == ["unused"]
    assert found[257].training_count == 1_000
    assert 258 not in found


def test_continuing_pieces_are_reached_within_words(tokenizers):
    for name in ("wordpiece", "unigram"):
        said = Said(tokenizers[name])
        lost = np.flatnonzero(glitch.unreachable(said, np.zeros(len(said.texts), np.int64)))
        # WordPiece keeps letters that every word of the table has merged away; no more than these may be left.
        assert len(lost) < 0.2 * len(said.texts), [said.texts[i] for i in lost]


def test_probes_show_the_term_alone_and_after_a_space(tokenizers):
    tokenizer = of_tokens(b"RC", b" RC", b"04")
    found = cuts.probe(Said(tokenizer), "RC0402")
    assert found.alone.pieces == ["RC", "04", "0", "2"]
    assert found.after_space.pieces == ["·RC", "04", "0", "2"]
    assert found.round_trip
    assert cuts.probe(Said(tokenizers["wordpiece"]), "low  er").round_trip is False


def test_spans_of_tokenizers_that_put_a_space_before(tokenizers):
    said = Said(tokenizers["unigram"])
    cut = cuts.sample_tokens(said, "sea sea")
    assert b"".join(b"sea sea"[a:b] for _, a, b in cut.spans) == b"sea sea"
    assert cut.spans[0][1:] == (0, 3)
    assert cuts.sample_tokens(said, "sea ☃").spans is None
    assert cuts.sample_tokens(Said(tokenizers["wordpiece"]), "two  spaces ☃").spans is None


def _documents(*texts: str):
    from shardpiece.text.documents import Documents

    return Documents.from_strings(list(texts))

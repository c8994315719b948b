"""WordPiece training against a plain-Python recount and against the tokenizers library."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training import wordpiece_kernels
from shardpiece.training.alphabet import character_symbols
from shardpiece.training.wordpiece import learn_wordpiece
from tests.conftest import ROOT
from tests.training.test_alphabet import arrays


def reference(words, n_merges, min_frequency, max_length=10**9, reserved=(), prefix="##"):
    """WordPiece by likelihood, everything recounted at every step. ``words``: [(base symbols, None for a border; count)];
    ``min_frequency``: None for one that falls by halves. Scores are fractions of counts below 2^62; two that differ do so
    by more than 2^-248. Returns [(left, right, count)]."""
    floor, merges = min_frequency or 2**62, []
    taken = {s for symbols, _ in words for s in symbols if s} | {
        s.removeprefix(prefix) for w, _ in words for s in w if s
    }
    taken |= set(reserved)
    length = dict.fromkeys(taken, 1)
    words = [(list(symbols), count) for symbols, count in words]
    while len(merges) < n_merges:
        single, pairs = {}, {}
        for symbols, count in words:
            for s in symbols:
                single[s] = single.get(s, 0) + count
            for pair in itertools.pairwise(symbols):
                pairs[pair] = pairs.get(pair, 0) + count
        best = min(
            (
                (-(n << 256) // (single[a] * single[b]), -n, a.encode(), b.encode(), a, b)
                for (a, b), n in pairs.items()
                if a and b and n >= floor
                and length[a] + length[b] <= max_length and a + b.removeprefix(prefix) not in taken
            ),
            default=None,
        )  # fmt: skip
        if best is None and (min_frequency or floor == 1):
            break
        if best is None:
            floor //= 2
            continue
        a, b = best[4:]
        joined = a + b.removeprefix(prefix)
        merges.append((a, b, -best[1]))
        taken.add(joined)
        length[joined] = length[a] + length[b]
        for symbols, _ in words:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == (a, b):
                    symbols[i : i + 2] = [joined]
                i += 1
    return merges


def spelled(symbols):
    """What the reference takes."""
    names = [None if s < 0 else symbols.alphabet[s].decode() for s in symbols.symbols.tolist()]
    counts = symbols.counts.tolist()
    return [(names[a:b], n) for (a, b), n in zip(itertools.pairwise(symbols.starts.tolist()), counts, strict=True)]


def learned(symbols, n_merges, **settings):
    """Our merges as the reference gives them; checks what must hold of any result."""
    result = learn_wordpiece(symbols, len(symbols.alphabet) + n_merges, **settings)
    first = len(symbols.alphabet)
    assert result.vocab[:first] == symbols.alphabet
    assert len(set(result.vocab)) == len(result.vocab) == first + len(result.merges)
    return [
        (result.vocab[a].decode(), result.vocab[b].decode(), n)
        for (a, b), n in zip(result.merges.tolist(), result.counts.tolist(), strict=True)
    ]


tables = st.lists(
    st.tuples(st.text(st.sampled_from("abc#"), min_size=1, max_size=20), st.integers(1, 40)),
    min_size=1,
    max_size=25,
    unique_by=lambda word: word[0],
)


@settings(max_examples=150, deadline=None)
@given(
    tables,
    st.sampled_from([1, 2, 5, None]),
    st.sampled_from([None, 2, 4]),
    st.sampled_from([b"##", b""]),
    st.sampled_from([{}, {"limit": 2}, {"suffix": b"</w>"}, {"suffix": b"</w>", "suffix_separate": True}]),
    st.sampled_from([1, 2**21, 2**33, 10**14]),
)
def test_equals_a_naive_recount(table, min_frequency, max_length, prefix, alphabet, factor):
    symbols = character_symbols(*arrays([(w.encode(), n * factor) for w, n in table]), prefix=prefix, **alphabet)
    min_frequency = min_frequency and min_frequency * factor
    expected = reference(spelled(symbols), 40, min_frequency, max_length or 10**9, ("abc", "##ab"), prefix.decode())
    assert expected == learned(
        symbols, 40, min_frequency=min_frequency, max_token_length=max_length, reserved=(b"abc", b"##ab"),
        prefix=prefix,
    )  # fmt: skip


def test_golden_merges_of_the_hugs_corpus():
    """The example of the Hugging Face course, which at equal scores takes the pair seen first: hu, where we take pu, the
    more frequent one."""
    words = [(b"hug", 10), (b"pug", 5), (b"pun", 12), (b"bun", 4), (b"hugs", 5)]
    symbols = character_symbols(*arrays(words), prefix=b"##")
    result = learn_wordpiece(symbols, len(symbols.alphabet) + 3, min_frequency=1)
    assert result.vocab[-3:] == [b"##gs", b"pu", b"hu"]
    assert result.counts.tolist() == [5, 17, 15]
    assert result.scores.tolist() == pytest.approx([1 / 20, 1 / 36, 1 / 19])
    assert result.complete
    result = learn_wordpiece(symbols, len(symbols.alphabet) + 3, criterion="frequency")
    assert result.vocab[-3:] == [b"##ug", b"##un", b"hug"]
    assert result.scores.tolist() == result.counts.tolist() == [20, 16, 15]


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_equals_a_naive_recount_on_text(text):
    words = shardpiece.WordTable.from_texts(text.splitlines()[:150], "bert")
    symbols = character_symbols(*words.arrays(), prefix=b"##")
    for min_frequency in (2, None):
        expected = reference(spelled(symbols), 60, min_frequency)
        assert expected == learned(symbols, 60, min_frequency=min_frequency)
        assert len(expected) > 40


@pytest.mark.slow
def test_equals_a_naive_recount_on_a_real_table(shared):
    table = pq.read_table(shared / "corpus" / "web_multilingual" / "part-00000.parquet", columns=["text"])
    words = shardpiece.WordTable.from_texts(table["text"].slice(0, 300).to_pylist(), "bert")
    symbols = character_symbols(*words.arrays(), prefix=b"##")
    for min_frequency in (20, None):
        expected = reference(spelled(symbols), 80, min_frequency)
        assert expected == learned(symbols, 80, min_frequency=min_frequency)


def hugging_face_pieces(texts, vocab_size: int, **settings) -> list[bytes]:
    """The vocabulary of its trainer, in order of its ids."""
    tokenizers = pytest.importorskip("tokenizers")
    peer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    peer.normalizer = tokenizers.normalizers.BertNormalizer(  # puts spaces around CJK characters
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=[], **settings
    )
    peer.train_from_iterator(texts, trainer)
    return [piece.encode() for piece in sorted(peer.get_vocab(), key=peer.token_to_id)]


def numbered_as(symbols, order: list[bytes]):
    """The same words with the alphabet in another order."""
    ids = np.array([order.index(piece) for piece in symbols.alphabet], np.int32)
    return replace(
        symbols,
        symbols=np.where(symbols.symbols < 0, -1, ids[symbols.symbols]),
        alphabet=order,
        frequencies=symbols.frequencies[np.argsort(ids)],
    )


def compare_with_hugging_face(texts, size: int, **settings) -> int:
    """Hugging Face's trainer numbers the ## characters in the order of its hash table, which differs from run to run, and
    decides ties by these numbers: two of its own runs give different vocabularies. So what must be equal is its
    vocabulary and ours when the characters have the numbers they had in that run: every piece, in order. Returns by how
    many pieces the vocabulary with our own numbers (by code point) differs."""
    words = shardpiece.WordTable.from_texts(texts, "bert")
    symbols = character_symbols(*words.arrays(), prefix=b"##")
    expected = hugging_face_pieces(texts, size, **settings)
    first = len(symbols.alphabet)
    characters = symbols.characters
    assert expected[:characters] == symbols.alphabet[:characters]
    assert sorted(expected[:first]) == sorted(symbols.alphabet)
    same = learn_wordpiece(numbered_as(symbols, expected[:first]), size, criterion="frequency", **settings)
    assert same.vocab == expected
    own = learn_wordpiece(symbols, size, criterion="frequency", **settings)
    assert len(own.vocab) == len(expected)
    return len(set(own.vocab) - set(expected))


@pytest.mark.parametrize("size", [300, 500])
@pytest.mark.parametrize("settings", [{}, {"min_frequency": 3}])
def test_frequency_equals_hugging_face(text, size, settings):
    assert compare_with_hugging_face(text.splitlines(), size, **settings) < size // 10


def test_frequency_equals_hugging_face_as_a_set_where_no_tie_is_cut():
    words = ["low"] * 11 + ["lower"] * 5 + ["newest"] * 18 + ["widest"] * 7
    symbols = character_symbols(*arrays([(b"low", 11), (b"lower", 5), (b"newest", 18), (b"widest", 7)]), prefix=b"##")
    ours = learn_wordpiece(symbols, 100, criterion="frequency")
    assert set(ours.vocab) == set(hugging_face_pieces([" ".join(words)], 100))


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["code", "web_multilingual", "books"])
def test_frequency_equals_hugging_face_on_a_corpus(shared, corpus):
    tables = [pq.read_table(p, columns=["text"]) for p in sorted(shared.glob(f"corpus/{corpus}/*.parquet"))]
    texts = pa.concat_tables(tables)["text"]
    texts = texts.take(pa.array(range(0, len(texts), max(1, texts.nbytes // 21_000_000)))).to_pylist()
    assert sum(len(text.encode()) for text in texts) > 20_000_000
    assert compare_with_hugging_face(texts, 32_768) < 100


@pytest.mark.parametrize("criterion", ["likelihood", "frequency"])
def test_the_order_of_the_words_does_not_matter(text, criterion):
    counter = shardpiece.WordTable.from_texts(text.splitlines(), "bert").to_counter()
    results = []
    for words in (sorted(counter.items()), sorted(counter.items(), key=lambda item: item[0][::-1])):
        symbols = character_symbols(*arrays(words), prefix=b"##")
        results.append(learn_wordpiece(symbols, 700, criterion=criterion))
    assert results[0].vocab == results[1].vocab
    assert (results[0].counts == results[1].counts).all()
    assert len(results[0].vocab) == 700


def test_counts_beyond_32_bits():
    table = [(b"ab", 2**31 + 1), (b"cd", 2**32 + 1), (b"ad", 2**31)]
    symbols = character_symbols(*arrays(table), prefix=b"##")
    result = learn_wordpiece(symbols, len(symbols.alphabet) + 2, min_frequency=1)
    assert result.vocab[-2:] == [b"ab", b"cd"]
    assert result.counts.tolist() == [2**31 + 1, 2**32 + 1]
    assert result.scores.tolist() == pytest.approx([1 / (2**32 + 1), 1 / (2**32 + 2**31 + 1)], rel=1e-12)
    falling = learn_wordpiece(symbols, len(symbols.alphabet) + 2)
    assert falling.vocab[-2:] == [b"cd", b"ab"]  # above 2^32 there is cd alone; then ab and ad have the same score
    assert falling.scores.tolist() == pytest.approx([1 / (2**32 + 2**31 + 1), 1 / (2**32 + 1)], rel=1e-12)
    result = learn_wordpiece(symbols, len(symbols.alphabet) + 1, criterion="frequency")
    assert (result.vocab[-1], result.counts.tolist()) == (b"cd", [2**32 + 1])


@pytest.mark.parametrize("numbers", [(1, 2, 3), (2**21, 2**21 + 1, 3), (2**61 + 1, 2**61 + 3, 2**61 + 5)])
def test_products_are_compared_exactly(numbers):
    for left in itertools.product([*numbers, 2**62 - 1, 2**32], repeat=3):
        for right in itertools.product(numbers, repeat=3):
            exact = left[0] * left[1] * left[2] - right[0] * right[1] * right[2]
            given = wordpiece_kernels.compare_products(*left, *right)
            assert given == (exact > 0) - (exact < 0)


@pytest.mark.parametrize("criterion", ["likelihood", "frequency"])
def test_what_cannot_be_reached_is_said(criterion):
    symbols = character_symbols(*arrays([(b"low", 5), (b"lot", 2)]), prefix=b"##")
    lines = []
    result = learn_wordpiece(symbols, 100, criterion=criterion, log=lines.append)
    assert result.complete
    assert {b"low", b"lot"} < set(result.vocab)
    assert f"the vocabulary has {len(result.vocab)} pieces, not 100" in lines[-1]
    rare = learn_wordpiece(symbols, 100, criterion=criterion, min_frequency=3, log=lines.append)
    assert b"low" in rare.vocab
    assert b"lot" not in rare.vocab
    with pytest.raises(ConfigError, match="alphabet alone has 7"):
        learn_wordpiece(symbols, 6, criterion=criterion)
    assert learn_wordpiece(symbols, 7, criterion=criterion).vocab == symbols.alphabet


@pytest.mark.parametrize("criterion", ["likelihood", "frequency"])
def test_progress_and_stop(text, criterion):
    symbols = character_symbols(*shardpiece.WordTable.from_texts(text.splitlines(), "bert").arrays(), prefix=b"##")
    whole = learn_wordpiece(symbols, 700, criterion=criterion)
    seen = []
    watched = learn_wordpiece(symbols, 700, criterion=criterion, progress=seen.append)
    assert watched.vocab == whole.vocab
    assert seen[-1].done == seen[-1].total == 700 - len(symbols.alphabet)
    for asked in ([True], [False, True]):
        answers = iter(asked)
        stopped = learn_wordpiece(
            symbols, 10_000, criterion=criterion, stop=lambda answers=answers: next(answers, True)
        )
        assert not stopped.complete
        assert len(symbols.alphabet) <= len(stopped.vocab)
        assert stopped.vocab[:700] == whole.vocab[: len(stopped.vocab)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"criterion": "loss"}, "not one of likelihood, frequency"),
        ({"min_frequency": 0}, "at least 1"),
        ({"max_token_length": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work(settings, message):
    symbols = character_symbols(*arrays([(b"low", 5)]), prefix=b"##")
    with pytest.raises(ConfigError, match=message):
        learn_wordpiece(symbols, 20, **settings)


@pytest.mark.parametrize("criterion", ["likelihood", "frequency"])
def test_words_too_long_and_no_words(criterion):
    with pytest.raises(TrainingError, match="65535"):
        learn_wordpiece(character_symbols(*arrays([(b"a" * 65_536, 1)]), prefix=b"##"), 20, criterion=criterion)
    empty = character_symbols(*arrays([]), prefix=b"##")
    assert learn_wordpiece(empty, 20, criterion=criterion).vocab == []

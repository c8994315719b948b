"""WordPiece encoding against a few lines of Python, the tokenizers library, and published vocabularies."""

import time
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.wordpiece import WordPieceModel
from tests.conftest import TEXTS
from tests.tokenizer.test_wordlevel import encoded, of_words

CORPUS = [text or "" for text in TEXTS]


def longest_match_first(word: bytes, model: WordPieceModel) -> list[int]:
    """As BERT's tokenizer does it (Devlin et al. 2019)."""
    ids = {piece.decode(): i for i, piece in enumerate(model.vocab) if piece is not None}
    text = word.decode()
    if len(text) > model.max_characters:
        return [model.unk_id]
    tokens, start = [], 0
    while start < len(text):
        prefix = model.prefix.decode() if start else ""
        ends = [end for end in range(start + 1, len(text) + 1) if prefix + text[start:end] in ids]
        if not ends:
            return [model.unk_id]
        tokens.append(ids[prefix + text[start : ends[-1]]])
        start = ends[-1]
    return tokens


letters = st.sampled_from("ab#é日")
pieces = st.lists(st.tuples(st.sampled_from(["", "##", "#"]), st.text(letters, max_size=4)), max_size=25)


@settings(max_examples=200, deadline=None)
@given(
    pieces,
    st.lists(st.lists(st.text(letters, min_size=1, max_size=14), max_size=6), max_size=4),
    st.sampled_from(["", "##", "#"]),
    st.sampled_from([1, 5, 12, 100]),
)
def test_equals_the_reference(pieces, documents, prefix, most):
    vocab = (b"ab", None, *dict.fromkeys((mark + text).encode() for mark, text in pieces if mark + text != "ab"))
    model = WordPieceModel(vocab, 1, prefix.encode(), most)
    documents = [[word.encode() for word in words] for words in documents]
    expected = [[i for word in words for i in longest_match_first(word, model)] for words in documents]
    assert encoded(model, documents) == expected


def peer_and_model(vocab: list[str], lowercase: bool = False, most: int = 100):
    """BERT as the tokenizers library has it, and our model and engine."""
    tokenizers = pytest.importorskip("tokenizers")
    ids = {text: i for i, text in enumerate(vocab)}
    peer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=most))
    peer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    own = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    model = WordPieceModel(tuple(None if t in own else t.encode() for t in vocab), ids["[UNK]"], max_characters=most)
    return peer, model, TextEngine("bert", {"type": "bert", "lowercase": lowercase})


def equal_ids(peer, model, engine, texts: list[str]) -> set[int]:
    """Compare the ids of every text; returns those that occur."""
    words = engine.split(Documents.from_strings(texts))
    tokens, offsets = model.encoder().encode(words)
    ours = [tokens[a:b].tolist() for a, b in pairwise(offsets)]
    for first in range(0, len(texts), 2000):
        chunk = texts[first : first + 2000]
        for text, one, other in zip(chunk, ours[first:], peer.encode_batch_fast(chunk), strict=False):
            assert one == other.ids, text[:100]
    return set(tokens.tolist())


@pytest.mark.parametrize("most", [3, 100])
def test_equals_the_tokenizers_library_with_a_trained_vocabulary(most):
    tokenizers = pytest.importorskip("tokenizers")
    trained = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]"], show_progress=False)
    trained.train_from_iterator(CORPUS[::2] * 3, trainer)
    vocab = sorted(trained.get_vocab(), key=trained.token_to_id)
    assert (
        len(equal_ids(*peer_and_model(vocab, most=most), [*CORPUS, "x" * 100, "x" * 101, "low" * 33, "low" * 34])) > 20
    )


@pytest.mark.parametrize("most", [1, 5, 100])
@pytest.mark.parametrize("prefix", ["##", "", "é"])
def test_unknown_words_are_those_of_the_tokenizers_library(most, prefix):
    tokenizers = pytest.importorskip("tokenizers")
    pieces = ["a", "ab", "é", "日", "日本", "x", "é##"]
    vocab = list(dict.fromkeys(["[UNK]", "##", *pieces, *(prefix + piece for piece in (*pieces, "b", "abab"))]))
    ids = {text: i for i, text in enumerate(vocab)}
    peer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            ids, unk_token="[UNK]", max_input_chars_per_word=most, continuing_subword_prefix=prefix
        )
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model = WordPieceModel([None, *(text.encode() for text in vocab[1:])], 0, prefix.encode(), most)
    words = [
        "a",
        "b",
        "ab",
        "abab",
        "ababab",
        "é",
        "éé",
        "日本日",
        "日本語",
        "本",
        "##",
        "##a",
        "a##",
        "é##",
        "x日é",
        "xb",
    ]
    words += [c * n for c in "aéx日b" for n in (4, 5, 6, 20, 99, 100, 101, 400)]
    words += ["日" * 99 + "b", "é" * 50 + "ab" * 25, "日" * 100 + "?", "e\u0301" * 2, "e\u0301" * 3, "🙂", "a🙂"]
    texts = [" ".join(words), " ".join(reversed(words)), *words]
    tokens, offsets = model.encoder().encode(TextEngine("whitespace_split").split(Documents.from_strings(texts)))
    assert [tokens[a:b].tolist() for a, b in pairwise(offsets)] == [peer.encode(text).ids for text in texts]


@pytest.mark.parametrize("name", ["bert-base-cased", "bert-base-uncased"])
def test_equals_the_tokenizers_library_with_published_vocabularies(shared, name):
    vocab = (shared / "vocabs" / name / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    tables = [pq.read_table(p, columns=["text"]) for p in sorted(shared.glob("corpus/*/*.parquet"))]
    texts = pa.concat_tables(tables)["text"]
    sample = texts.take(pa.array(range(0, len(texts), texts.nbytes // 4_000_000))).to_pylist()
    assert len(equal_ids(*peer_and_model(vocab, "uncased" in name), sample)) > 10_000


def test_more_words_than_the_cache_holds():
    words = [f"{i % 5000:x}".encode() * (1 + i % 3) for i in range(30_000)]
    pieces = [f"{mark}{c}".encode() for mark in ("", "##") for c in "0123456789abcdef"]
    model = WordPieceModel((None, *pieces, b"##ab", b"1f"), 0)
    tokens, _ = model.encoder(cache_bytes=1).encode(of_words([words]))
    assert tokens.tolist() == [i for word in words for i in longest_match_first(word, model)]


def test_a_long_word_is_not_quadratic():
    vocab = (None, b"a", *(b"##" + b"a" * n for n in range(1, 20)))
    word = b"a" * 4_000_000
    assert encoded(WordPieceModel(vocab, 0), [[word]]) == [[0]]
    encoder, words = WordPieceModel(vocab, 0).encoder(), of_words([[word]] * 50)
    start = time.process_time()
    assert encoder.encode(words)[0].tolist() == [0] * 50
    assert time.process_time() - start < 0.5  # by length, unread
    tokens = encoded(WordPieceModel(vocab, 0, max_characters=10**7), [[word]])[0]
    assert tokens == [1, *[20] * (3_999_999 // 19), 1 + 3_999_999 % 19]


def test_models_that_cannot_work_are_refused():
    with pytest.raises(FormatError, match="same byte string"):
        WordPieceModel((None, b"a", b"a"), 0)
    with pytest.raises(FormatError, match="no valid UTF-8"):
        WordPieceModel((None, b"\xff"), 0)
    for unk in (None, -1, 1):
        with pytest.raises(FormatError, match="unknown token"):
            WordPieceModel((b"a",), unk)
    with pytest.raises(FormatError, match="max_characters"):
        WordPieceModel((None, b"a"), 0, max_characters=0)
    model = WordPieceModel((None, b"a"), 0)
    assert (len(model), model.pieces(), model.kind) == (2, [None, b"a"], "wordpiece")
    others = [WordPieceModel((None, b"b"), 0), WordPieceModel((None, b"a"), 1), WordPieceModel((None, b"a"), 0, b"_")]
    assert len({b"".join(one.identity()) for one in (model, *others)}) == 4

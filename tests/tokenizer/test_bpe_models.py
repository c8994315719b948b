"""BPE models of every kind against plain Python: what words are made of, what is unknown, and vocabularies without merges."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import FormatError
from shardpiece.text.documents import Words
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.bpe_tables import pair_table
from shardpiece.tokenizer.vocabulary import Vocabulary

LETTERS = "abé世"
seeds = st.integers(0, 10**6)
texts = st.lists(st.text(LETTERS + "x𝛼", min_size=1, max_size=60), min_size=1, max_size=6)
BYTE_PIECES = [b"<0x%02X>" % b for b in range(256)]


def encoded(model: BPEModel, words: list[bytes]) -> list[list[int]]:
    """Each word as a document of its own."""
    ends = np.cumsum([len(word) for word in words]).astype(np.int64)
    split = Words(np.frombuffer(b"".join(words), np.uint8), 0, ends, np.arange(1, len(words) + 1))
    tokens, offsets = model.encoder(1 << 12).encode(split)
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def merged(symbols: list[int], model: BPEModel) -> list[int]:
    ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(model.merges.tolist())))}
    symbols = list(symbols)
    while True:
        found = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]
        if not found:
            return symbols
        rank, i = min(found)
        symbols[i : i + 2] = [int(model.merged[rank])]


def by_definition(model: BPEModel, word: bytes) -> list[int]:
    ids = model.vocab.ids
    if model.ignore_merges and word in ids:
        return [ids[word]]
    units = [bytes([b]) for b in word] if model.alphabet == "bytes" else [c.encode() for c in word.decode()]
    symbols = []
    for i, unit in enumerate(units):
        spelled = (model.prefix if i else b"") + unit + (model.suffix if i == len(units) - 1 else b"")
        if spelled in ids:
            symbols.append(ids[spelled])
        elif model.byte_fallback:
            symbols += [ids[b"<0x%02X>" % b] for b in unit]
        elif not model.drop_unknown and not (model.fuse_unk and symbols and symbols[-1] == model.unk_id):
            symbols.append(model.unk_id)
    return merged(symbols, model)


def random_model(seed: int, alphabet: str, prefix: bytes, suffix: bytes, unknown: str) -> BPEModel:
    rng = random.Random(seed)
    units = [bytes([b]) for b in range(256)] if alphabet == "bytes" else [c.encode() for c in LETTERS]
    vocab = {
        front + unit + back: None for unit in units for front in {b"", prefix} for back in {b"", suffix} if unit
    }  # fmt: skip
    vocab = sorted(vocab)
    rng.shuffle(vocab)
    pairs, mergeable = [], len(vocab)
    own = LETTERS.encode()
    pool = [i for i, piece in enumerate(vocab) if set(piece.removeprefix(prefix).removesuffix(suffix)) <= set(own)]
    for _ in range(40):
        a, b = rng.choice(pool), rng.choice(pool)
        if suffix and vocab[a].endswith(suffix):
            continue
        joined = vocab[a] + vocab[b].removeprefix(prefix)
        if joined not in vocab:
            pool.append(len(vocab))
            vocab.append(joined)
        pairs.append((a, b))
    assert mergeable <= len(vocab)
    settings = {}
    if alphabet == "characters":
        if unknown == "bytes":
            vocab += BYTE_PIECES
            settings["byte_fallback"] = True
        elif unknown == "dropped":
            settings["drop_unknown"] = True
        else:
            settings |= {"unk_id": len(vocab), "fuse_unk": unknown == "fused"}
            vocab.append(b"<unk>")
    if rng.random() < 0.3:
        settings["ignore_merges"] = True
    return BPEModel(vocab, np.array(pairs, np.int32), alphabet, prefix, suffix, **settings)


@pytest.mark.parametrize(
    ("alphabet", "prefix", "suffix"),
    [("bytes", b"", b""), ("bytes", b"", b"</w>"), ("bytes", b"##", b""), ("characters", b"", b""),
     ("characters", b"", b"</w>"), ("characters", b"##", b"")],
)  # fmt: skip
@settings(max_examples=25, deadline=None)
@given(seed=seeds, words=texts, unknown=st.sampled_from(["bytes", "fused", "each", "dropped"]))
def test_equals_its_definition(alphabet, prefix, suffix, seed, words, unknown):
    model = random_model(seed, alphabet, prefix, suffix, unknown)
    words = [word.encode() for word in words]
    assert encoded(model, words) == [by_definition(model, word) for word in words]


def any_neighbours(text: bytes, units: list[bytes], key) -> list[bytes]:
    """Merge neighbours whose text has a key, the least first, leftmost first: what ranks and scores mean."""
    parts = list(units)
    while True:
        found = [(key(a + b), i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if key(a + b) is not None]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    words=st.lists(st.lists(st.sampled_from(b"abc"), min_size=1, max_size=60).map(bytes), min_size=1, max_size=5),
)
def test_ranks_merge_any_neighbours(seed, words):
    rng = random.Random(seed)
    vocab = [bytes([b]) for b in range(256)]
    longer = {bytes(rng.choices(b"abc", k=rng.choice([2, 2, 2, 3, 3, 4, 5, 8]))) for _ in range(30)}
    vocab += sorted(longer, key=lambda piece: rng.random())  # many cannot be reached, some are made of later ones
    model = BPEModel.from_ranks(vocab)
    ids = model.vocab.ids
    for word, tokens in zip(words, encoded(model, words), strict=True):
        parts = [word] if word in ids else any_neighbours(word, [bytes([b]) for b in word], ids.get)
        assert tokens == [ids[part] for part in parts]


@settings(max_examples=60, deadline=None)
@given(seed=seeds, words=st.lists(st.text("ab▁", min_size=1, max_size=60), min_size=1, max_size=5))
def test_scores_merge_any_neighbours_and_runs_grow_from_the_left(seed, words):
    rng = random.Random(seed)
    runs = ["▁" * n for n in range(2, 12) if rng.random() < 0.8]
    longer = {"".join(rng.choices("ab▁", k=rng.choice([2, 2, 3, 4]))) for _ in range(20)} - set(runs)
    vocab = ["<unk>", "a", "b", "▁", *runs, *sorted(longer)]
    score = dict.fromkeys(runs, -1000000000.0) | {piece: -rng.random() for piece in longer if set(piece) != {"▁"}}
    score |= {piece: -1e9 for piece in longer if set(piece) == {"▁"}}
    scores = np.array([score.get(piece, 0.0) for piece in vocab])
    model = BPEModel.from_scores(
        [piece.encode() for piece in vocab], scores, unk_id=0, mergeable=np.array([piece in score for piece in vocab])
    )  # fmt: skip
    for word, tokens in zip(words, encoded(model, [word.encode() for word in words]), strict=True):
        parts = any_neighbours(word, list(word), lambda text: -score[text] if text in score else None)
        assert [vocab[i] for i in tokens] == parts


def test_equal_scores_that_leave_the_order_open_are_refused():
    with pytest.raises(FormatError, match="one score"):
        BPEModel.from_scores([b"<unk>", b"a", b"b", b"ab", b"ba"], np.array([0, 0, 0, -1.0, -1.0]), unk_id=0,
                             mergeable=np.array([False, False, False, True, True]))  # fmt: skip
    with pytest.raises(FormatError, match="has a character that is no piece"):
        BPEModel.from_scores([b"<unk>", b"a", b"ab"], np.array([0, 0, -1.0]), unk_id=0,
                             mergeable=np.array([False, False, True]))  # fmt: skip


def test_more_tokens_than_a_table_of_pairs_holds_are_refused():
    one = np.array([0], np.int32)
    with pytest.raises(FormatError, match="2,097,150"):
        pair_table(one, one, np.array([2**21 - 2], np.int32))


def test_a_vocabulary_is_a_sequence_of_pieces():
    vocab = Vocabulary.of([b"a", None, b"", "世".encode()])
    assert list(vocab) == [b"a", None, b"", "世".encode()]
    assert vocab[3] == "世".encode()
    assert vocab[1:3] == (None, b"")
    assert b"a" in vocab
    assert b"b" not in vocab
    assert (vocab.index(b""), vocab.index(None)) == (2, 1)
    assert None in vocab
    assert vocab == Vocabulary(vocab.data, vocab.offsets, vocab.present)
    assert vocab != Vocabulary.of([b"a", b"", b"", "世".encode()])
    assert vocab.ids == {b"a": 0, b"": 2, "世".encode(): 3}
    with pytest.raises(FormatError, match="tokens 0 and 2 are the same byte string b'a'"):
        Vocabulary.of([b"a", b"b", b"a"]).check_distinct()


def test_tokens_of_thousands_of_symbols_made_out_of_order_are_neighbours():
    tokenizers = pytest.importorskip("tokenizers")
    runs = [b"a" * 2**k for k in range(13)]
    vocab = [bytes([b]) for b in range(256)] + runs[1:]
    ids = [vocab.index(run) for run in runs]
    pairs = [(i, i) for i in reversed(ids[:-1])]  # the longest first: parts are made at higher ranks than the whole
    text = "a" * 30_000 + "b"
    spell = {run: run.decode() for run in runs} | {b"b": "b"}
    peer = tokenizers.models.BPE(
        {spell[piece]: i for i, piece in enumerate(vocab) if piece in spell},
        [(vocab[a].decode(),) * 2 for a, _ in pairs],
    )
    assert encoded(BPEModel(vocab, np.array(pairs, np.int32)), [text.encode()]) == [
        [token.id for token in peer.tokenize(text)]
    ]

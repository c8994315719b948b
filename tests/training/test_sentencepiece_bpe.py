"""BPE in SentencePiece's style against its own trainer: the same pieces in the same order, and the same ids for text.

sentencepiece 0.2.3 takes the best pair from an exact queue, so they agree on tables of any size; versions before it look
at the most frequent pairs alone and may differ on large ones.
"""

import io
import warnings

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError
from shardpiece.tokenizer.formats import sentencepiece as f
from shardpiece.tokenizer.formats import sentencepiece_tokenizer
from tests.conftest import TEXTS

ENGINE = shardpiece.TextEngine("metaspace_never", {"type": "sentencepiece", "rule": "nmt_nfkc"})
LINES = [line for text in TEXTS if text for line in text.splitlines() if line.strip()]
MOST = 1 << 12

SMALL = {
    "mixed": LINES * 2,
    "runs and ties": ["aaaa aaaaa aa a", "abab ababab baba", "aabb bbaa abba", "zz zzz zzzz", "cab bac abc"],
    "digits": ["1 12 123 1234 2024 2025 a1 a12 1a x2024 3.14 3,141 10% 1-2-3", "１２３ 12３ ٣٤٥ २०२४ ① Ⅻ"] * 3,
    "punctuation": ["(a) [b] {c} ... --- !!! ?!? a.b.c e.g. i.e. http://a.b/c?d=e&f=g", "«a» „b“ “c” ‘d’ — – …"] * 3,
    "japanese": ["東京都に行きました。カタカナとひらがなとカナー。ラーメン、コーヒー、東京タワー", "漢字かな交じり文 ABC漢字 ｶﾞｷﾞ"] * 3,
    "scripts": ["мир world мир2world αβγabc", "שלום hello مرحبا नमस्ते สวัสดี 안녕하세요", "e\u0301a\u0308 x\u0301\u0302 \u0301b"] * 3,
    "spaces": ["  two  spaces ", "tab\there", "nbsp\u00a0here", "ideographic\u3000space", "a ▁b ▁▁ c▁", "zero\u200bwidth"] * 3,
}  # fmt: skip


def theirs(lines: list[str], vocab_size: int, **options) -> f.SentencePieceFile:
    library = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=vocab_size, minloglevel=2,
        max_sentence_length=1 << 20, **options,
    )  # fmt: skip
    return f.read_model(out.getvalue())


def ours(lines: list[str], vocab_size: int, **options) -> shardpiece.Tokenizer:
    table = shardpiece.WordTable.from_texts(lines, ENGINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", shardpiece.errors.ShardpieceWarning)
        return shardpiece.train_bpe(table, vocab_size, style="sentencepiece", **options)


def loaded(raw: bytes):
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor()
    processor.LoadFromSerializedProto(raw)
    return processor


def check_same(
    lines: list[str], size: int, texts: list[str], byte_fallback: bool = False, **options
) -> shardpiece.Tokenizer:
    """Train both and compare everything; with a ``size`` of MOST there are as many merges as there can be."""
    named = {"max_token_length": "max_sentencepiece_length", "initial_alphabet": "required_chars"}
    tokenizer = ours(lines, size, byte_fallback=byte_fallback, **options)
    size = tokenizer.vocab_size
    if not tokenizer.provenance["merges"]:
        return tokenizer  # the library wants one at least
    given = {named.get(key, key): "".join(v) if isinstance(v, list) else v for key, v in options.items()}
    peer = theirs(lines, size, byte_fallback=byte_fallback, **given)
    written = f.read_model(sentencepiece_tokenizer.to_bytes(tokenizer))
    assert written.pieces == peer.pieces
    assert (written.types, written.scores.tolist()) == (peer.types, peer.scores.tolist())
    for name in ("unk_id", "bos_id", "eos_id", "pad_id", "byte_fallback", "model_type", "vocab_size"):
        assert written.trainer[name] == peer.trainer[name]
    # The model file as the library reads it, and our own encoder.
    expected = loaded(f.write_model(peer)).encode(texts)
    assert loaded(f.write_model(written)).encode(texts) == expected
    assert tokenizer.encode_batch(texts).to_pylist() == expected
    return tokenizer


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_small_texts(name, byte_fallback):
    lines = SMALL[name]
    texts = [*lines, *LINES, "unseen: ☃ Ж 語 𝄞", ""]
    tokenizer = check_same(lines, MOST, texts, byte_fallback)
    merges = tokenizer.provenance["merges"]
    assert merges > 5
    for fewer in (merges // 2, 1):
        check_same(lines, tokenizer.vocab_size - merges + fewer, texts, byte_fallback)


@pytest.mark.parametrize(
    "options",
    [
        {"character_coverage": 1.0},
        {"character_coverage": 0.98},
        {"character_coverage": 0.98, "initial_alphabet": ["é", "漢", "2"]},
        {"max_token_length": 3},
        {"max_token_length": 500},
        {"character_coverage": 0.99, "max_token_length": 7},
    ],
    ids=str,
)
def test_settings(options):
    lines = [line for name in SMALL for line in SMALL[name]]
    check_same(lines, MOST, lines, **options)
    check_same(lines, MOST, lines, byte_fallback=True, **options)


def test_a_vocabulary_smaller_than_its_alphabet_is_refused():
    least = 3 + 256 + len({*"▁abcdeé"})
    assert ours(["abcdeé abc"], least, character_coverage=1.0).vocab_size == least
    with pytest.raises(ConfigError, match=f"need {least}"):
        ours(["abcdeé abc"], least - 1, character_coverage=1.0)


words = st.text(st.sampled_from("aab1.-éдあー漢\u0301▁"), min_size=1, max_size=7)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.lists(words, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=8))
def test_generated_texts(lines):
    if not any(ENGINE.split_text(line) for line in lines):
        return
    check_same(lines, MOST, lines, character_coverage=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "size"), [("web_multilingual", 8000), ("code", 8000), ("books", 16_000)])
def test_real_texts(group, size, shared):
    lines = []
    for path in sorted((shared / "corpus" / group).glob("*.parquet")):
        column = pq.read_table(path, columns=["text"])["text"].drop_null()
        texts = column.take(list(range(0, len(column), max(1, len(column) // 40)))).to_pylist()
        lines += [line for text in texts for line in text[:200_000].split("\n") if line.strip()]
    reserved = ("▅", "<s>", "</s>", "<unk>")  # lines that their trainer skips or cuts
    lines = [line for line in lines if not any(text in line for text in reserved)]
    check_same(lines, size, lines[::50], character_coverage=0.999)

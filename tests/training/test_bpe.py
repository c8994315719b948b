"""train_bpe: settings, specials, and equality with the peers' trainers on small text."""

import pytest

import shardpiece
from shardpiece.errors import ConfigError, TrainingError
from shardpiece.text.byte_alphabet import spell
from tests.conftest import TEXTS

CORPUS = [text or "" for text in TEXTS] * 4


@pytest.fixture(scope="module")
def words():
    return shardpiece.WordTable.from_texts(CORPUS, "llama3")


def spelled_merges(tokenizer) -> list[tuple[str, str]]:
    vocab = [spell(token) for token in tokenizer.model.vocab]
    return [(vocab[a], vocab[b]) for a, b in tokenizer.model.merges.tolist()]


def hugging_face_merges(texts, pattern, vocab_size) -> list[tuple[str, str]]:
    import json

    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    peer = Tokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    peer.train_from_iterator(texts, trainer)
    return [tuple(pair) for pair in json.loads(peer.to_str())["model"]["merges"]]


def rustbpe_tokens(texts, pattern, vocab_size) -> list[bytes]:
    import rustbpe

    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter(texts), vocab_size, pattern=pattern)
    return [bytes(token) for token, _ in sorted(peer.get_mergeable_ranks(), key=lambda item: item[1])]


def test_equals_hugging_face(words):
    pytest.importorskip("tokenizers")
    ours = shardpiece.train_bpe(words, 700, tie_break="id")
    assert spelled_merges(ours) == hugging_face_merges(CORPUS, words.engine.pretokenizer.pattern, 700)


def test_equals_rustbpe(words):
    pytest.importorskip("rustbpe")
    ours = shardpiece.train_bpe(words, 700, tie_break="id", alphabet_order="raw")
    assert list(ours.model.vocab) == rustbpe_tokens(CORPUS, words.engine.pretokenizer.pattern, 700)


def test_special_tokens_are_never_learned():
    table = shardpiece.WordTable.from_counts({"<s>": 1000, "<s>x": 500}, r"\S+")
    assert b"<s>" in shardpiece.train_bpe(table, 262).model.vocab
    tokenizer = shardpiece.train_bpe(table, 262, special_tokens=["<s>"])
    assert b"<s>" not in tokenizer.model.vocab
    assert tokenizer.special_id("<s>") == tokenizer.vocab_size - 1


def test_exhausted_table_is_said(words):
    said = []
    tokenizer = shardpiece.train_bpe(words, 100_000, min_frequency=5, log=said.append)
    assert tokenizer.vocab_size < 100_000
    assert any("exhausted" in line and f"{tokenizer.vocab_size:,}" in line for line in said)
    assert tokenizer.provenance["last_merge_count"] >= 5


def test_groups_are_summed():
    import pyarrow as pa

    grouped = shardpiece.WordTable(
        pa.table(
            {
                "word": pa.array([b"aab", b"aab", b"xyz"], pa.large_binary()),
                "group": ["de", "en", "en"],
                "count": pa.array([3, 4, 5]),
            }
        ),
        shardpiece.WordTable.from_counts({}, "gpt2").metadata,
    )
    plain = shardpiece.WordTable.from_counts({"aab": 7, "xyz": 5}, "gpt2")
    assert shardpiece.train_bpe(grouped, 260).model.vocab == shardpiece.train_bpe(plain, 260).model.vocab


def test_words_beyond_the_limit_are_left_out_and_said():
    said = []
    table = shardpiece.WordTable.from_counts({"low": 5, "z" * 70_000: 9}, "gpt2")
    tokenizer = shardpiece.train_bpe(table, 258, log=said.append)
    assert tokenizer.model.vocab[256:] == (b"lo", b"low")
    assert any("1 words of more than 65,535 bytes" in line for line in said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 200}, "too small: 256 bytes and 0 special tokens need 256"),
        ({"vocab_size": 256, "special_tokens": ["<s>"]}, "need 257"),
        ({"vocab_size": 300, "alphabet_order": "random"}, "alphabet_order"),
        ({"vocab_size": 300, "tie_break": "random"}, "tie_break"),
        ({"vocab_size": 300, "engine": "gpt2"}, "counted with PreTokenizer..llama3"),
    ],
)
def test_settings_that_cannot_work(words, arguments, message):
    with pytest.raises(ConfigError, match=message):
        shardpiece.train_bpe(words, **arguments)


def test_a_table_must_say_its_pretokenizer():
    with pytest.raises(ConfigError, match="pass engine="):
        shardpiece.train_bpe(shardpiece.WordTable.from_counts({"a": 1}), 300)
    table = shardpiece.WordTable.from_counts({"ab": 1})
    assert shardpiece.train_bpe(table, 257, engine="gpt2").model.vocab[256] == b"ab"


def test_an_empty_table_is_an_error():
    with pytest.raises(TrainingError, match="empty"):
        shardpiece.train_bpe(shardpiece.WordTable.from_texts([], "gpt2"), 300)


def test_memory_is_checked_before_the_loop(words, monkeypatch):
    monkeypatch.setattr("shardpiece.training.merge_loop.available_bytes", lambda: 1000)
    with pytest.raises(TrainingError, match="more memory"):
        shardpiece.train_bpe(words, 300)

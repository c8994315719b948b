"""Every algorithm and style through the public door: what comes out is encoded alike by the library of its kind."""

import numpy as np
import pytest

import shardpiece
from shardpiece.errors import ConfigError, TrainingError
from shardpiece.tokenizer import artifact
from shardpiece.training.monitor import Monitor
from shardpiece.training.prepare import settings
from shardpiece.training.trainers import train_sizes
from tests.conftest import TEXTS

CORPUS = [text or "" for text in TEXTS] * 4 + ["hello world </w> foo</w> ##a b##c"]
STRANGE = ["zebra ЖЖЖ 😀 unknown ↯ chars", "Hello   world  ", "", " ", "[UNK] of <unk> ▁ x"]
SENTENCEPIECE = ("metaspace_never", {"type": "sentencepiece", "rule": "nmt_nfkc"})
BERT = ("bert", "bert")
BYTES = ("cl100k_base", None)
CASES = [
    ("bpe", BYTES, {"special_tokens_at": "front", "reserved_slots": 3, "multiple_of": 64}),
    ("bpe", BYTES, {"reserved_tokens": ["  ", "    ", "12", "the"]}),
    ("bpe", BYTES, {"separate": {"letters_and_digits": True, "scripts": True, "max_digits": 2}}),
    ("bpe", BYTES, {"cut": {}}),
    ("bpe", SENTENCEPIECE, {"style": "sentencepiece"}),
    ("bpe", SENTENCEPIECE, {"style": "sentencepiece", "byte_fallback": False, "character_coverage": 0.9}),
    ("bpe", ("metaspace", None), {"style": "sentencepiece"}),
    ("bpe", ("whitespace_split", None), {"style": "end-of-word"}),
    ("bpe", BERT, {"style": "continuing"}),
    ("wordpiece", BERT, {}),
    ("wordpiece", BERT, {"criterion": "frequency", "limit_alphabet": 60}),
    ("unigram", SENTENCEPIECE, {}),
    ("unigram", SENTENCEPIECE, {"byte_fallback": True}),
    ("unigram", SENTENCEPIECE, {"sentencepiece": {"split_digits": True, "split_by_unicode_script": False}}),
    ("bpe", SENTENCEPIECE, {"style": "sentencepiece", "sentencepiece": {"split_digits": True}, "max_token_length": 4}),
    ("word", ("whitespace_split", None), {}),
    ("character", ("character", None), {}),
    ("byte", ("byte", None), {}),
]


def words(engine) -> shardpiece.WordTable:
    return shardpiece.WordTable.from_texts(CORPUS, shardpiece.TextEngine(*engine))


@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
@pytest.mark.parametrize(("algorithm", "engine", "given"), CASES)
def test_the_library_of_its_kind_encodes_and_decodes_alike(algorithm, engine, given):
    peer = pytest.importorskip("tokenizers").Tokenizer
    trained = shardpiece.train(words(engine), algorithm, vocab_size=700, **given)
    files = artifact.to_files(trained)
    loaded = artifact.from_files(files)
    assert loaded.fingerprint == trained.fingerprint
    hugging_face = peer.from_str(files["tokenizer.json"].decode())
    assert hugging_face.get_vocab_size() == trained.vocab_size
    texts = [text for text in CORPUS + STRANGE if not any(token in text for token in trained.special_tokens)]
    for text in texts:
        ids = loaded.encode(text)
        assert ids == hugging_face.encode(text, add_special_tokens=False).ids, text
        assert loaded.decode(ids) == hugging_face.decode(ids, skip_special_tokens=False), text
    assert ("tokenizer.model" in files) == (engine is SENTENCEPIECE)
    if engine is SENTENCEPIECE:
        processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=files["tokenizer.model"])
        for text in texts:
            if algorithm == "unigram" and len(text) > 500:
                continue  # 3,000 times a letter: sums of 32-bit floats there, of 64-bit floats here
            assert processor.encode(text) == loaded.encode(text), text
            if loaded.model.unk_id not in loaded.encode(text):  # that library has a sign for it
                assert processor.decode(processor.encode(text)) == loaded.decode(loaded.encode(text)), text


def test_special_tokens_slots_and_padding():
    trained = shardpiece.train(
        words(BYTES), vocab_size=400, special_tokens=["<s>", "<|reserved_1|>"], special_tokens_at="front",
        reserved_slots=2, multiple_of=64,
    )  # fmt: skip
    special = trained.special_tokens
    assert list(special.items())[:4] == [
        ("<s>", 0),
        ("<|reserved_1|>", 1),
        ("<|reserved_0|>", 2),
        ("<|reserved_2|>", 3),
    ]
    assert trained.model.vocab[:4] == (None,) * 4
    assert trained.token_bytes(4) == b"!"
    assert trained.vocab_size == 448  # 400, and slots up to the next multiple of 64
    assert list(special.items())[4:] == [(f"<|reserved_{i}|>", 397 + i) for i in range(3, 51)]
    behind = shardpiece.train(words(BYTES), vocab_size=400, special_tokens=["<s>"], reserved_slots=2)
    assert behind.special_tokens == {"<s>": 397, "<|reserved_0|>": 398, "<|reserved_1|>": 399}


def test_reserved_tokens_come_first_and_are_used():
    trained = shardpiece.train(words(BYTES), vocab_size=300, special_tokens=[], reserved_tokens=["  ", "    ", "the"])
    assert trained.model.vocab[256:260] == (b"  ", b"    ", b"th", b"the")
    assert trained.token_bytes(trained.encode("x     ")[1]) == b"    "


def test_merges_that_classes_forbid():
    table = shardpiece.WordTable.from_counts({"abc123": 50, "12345": 40, "abж": 30}, r"\S+")
    rules = {"letters_and_digits": True, "scripts": True, "max_digits": 3}
    trained = shardpiece.train(table, vocab_size=300, special_tokens=[], separate=rules)
    learned = [token.decode(errors="ignore") for token in trained.model.vocab[256:]]
    assert "123" in learned
    assert "abc" in learned
    assert all(len(token) <= 3 for token in learned)
    assert not any("c1" in token or "bж" in token for token in learned)


def test_several_sizes_are_prefixes_of_one_training():
    config = settings("bpe", {"vocab_sizes": "300, 400,350", "special_tokens": ["<s>"]})
    trained = train_sizes(words(BYTES), config, monitor=Monitor())
    assert list(trained.tokenizers) == [300, 350, 400]
    for size, tokenizer in trained.tokenizers.items():
        alone = shardpiece.train(words(BYTES), vocab_size=size, special_tokens=["<s>"])
        assert tokenizer.fingerprint == alone.fingerprint
        assert tokenizer.vocab_size == size
        assert tokenizer.provenance["last_merge_count"] == alone.provenance["last_merge_count"]


@pytest.mark.parametrize("tie_break", ["lexicographic", "id", "first_seen", "lexicographic_last"])
def test_a_training_that_was_stopped_goes_on_to_the_same_tokenizer(tie_break):
    config = settings("bpe", {"vocab_size": 560, "tie_break": tie_break, "reserved_tokens": ["  "]})
    kept = []
    first = train_sizes(words(BYTES), config, monitor=Monitor(checkpoint=lambda get: kept.append(get())))
    assert kept[-1].shape[1] == 3
    half = kept[-1][: len(kept[-1]) // 2]
    again = []
    monitor = Monitor(checkpoint=lambda get: again.append(get()))
    second = train_sizes(words(BYTES), config, monitor=monitor, initial=half)
    assert second.largest.fingerprint == first.largest.fingerprint
    assert second.largest.provenance == first.largest.provenance
    assert (again[-1] == kept[-1]).all()


def test_stop_leaves_a_tokenizer_that_works():
    config = settings("bpe", {"vocab_size": 560})
    trained = train_sizes(words(BYTES), config, monitor=Monitor(stop=lambda: True))
    assert not trained.complete
    assert trained.largest.provenance["partial"]
    assert trained.largest.decode(trained.largest.encode("lowest")) == "lowest"


def test_counts_above_32_bits_reach_the_tokenizer():
    table = shardpiece.WordTable.from_counts({"the": 2**33, "xy": 2**32 + 1, "zz": 2**31}, "gpt2")
    trained = shardpiece.train(table, vocab_size=260, special_tokens=[])
    assert trained.model.vocab[256:] == (b"he", b"the", b"xy", b"zz")
    assert trained.provenance["last_merge_count"] == 2**31


def test_mixture_weights_change_the_merges_and_min_frequency_keeps_its_meaning():
    import pyarrow as pa

    rows = {"word": [b"aa", b"bb", b"bb"], "group": ["x", "y", "z"], "count": [10, 3, 4]}
    schema = pa.schema([("word", pa.large_binary()), ("group", pa.string()), ("count", pa.int64())])
    table = shardpiece.WordTable(pa.table(rows, schema), words(BYTES).metadata)

    def learned(**given):
        return shardpiece.train(table, vocab_size=300, special_tokens=[], **given).model.vocab[256:]

    assert learned() == (b"aa", b"bb")
    assert learned(weights={"x": 1, "y": 2, "z": 1}) == (b"bb", b"aa")
    assert learned(weights={"x": 1, "y": 1, "z": 0}, min_frequency=7) == ()
    assert learned(weights={"x": 3, "y": 1, "z": 0}, min_frequency=7) == (b"aa",)  # 13 × 3/4
    assert learned(temperature=0) == (b"bb", b"aa")
    with pytest.raises(ConfigError, match="'q'"):
        learned(weights={"x": 1, "y": 1, "z": 1, "q": 1})


def test_pruning_is_reported_by_group():
    said = []
    table = shardpiece.WordTable.from_counts({"aa": 5, "bbb": 1}, "gpt2")
    trained = shardpiece.train(table, vocab_size=300, special_tokens=[], min_count=2, monitor=Monitor(log=said.append))
    assert trained.model.vocab[256:] == (b"aa",)
    assert any("min_count 2 leaves out 23.1% of all bytes (3)" in line for line in said)
    assert trained.provenance["words"]["pruned_bytes"] == {"": 3}


@pytest.mark.parametrize(
    ("algorithm", "given", "message"),
    [
        ("unigram", {"style": "byte-level"}, "style byte-level does not go with algorithm unigram"),
        ("wordpiece", {"unk_token": "<none>"}, "unk_token '<none>' is not among special_tokens"),
        ("wordpiece", {"vocab_size": 20}, r"an alphabet of \d+ and 5 special tokens need \d+"),
        ("bpe", {"reserved_tokens": [""]}, "empty text"),
        ("bpe", {"style": "sentencepiece"}, "needs words that begin with ▁"),
        ("bpe", {"unk_token": "<unk>"}, "unk_token does not go with style byte-level"),
        ("wordpiece", {"byte_fallback": True}, "byte_fallback goes with style sentencepiece"),
        ("bpe", {"style": "continuing", "reserved_tokens": ["lo"]}, "reserved_tokens go with"),
        ("unigram", {"min_frequency": 3}, "min_frequency goes with algorithm"),
        ("wordpiece", {"special_tokens": ["[UNK]", "##o"]}, "'##o' is an ordinary token"),
        ("bpe", {"special_tokens": ["é"]}, "spells a single byte"),
        ("bpe", {"parity": {}}, "no groups"),
        ("unigram", {"parity": {}}, "parity goes with algorithm bpe"),
        ("bpe", {"cut": {}, "tie_break": "first_seen"}, "cut does not go with"),
        ("bpe", {"special_tokens_at": "middle"}, "special_tokens_at"),
    ],
)
def test_settings_that_cannot_work(algorithm, given, message):
    with pytest.raises(ConfigError, match=message):
        shardpiece.train(words(BERT), algorithm, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocab_size": 300}, r"256 byte pieces and an alphabet of \d+ and 3 special"),
        ({"reserved_tokens": ["↯"]}, "not in the alphabet"),
        ({"special_tokens": ["<unk>", "<0x41>"]}, "'<0x41>' is an ordinary token"),
    ],
)
def test_settings_that_sentencepiece_cannot_have(given, message):
    with pytest.raises(ConfigError, match=message):
        shardpiece.train(words(SENTENCEPIECE), "bpe", style="sentencepiece", **given)


def test_mixtures_train_in_every_algorithm():
    table = shardpiece.WordTable.from_texts(CORPUS, shardpiece.TextEngine(*SENTENCEPIECE))
    half = len(table) // 2
    import pyarrow as pa

    groups = pa.array(["a"] * half + ["b"] * (len(table) - half))
    table = shardpiece.WordTable(table.table.set_column(1, "group", groups), table.metadata)
    for algorithm, style in (("unigram", None), ("bpe", "sentencepiece")):
        for given in ({"temperature": 0.3}, {"weights": {"a": 0.37123456789, "b": 0.31239871298371}}):
            trained = shardpiece.train(table, algorithm, style=style, vocab_size=600, **given)
            assert trained.vocab_size > 300


def test_counts_that_64_bits_cannot_add_up_are_refused():
    import pyarrow as pa

    rows = {"word": [b"ab"] * 4, "group": list("wxyz"), "count": [1 << 62] * 4}
    schema = pa.schema([("word", pa.large_binary()), ("group", pa.string()), ("count", pa.int64())])
    table = shardpiece.WordTable(pa.table(rows, schema), words(BYTES).metadata)
    for algorithm in ("bpe", "byte", "word"):
        with pytest.raises(TrainingError, match=r"2\^62"):
            shardpiece.train(table, algorithm)


def test_an_empty_table_is_an_error_for_all():
    for algorithm in ("bpe", "wordpiece", "unigram", "word", "character"):
        with pytest.raises(TrainingError, match="empty"):
            shardpiece.train(shardpiece.WordTable.from_counts({}, "gpt2"), algorithm)


def test_threads_change_nothing():
    tokenizers = [
        shardpiece.train(words(SENTENCEPIECE), "unigram", vocab_size=400, threads=threads) for threads in (1, 2, 3)
    ]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == 1
    assert len({np.asarray(tokenizer.model.scores).tobytes() for tokenizer in tokenizers}) == 1


@pytest.mark.parametrize(
    ("counts", "engine", "algorithm", "given"),
    [
        ({"low": 9}, "whitespace_split", "bpe", {"style": "end-of-word", "special_tokens": ["<unk>"], "special_tokens_at": "back"}),
        ({" low": 5, "low": 9}, "gpt2", "bpe", {"special_tokens": ["Ġlow"]}),
        ({"<unk>": 8, "a": 3}, "whitespace_split", "word", {}),
        ({"▁hello": 8, "▁a": 3}, "metaspace", "unigram", {"special_tokens": ["<unk>", "▁hello"]}),
        ({"<|reserved_5000|>": 9}, "whitespace_split", "bpe", {"multiple_of": 8192}),
        ({"a\0b": 9}, "metaspace_never", "bpe", {"style": "sentencepiece"}),
    ],
)  # fmt: skip
def test_special_tokens_that_the_words_spell(counts, engine, algorithm, given):
    peer = pytest.importorskip("tokenizers").Tokenizer
    table = shardpiece.WordTable.from_counts(counts, engine)
    trained = shardpiece.train(table, algorithm, vocab_size=400, **given)
    hugging_face = peer.from_str(artifact.to_files(trained)["tokenizer.json"].decode())
    for text in ("low xyz", "x é y", "a b"):
        assert trained.encode(text) == hugging_face.encode(text, add_special_tokens=False).ids


def test_slots_of_an_extended_vocabulary_have_names_of_their_own():
    base = shardpiece.train(shardpiece.WordTable.from_counts({"xy": 9}, "gpt2"), vocab_size=300, reserved_slots=3)
    table = shardpiece.WordTable.from_counts({"<|reserved_3|>": 9}, "gpt2")
    grown = shardpiece.train(table, vocab_size=400, reserved_slots=1, continue_from=base)
    assert "<|reserved_3|>" in grown.special_tokens
    with pytest.raises(ConfigError, match="'xy' is an ordinary token"):
        shardpiece.train(table, vocab_size=400, special_tokens=["xy"], continue_from=base)

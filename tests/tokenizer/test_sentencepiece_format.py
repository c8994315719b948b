"""SentencePiece's model files: published ones read and written, damaged ones refused, ours loaded by its library."""

import io
import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.formats import protobuf as p
from shardpiece.tokenizer.formats import sentencepiece as f
from tests.conftest import TEXTS
from tests.text.test_charsmap import MODELS, sample

CORPUS = [text for text in TEXTS if text]


def processor(raw: bytes):
    library = pytest.importorskip("sentencepiece")
    loaded = library.SentencePieceProcessor()
    loaded.LoadFromSerializedProto(raw)
    return loaded


@cache
def trained(kind: str, **options) -> bytes:
    """A small model of the library's own trainer."""
    library = pytest.importorskip("sentencepiece")
    lines = [line for text in CORPUS for line in text.splitlines() if line.strip()]
    out = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5), model_writer=out, model_type=kind, vocab_size=400, hard_vocab_limit=False,
        minloglevel=2, **options,
    )  # fmt: skip
    return out.getvalue()


# --- the wire format -----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**29 - 1),
            st.one_of(
                st.integers(-(2**63), 2**64 - 1),
                st.binary(max_size=200),
                st.tuples(st.binary(min_size=4, max_size=4)),
            ),
        ),
        max_size=8,
    )
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_fields_come_back(given_fields):
    raw, expected = b"", []
    for number, value in given_fields:
        if isinstance(value, int):
            whole, kind, value = p.varint(number, value), p.VARINT, value % 2**64
        elif isinstance(value, tuple):
            whole, kind, value = p.fixed32(number, value[0]), p.FIXED32, value[0]
        else:
            whole, kind = p.delimited(number, value), p.BYTES
        raw += whole
        expected.append((number, kind, value, whole))
    assert [*p.fields(raw)] == expected


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x0a", "does not end"),
        (b"\x0a\x05abc", "breaks off"),
        (b"\x08", "does not end"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "does not end"),
        (b"\x15abc", "breaks off"),
        (b"\x0b", "kind 3"),
        (b"\x00\x01", "field number 0"),
        (b"\xff" * 11, "does not end"),
    ],
)
def test_what_is_no_message_is_refused(raw, message):
    with pytest.raises(FormatError, match=message):
        [*p.fields(raw)]


def test_eight_bytes_are_one_value():
    assert [*p.fields(b"\x09" + b"12345678")] == [(1, p.FIXED64, b"12345678", b"\x0912345678")]


# --- reading and writing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_published_models_come_back(name, shared):
    raw = next((shared / "vocabs" / name).glob("*.model")).read_bytes()
    file = f.read_model(raw)
    written = f.write_model(file)
    # Older files leave out scores of 0, one of them gives the type of every piece.
    if name not in ("bpemb-en-100k", "sp-test-ja-model", "sp-test-model", "mistral-v3"):
        assert written == raw
    again = f.read_model(written)
    assert (again.pieces, again.types, again.rest) == (file.pieces, file.types, file.rest)
    assert (again.trainer, again.normalizer) == (file.trainer, file.normalizer)
    assert np.array_equal(again.scores, file.scores)
    theirs, ours = processor(raw), processor(written)
    assert [theirs.id_to_piece(i) for i in range(len(theirs))] == [piece.decode() for piece in file.pieces]
    assert [theirs.get_score(i) for i in range(len(theirs))] == file.scores.tolist()
    assert [theirs.is_control(i) for i in range(len(theirs))] == [kind == f.CONTROL for kind in file.types]
    assert [theirs.is_byte(i) for i in range(len(theirs))] == [kind == f.BYTE for kind in file.types]
    assert theirs.unk_id() == file.unk_id
    for special in ("bos", "eos", "pad"):
        assert getattr(theirs, f"{special}_id")() == (-1 if file.id_of(special) is None else file.id_of(special))
    texts = [text[:3000] for text in sample(shared)] + CORPUS
    assert theirs.encode(texts) == ours.encode(texts)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_file_of_the_installed_library_comes_back(kind):
    raw = trained(kind)
    file = f.read_model(raw)
    assert f.write_model(file) == raw
    assert file.trainer["model_type"] == kind
    assert file.trainer["byte_fallback"] is False
    assert file.trainer["pad_id"] == -1
    assert "pad_id" not in file.trainer
    with pytest.raises(KeyError):
        file.trainer["no_such_setting"]


def small(trainer: bytes = b"", rest: bytes = b"", more: bytes = b"") -> bytes:
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("▁", -1.0, 1), ("a", -2.0, 1), ("▁a", -0.5, 1)]
    out = b""
    for text, score, kind in pieces:
        message = p.delimited(1, text.encode()) + p.fixed32(2, np.float32(score).tobytes()) + p.varint(3, kind)
        out += p.delimited(1, message)
    return out + more + p.delimited(2, trainer) + p.delimited(3, p.delimited(1, b"identity")) + rest


def test_unknown_fields_are_kept():
    unknown = p.delimited(2000, b"extension")
    trainer = p.varint(3, 2) + unknown + p.varint(43, -1)
    rest = p.delimited(4, p.delimited(1, b"self test")) + p.varint(777, 7)
    file = f.read_model(small(trainer, rest))
    assert (file.trainer["model_type"], file.trainer["pad_id"], file.trainer["unknown"]) == ("bpe", -1, unknown)
    assert file.rest == rest
    again = f.read_model(f.write_model(file))
    assert (again.trainer, again.rest) == (file.trainer, rest)
    with pytest.raises(FormatError, match="piece 5 has a field 9"):
        f.read_model(small(more=p.delimited(1, p.delimited(1, b"x") + p.varint(9, 1))))


def test_the_wire_formats_liberties():
    # A spec in two parts is one, the last value counts, lists go on; pieces may have their fields in any order.
    halves = p.varint(4, 5) + p.delimited(30, b"<x>"), p.varint(4, 6) + p.delimited(30, b"<y>")
    odd = p.delimited(1, p.varint(3, 4) + p.delimited(1, b"wrong") + p.delimited(1, b"sym"))
    file = f.read_model(small(halves[0], p.delimited(2, halves[1]), odd))
    assert (file.trainer["vocab_size"], file.trainer["control_symbols"]) == (6, ("<x>", "<y>"))
    assert (file.pieces[5], file.scores[5], file.types[5]) == (b"sym", 0.0, f.USER_DEFINED)
    assert file.denormalizer is None
    denormalized = f.read_model(small(rest=p.delimited(5, p.varint(3, 0))))
    assert denormalized.denormalizer == {"add_dummy_prefix": False}
    assert f.read_model(f.write_model(denormalized)).denormalizer == {"add_dummy_prefix": False}


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> bytes:
    return p.delimited(1, p.delimited(1, text) + p.fixed32(2, np.float32(score).tobytes()) + p.varint(3, kind))


@pytest.mark.parametrize(
    ("raw", "message", "library_too"),
    [
        (b"", "no pieces", True),
        (b"\x0a\x80", "not a SentencePiece model", True),
        (b"{}", "not a SentencePiece model", True),
        (small(more=piece(b"")), "piece 5 is empty", True),
        (small(more=piece(b"a\0b")), "piece 5 is text with a zero byte", True),
        (small(more=piece(b"a")), "pieces 3 and 5 are the same", True),
        (small(more=piece(b"b", float("nan"))), "score of piece 5 is no number", True),
        (small(more=piece(b"\xff")), "piece 5 is not UTF-8", False),
        (small(more=piece(b"b", 0, 9)), "type 9", False),
        (small(more=piece(b"<u>", 0, 2)), "one piece is of the type UNKNOWN, and here 2 are", True),
        (small(more=piece(b"<0x00>", 0, 6)), "1 byte pieces, and byte_fallback is not set", True),
        (small(p.varint(35, 1)), "0 byte pieces, 256 are needed", True),
        (small(p.varint(3, 9)), "model_type 9", False),
        (small(p.delimited(4, b"8000")), "trainer_spec: vocab_size is of kind 2", False),
        (piece(b"<unk>", 0, 2), "no piece stands for text", True),
        (small(rest=p.varint(1, 1)), "field 1 is not a message", False),
    ],
)
def test_what_cannot_be_is_refused(raw, message, library_too):
    with pytest.raises(FormatError, match=message):
        f.read_model(raw)
    if library_too:
        with pytest.raises((RuntimeError, ValueError)):
            processor(raw)


def test_a_reserved_piece_may_be_spelled_as_an_ordinary_one():
    raw = small(more=piece(b"a", 0, 3))
    assert f.read_model(raw).types[5] == f.CONTROL
    processor(raw)


def test_damage_is_an_error_and_nothing_else():
    raw = small(p.varint(3, 1) + p.delimited(44, " ⁇ ".encode()))
    for end in range(len(raw)):
        try:
            f.read_model(raw[:end])
        except FormatError:
            continue
        assert raw[end : end + 1] in (b"\x0a", b"\x12", b"\x1a")  # cut between two fields
    draw = random.Random(5)
    read = 0
    for _ in range(3000):
        spoiled = bytearray(raw)
        for _ in range(draw.randint(1, 3)):
            spoiled[draw.randrange(len(spoiled))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        try:
            file = f.read_model(bytes(spoiled))
        except FormatError:
            continue
        read += 1
        assert f.read_model(f.write_model(file)).pieces == file.pieces
    assert 0 < read < 3000


# --- our models as files ---------------------------------------------------------------------------------------------


def engine_of(**options) -> TextEngine:
    return TextEngine("metaspace_never", {"type": "sentencepiece", **options})


ENGINES = [
    engine_of(rule="nmt_nfkc"),
    engine_of(rule="identity", add_dummy_prefix=False),
    engine_of(rule="nfkc_cf", remove_extra_whitespaces=False),
    engine_of(mapping={"x": "yz", "é": "e"}),
    TextEngine("none", {"type": "sentencepiece", "rule": "nfkc", "treat_whitespace_as_suffix": True}),
    TextEngine("none", {"type": "sentencepiece", "rule": "identity", "escape_whitespaces": False}),
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name[:40])
def test_the_library_normalizes_as_the_engine(engine):
    spec = f.normalizer_spec(TextEngine.from_spec(engine.spec))
    rule = engine.normalizer._settings[0].get("rule", "user_defined")
    assert spec["name"] == rule
    pieces = [b"<unk>", b"z"]
    raw = f.to_sentencepiece("bpe", pieces, [0, 0], [f.UNKNOWN, f.NORMAL], engine)
    peer = processor(raw)
    texts = [*CORPUS, "x é xé", "  two  spaces ", "ｶﾞ ① ㍿", ""]
    for text in texts:
        assert peer.normalize(text) == engine.normalizer.normalize_text(text)
    again = f.text_engine(f.read_model(raw))
    assert again.normalizer.fingerprint == engine.normalizer.fingerprint


@pytest.mark.parametrize(
    "engine",
    [
        TextEngine("gpt2"),
        TextEngine("metaspace_never"),
        TextEngine("metaspace_never", "nmt_nfkc"),
        TextEngine("metaspace_never", ["strip", {"type": "sentencepiece"}]),
        TextEngine("metaspace", {"type": "sentencepiece"}),
        TextEngine({"type": "metaspace", "prepend": "never", "split": False}, {"type": "sentencepiece"}),
        TextEngine({"type": "metaspace", "prepend": "never", "replacement": "_"}, {"type": "sentencepiece"}),
        TextEngine(["digits", "metaspace_never"], {"type": "sentencepiece"}),
        engine_of(treat_whitespace_as_suffix=True),
        engine_of(escape_whitespaces=False),
    ],
    ids=lambda engine: engine.name[:60],
)
def test_other_engines_are_refused(engine):
    with pytest.raises(FormatError, match="metaspace_never"):
        f.normalizer_spec(engine)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_model_written_by_us_encodes_as_the_librarys(kind, byte_fallback):
    theirs = trained(kind, byte_fallback=byte_fallback, pad_id=3, user_defined_symbols="<sep>,12")
    file = f.read_model(theirs)
    engine = f.text_engine(file)
    assert engine.pretokenizer.name == "metaspace_never"
    if kind == "bpe":
        learned = [i for i, t in enumerate(file.types) if t == f.NORMAL]
        assert f.bpe_scores(file.types)[learned].tolist() == file.scores[learned].tolist()
    raw = f.to_sentencepiece(
        kind, file.pieces, file.scores, file.types, engine, bos_id=1, eos_id=2, pad_id=3, byte_fallback=byte_fallback,
        trainer={"character_coverage": 0.9995, "split_digits": False, "max_sentencepiece_length": 16},
    )  # fmt: skip
    ours, peer = processor(raw), processor(theirs)
    texts = [*CORPUS, "12 <sep> 123<sep>x", "Ж unseen ☃ 語", "", "  a  b "]
    assert ours.encode(texts) == peer.encode(texts)
    for ids in peer.encode(texts):
        assert ours.decode(ids) == peer.decode(ids)
    assert (ours.unk_id(), ours.bos_id(), ours.eos_id(), ours.pad_id()) == (0, 1, 2, 3)
    written = f.read_model(raw).trainer
    assert (written["model_type"], written["vocab_size"]) == (kind, len(file.pieces))
    assert (written["byte_fallback"], written["pad_piece"]) == (byte_fallback, "<pad>")
    # Settings of the training as the user gave them are there for a reader.
    assert written["character_coverage"] == np.float32(0.9995)


def test_settings_and_ids_of_a_written_model_are_checked():
    pieces, types, engine = [b"<unk>", b"<s>", b"a"], [f.UNKNOWN, f.CONTROL, f.NORMAL], engine_of(rule="identity")
    with pytest.raises(ConfigError, match="kind 'word'"):
        f.to_sentencepiece("word", pieces, [0, 0, 0], types, engine)
    with pytest.raises(ConfigError, match="'vocab' is no setting"):
        f.to_sentencepiece("bpe", pieces, [0, 0, 0], types, engine, trainer={"vocab": 3})
    for wrong in (0, 2, 3):
        with pytest.raises(FormatError, match=f"bos_id {wrong} is no piece of its type"):
            f.to_sentencepiece("bpe", pieces, [0, 0, 0], types, engine, bos_id=wrong)
    with pytest.raises(FormatError, match="user defined pieces .none. are not those .* .<sep>."):
        f.to_sentencepiece("bpe", pieces, [0, 0, 0], types, engine_of(user_defined_symbols=["<sep>"]))
    with pytest.raises(FormatError, match="0 are"):
        f.to_sentencepiece("bpe", pieces[1:], [0, 0], types[1:], engine)
    with pytest.raises(FormatError, match="not of one length"):
        f.to_sentencepiece("bpe", pieces, [0, 0], types, engine)
    named = f.read_model(f.to_sentencepiece("unigram", pieces, [0, 0, -1], types, engine, eos_id=1))
    assert (named.trainer["bos_id"], named.trainer["eos_id"], named.trainer["eos_piece"]) == (-1, 1, "<s>")
    assert named.id_of("eos") == 1


def test_scores_of_bpe():
    types = [f.UNKNOWN, f.CONTROL, f.BYTE, f.NORMAL, f.USER_DEFINED, f.NORMAL, f.NORMAL]
    assert f.bpe_scores(types).tolist() == [0, 0, 0, 0, 0, -1, -2]

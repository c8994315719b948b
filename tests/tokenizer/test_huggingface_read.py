"""tokenizer.json read: every part of it as Hugging Face's library has it, or refused by name."""

import json
import random

import pytest

import shardpiece
from shardpiece.errors import FormatError
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats import huggingface
from shardpiece.tokenizer.formats.huggingface_read import read_tokenizer_json
from shardpiece.tokenizer.formats.rust_floats import rust_float, rust_text
from tests.conftest import TEXTS
from tests.text.test_pretokenizers import generated
from tests.tokenizer.test_added_tokens import tokenizer_json

SOME = [*filter(None, TEXTS), *generated(150, 8), "a\u200db²c_d", "12345 678", "x ab  \n", "<0x41>", "日本 語"]


def changed(raw: bytes, **parts) -> bytes:
    return json.dumps({**json.loads(raw), **parts}).encode()


def check(raw: bytes, texts=SOME) -> shardpiece.Tokenizer:
    """Ids, decoding and template as the library's, and the same after writing."""
    peer = pytest.importorskip("tokenizers").Tokenizer.from_str(raw.decode())
    ours = read_tokenizer_json(raw, "made")
    written = huggingface.to_bytes(ours)
    again = peer.from_str(written.decode())
    assert read_tokenizer_json(written, "written").fingerprint == ours.fingerprint
    ids = ours.encode_batch(texts, "token", add_special_tokens=True).to_pylist()
    for text, found, one, two in zip(texts, ids, peer.encode_batch(texts), again.encode_batch(texts), strict=True):
        assert found == one.ids, repr(text)
        assert found == two.ids, repr(text)
        assert ours.decode(found) == peer.decode(found, skip_special_tokens=False)
        assert ours.decode(found, skip_special_tokens=True) == peer.decode(found)
    return ours


def model(**settings) -> bytes:
    """A tokenizer.json with a BPE that has merges, and characters that it lacks."""
    content = json.loads(tokenizer_json([{"content": "<x>", "special": True}]))
    vocab = content["model"]["vocab"]
    for piece in ("ab", "abc", "aa", *(settings.pop("more", ()))):
        vocab[piece] = len(vocab)
    content["added_tokens"][0]["id"] = len(vocab)
    content["model"] |= {"merges": [["a", "b"], ["ab", "c"], ["a", "a"]], **settings}
    return json.dumps(content).encode()


BYTES = [f"<0x{b:02X}>" for b in range(256)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"unk_token": None},
        {"fuse_unk": True},
        {"ignore_merges": True, "more": ["bcc"]},
        {"byte_fallback": True, "more": BYTES},
        {"byte_fallback": True},
        {"merges": ["#version: 0.2", "a b", "ab c", "a a", "a b"]},
        {"continuing_subword_prefix": "##", "more": ["##b", "##a", "a##b"], "merges": []},
        {"end_of_word_suffix": "</w>", "more": ["b</w>", "ab</w>"], "merges": [["a", "b</w>"], ["a", "b"]]},
    ],
    ids=str,
)
def test_switches_of_bpe(settings):
    check(model(**settings), [*SOME, "bcc", "aabcab", "yyaby", "", "ab<x>"])


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}, {"type": "Digits", "individual_digits": False}, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]},  # Falcon
        {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated", "invert": False}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},  # BLOOM
        {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},  # StarCoder
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("whole", [True, False])
def test_byte_level(pre_tokenizer, whole):
    """With all bytes, and where some are unknown."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    kept = [c for c in alphabet if whole or c not in "xÃé"]
    vocab = {c: i for i, c in enumerate([*kept, "Ġa", "12", "ÃĤ"])}
    made = json.loads(tokenizer_json([]))
    made["model"] |= {"vocab": vocab, "merges": ["Ġ a", "1 2"], "unk_token": None}
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    ours = check(changed(json.dumps(made).encode(), pre_tokenizer=pre_tokenizer, decoder=decoder))
    assert (ours.model.alphabet == "bytes") == whole


PRE_TOKENIZERS = [
    {"type": "BertPreTokenizer"},
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
    {"type": "UnicodeScripts"},
    {"type": "CharDelimiterSplit", "delimiter": "."},
    {"type": "FixedLength", "length": 3},
    {"type": "Punctuation", "behavior": "MergedWithPrevious"},
    {"type": "Digits", "individual_digits": False},
    {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False},
    {"type": "Split", "pattern": {"String": "b."}, "behavior": "MergedWithNext", "invert": False},
    *(
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}
        for pattern in (
            r"\w+|[^\w\s]+",
            r"^a.|b$",
            r"\p{N}{1,3}+",
            r"(?i:'s|A)|[\W_]+\b",
            r"(?m:b.)",
            r"(?>a+)b|\h{2}?",
        )
    ),
]


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS, ids=str)
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_pre_tokenizers(pre_tokenizer):
    check(changed(model(more=["▁a", "_a", "_"]), pre_tokenizer=pre_tokenizer))


DECODERS = [
    None,
    {"type": "WordPiece", "prefix": "a", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "b"},
    {"type": "Metaspace", "replacement": "a", "prepend_scheme": "first"},
    {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True},
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "-"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]},
]  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_decoders(decoder):
    raw = changed(model(byte_fallback=True, more=BYTES), decoder=decoder)
    ours = check(raw, [text for text in SOME if text])
    peer = pytest.importorskip("tokenizers").Tokenizer.from_str(raw.decode())
    rng = random.Random(3)
    for _ in range(100):
        ids = [rng.randrange(ours.vocab_size) for _ in range(rng.randint(1, 9))]
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=False)


POST_PROCESSORS = [
    {"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 2]},
    {"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 2]}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"q": {"id": "q", "ids": [3, 4], "tokens": ["c", "B"]}}}]},
]  # fmt: skip


@pytest.mark.parametrize("post_processor", POST_PROCESSORS, ids=str)
def test_templates(post_processor):
    ours = check(changed(model(), post_processor=post_processor))
    assert len(ours.encode("", add_special_tokens=True)) == len(ours.template.before + ours.template.after)


def unigram(rng: random.Random) -> bytes:
    made = json.loads(tokenizer_json([]))
    texts = ["<unk>", *"ab -", "--", "---", "ab", "a-", "<0x62>"]
    made["model"] = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [[t, -rng.uniform(2, 16)] for t in texts],
        "byte_fallback": False,
    }
    return json.dumps(made).encode()


def test_scores_are_the_librarys_to_the_last_bit(tmp_path):
    """Paths that are equal but for rounding: a run has the same pieces in every order."""
    rng = random.Random(2)
    texts = ["-" * n for n in range(1, 40)] + ["ab" * n + "a-" * n for n in range(9)] + ["<0x62>c"]
    for _ in range(12):
        ours = check(unigram(rng), texts)
    artifact.save(ours, str(tmp_path))
    assert shardpiece.load(str(tmp_path)).fingerprint == ours.fingerprint


def test_numbers_of_json():
    tokenizers = pytest.importorskip("tokenizers")
    rng = random.Random(1)
    numbers = [-rng.uniform(0, 20) for _ in range(3000)] + [
        rng.uniform(-1, 1) * 10.0 ** rng.randrange(-40, 40) for _ in range(500)
    ]
    texts = [
        *map(rust_text, numbers),
        *map(repr, numbers),
        "1.00000000000000000000000012",
        "12345678901234567890123.5",
        "0.0",
    ]
    entries = ",".join(f'["{i}",{text}]' for i, text in enumerate(texts))
    raw = changed(unigram(rng)).decode()
    start, end = raw.index('"vocab": [') + 10, raw.rindex(']], "byte_fallback"') + 1
    peer = json.loads(tokenizers.Tokenizer.from_str(raw[:start] + entries + raw[end:]).to_str())
    found = [score for _, score in peer["model"]["vocab"]]
    assert found == [rust_float(text) for text in texts]
    assert sum(a != b for a, b in zip(found, numbers, strict=False)) < 10  # few have no text at all


REFUSED = [
    ({"normalizer": {"type": "Unheard"}}, "normalizer: the type 'Unheard'"),
    ({"pre_tokenizer": {"type": "Unheard"}}, "pre_tokenizer: the type 'Unheard'"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(a)\1"}, "behavior": "Isolated", "invert": False}}, r"the escape \\1"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a-z&&[^b]]"}, "behavior": "Isolated", "invert": False}}, "class of classes"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?i:ss)"}, "behavior": "Isolated", "invert": False}}, "ligature"),
    ({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}, "prepend_scheme first"),
    ({"pre_tokenizer": {"type": "Digits"}}, "the key 'individual_digits' is missing"),
    ({"post_processor": {"type": "Unheard"}}, "post_processor: the type"),
    ({"decoder": {"type": "Unheard"}}, "decoder: the type"),
    ({"added_tokens": [{"content": "<y>", "id": 99, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}]}, "library gives it 19"),
    ({"added_tokens": [], "model": {"type": "Unheard", "vocab": {}}}, "model: the type 'Unheard'"),
    ({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"], "unk_token": None}}, "not in the vocabulary"),
    ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, "the same id 0"),
    ({"model": []}, "damaged"),
    ({"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}, "added_tokens": [{"content": "  ", "id": 19, "lstrip": False, "rstrip": False, "single_word": False, "normalized": True, "special": True}]}, "nothing is left"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_cannot_be_read_exactly_is_named(parts, why):
    with pytest.raises(FormatError, match=f"made: .*{why}"):
        read_tokenizer_json(changed(model(), **parts), "made")


def test_special_tokens_are_never_given_by_the_model():
    raw = json.loads(model())
    raw["added_tokens"].append({**raw["added_tokens"][0], "content": "abc", "id": raw["model"]["vocab"]["abc"]})
    with pytest.raises(FormatError, match="merges to the special token 'abc'"):
        read_tokenizer_json(json.dumps(raw).encode(), "made")
    raw["model"]["merges"].pop(1)
    ours = read_tokenizer_json(json.dumps(raw).encode(), "made")
    vocab = raw["model"]["vocab"]
    assert ours.encode("abc") == [vocab["ab"], vocab["c"]]
    assert ours.encode("abc", "token") == [vocab["abc"]]


def test_what_does_not_matter_is_noted():
    raw = changed(model(), padding={"strategy": "BatchLongest"}, truncation=None)
    assert read_tokenizer_json(raw, "made").provenance == {"left_out": ["padding"]}


def test_our_own_file_without_the_rest_of_the_artifact():
    for engine, given in (("gpt2", {}), ("bert", {"algorithm": "wordpiece"}), (["digits_right3", "byte"], {})):
        words = shardpiece.WordTable.from_texts([*filter(None, TEXTS)] * 2, engine)
        ours = shardpiece.train(words, vocab_size=400, **given)
        again = read_tokenizer_json(huggingface.to_bytes(ours), "ours")
        assert again.encode_batch(SOME, "token").to_pylist() == ours.encode_batch(SOME, "token").to_pylist()

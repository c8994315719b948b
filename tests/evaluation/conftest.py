"""Small tokenizers of every kind, and a corpus with translations."""

import pytest

import shardpiece
from tests.conftest import TEXTS

ROWS = [
    {"id": "a:1:en", "lang": "en", "text": "The river runs to the sea, and the sea is 1234567 miles wide."},
    {"id": "a:1:de", "lang": "de", "text": "Der Fluss fließt zum Meer, und das Meer ist 1234567 Meilen weit."},
    {"id": "a:1:hi", "lang": "hi", "text": "नदी समुद्र की ओर बहती है और समुद्र चौड़ा है"},
    {"id": "a:2:en", "lang": "en", "text": "the lowest river"},
    {"id": "a:2:de", "lang": "de", "text": "der niedrigste Fluss"},
    {"id": "a:2:de", "lang": "de", "text": "der tiefste aller Flüsse"},
    {"id": "a:3:en", "lang": "en", "text": "no translation of this"},
    {"id": "code", "lang": "py", "text": "def f(x):\n    if x:\n        return x ** 2\n\treturn None\n" * 3},
    {"id": "empty", "lang": "none", "text": ""},
    {"id": "null", "lang": "none", "text": None},
    {"id": "signs", "lang": "signs", "text": "!!! ... --- !!!"},
    {"id": "a:1:zh", "lang": "zh", "text": "河流流向大海,大海宽一百英里。河流"},
    *({"id": f"t{i}", "lang": None, "text": text} for i, text in enumerate(TEXTS)),
]


@pytest.fixture(scope="session")
def rows() -> list[dict]:
    return ROWS


def _trained(algorithm: str, engine, normalizer=None, **settings):
    texts = [row["text"] for row in ROWS if row["text"]] + [text for text in TEXTS if text]
    words = shardpiece.WordTable.from_texts(texts, shardpiece.TextEngine(engine, normalizer))
    return shardpiece.train(words, algorithm, **settings)


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, shardpiece.Tokenizer]:
    """Byte-level BPE; WordPiece with an unknown token, which drops white space; Unigram with ▁ that lacks characters."""
    return {
        "bpe": _trained("bpe", "cl100k_base", vocab_size=420),
        "wordpiece": _trained("wordpiece", "bert", vocab_size=200, limit_alphabet=60),
        "unigram": _trained("unigram", "metaspace", vocab_size=150, character_coverage=0.95),
    }

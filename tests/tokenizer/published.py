"""Small tokenizers in published formats, made by the libraries that those are of, or by hand."""

import base64
import io
import json
import random

import pytest

from tests.conftest import TEXTS

CORPUS = [text or "" for text in TEXTS]


def random_ranks(seed: int, letters: bytes = b"abc", size: int = 40) -> dict[bytes, int]:
    """Ranks of the bytes in some order and of random strings, which merges need not lead to."""
    rng = random.Random(seed)
    pieces = [bytes([b]) for b in range(256)]
    rng.shuffle(pieces)
    strings = {bytes(rng.choices(letters, k=rng.choice([2, 2, 2, 3, 3, 4, 5, 8]))) for _ in range(size)}
    pieces += sorted(sorted(strings), key=lambda piece: (len(piece), rng.random()))
    return {piece: rank for rank, piece in enumerate(pieces)}


def rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(piece), rank) for piece, rank in ranks.items())


def tekken_file(ranks: dict[bytes, int], special: int = 30, unused: int = 5, **more) -> dict:
    """With entries behind those that are used; the bytes come first and in order, as they must."""
    pieces = [bytes([b]) for b in range(256)] + [piece for piece in ranks if len(piece) > 1]
    size = len(pieces)
    pieces += [b"unused %d" % i for i in range(unused)]
    return {
        "config": {
            "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+",
            "num_vocab_tokens": len(pieces),
            "default_vocab_size": size + special,
            "default_num_special_tokens": special,
            "version": "v3",
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
            for i, piece in enumerate(pieces)
        ],
        **more,
    }


def bert_lines(cased: bool = False) -> list[str]:
    letters = sorted({c for text in CORPUS for c in (text if cased else text.lower()) if c.isalnum()})
    pieces = [
        *letters,
        *(f"##{c}" for c in letters),
        "low",
        "##est",
        "##er",
        "the",
        "run",
        "##s",
        "wide",
        ",",
        ".",
        "'",
    ]
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*dict.fromkeys([*special, *pieces, *(["The"] if cased else [])])]


def gpt2_peer():
    """A ByteLevelBPETokenizer that learned the corpus."""
    peer = pytest.importorskip("tokenizers").ByteLevelBPETokenizer()
    peer.train_from_iterator(CORPUS * 2, vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False)
    return peer


def codes_file() -> bytes:
    learn_bpe = pytest.importorskip("subword_nmt.learn_bpe").learn_bpe
    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(CORPUS)), out, 150, min_frequency=1)
    return out.getvalue().encode()


def write(directory, **files) -> str:
    """Files by name, a dot for two underscores, of bytes, lines or JSON; returns the directory's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content).encode()
        elif isinstance(content, dict):
            content = json.dumps(content).encode()
        (directory / name.replace("__", ".")).write_bytes(content)
    return str(directory)

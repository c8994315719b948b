"""SentencePiece models trained on a few texts with settings at random."""

import io
import random

from tests.conformance.made import CORPUS
from tests.conformance.references import SentencePiece

LINES = [line for text in CORPUS for line in text.split("\n") if line.strip()]


def made(seed: int) -> tuple[bytes, SentencePiece]:
    """The content of a .model, and the library with it. RuntimeError for settings that the library refuses."""
    import sentencepiece

    rng = random.Random(seed)
    out = io.BytesIO()
    symbols = ["<mask>", "ab", "a", "▁x", "<|x|>", "了", "a b", "1", "<s>x", "ﬁ"]
    settings = {
        "model_type": rng.choice(("bpe", "bpe", "unigram", "unigram", "char", "word")),
        "vocab_size": rng.choice((450, 550, 800)),
        "byte_fallback": rng.random() < 0.4,
        "add_dummy_prefix": rng.random() < 0.6,
        "remove_extra_whitespaces": rng.random() < 0.6,
        "treat_whitespace_as_suffix": rng.random() < 0.2,
        "allow_whitespace_only_pieces": rng.random() < 0.3,
        "split_by_whitespace": rng.random() < 0.7,
        "split_digits": rng.random() < 0.3,
        "split_by_unicode_script": rng.random() < 0.7,
        "normalization_rule_name": rng.choice(("identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")),
        "character_coverage": rng.choice((1.0, 0.98)),
        "user_defined_symbols": rng.sample(symbols, rng.randint(0, 4)),
        "control_symbols": rng.sample(["<ctl>", "</ctl>", "b"], rng.randint(0, 2)),
        "unk_surface": rng.choice((" ⁇ ", "?", "")),
        "pad_id": rng.choice((-1, 3)),
        "bos_id": rng.choice((-1, 1, 1)),
        "hard_vocab_limit": False,
    }
    if settings["bos_id"] == -1:  # ids have no gaps
        settings |= {"eos_id": 1, "pad_id": -1}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=out, minloglevel=4, **settings)
    return out.getvalue(), SentencePiece(out.getvalue())

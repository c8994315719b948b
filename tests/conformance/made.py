"""Tokenizers of Hugging Face's library made at random from all its parts and trained on a few texts, as tokenizer.json."""

import json
import random

from tests.conformance.references import Tokenizers
from tests.conftest import TEXTS

CORPUS = [text for text in TEXTS if text] * 2 + [
    "aaa bbb ab ba aba <s> [UNK] x1 2 33 444",
    "Ünïcödé ÀÉ straße ﬁn",
    "a▁b ▁c  d",
]
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
PATTERNS = (r"\s+", r"\p{N}{1,3}", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"\w+|[^\w\s]+", "[aeiou]", r"(?i:'s|'t)|\p{L}+")  # fmt: skip


def normalizer(rng: random.Random):
    from tokenizers import Regex
    from tokenizers import normalizers as n

    def one():
        return rng.choice((
            n.NFC, n.NFD, n.NFKC, n.NFKD, n.Lowercase, n.StripAccents, n.Nmt, n.Strip,
            lambda: n.Strip(left=False), lambda: n.Strip(right=False),
            lambda: n.Replace(rng.choice((" ", "a", "``", "  ")), rng.choice(("▁", "", "b", '"'))),
            lambda: n.Replace(Regex(rng.choice((r"\s+", " {2,}", "[aeiou]+", r"\p{M}"))), rng.choice((" ", "", "x"))),
            lambda: n.Prepend(rng.choice(("▁", "x", " "))),
            lambda: n.BertNormalizer(*(rng.random() < 0.6 for _ in range(2)), rng.choice((None, True, False)), rng.random() < 0.6),
        ))()  # fmt: skip

    return rng.choice((None, one(), n.Sequence([one() for _ in range(rng.randint(0, 3))])))


def pre_tokenizer(rng: random.Random):
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as p

    def one():
        return rng.choice((
            p.Whitespace, p.WhitespaceSplit, p.BertPreTokenizer, p.UnicodeScripts,
            lambda: p.Punctuation(rng.choice(BEHAVIORS)), lambda: p.Digits(rng.random() < 0.5),
            lambda: p.CharDelimiterSplit(rng.choice(" a,▁")),
            lambda: p.Split(rng.choice((" ", "a", "ab")), rng.choice(BEHAVIORS), rng.random() < 0.3),
            lambda: p.Split(Regex(rng.choice(PATTERNS)), rng.choice(BEHAVIORS), rng.random() < 0.3),
            lambda: p.Metaspace(prepend_scheme=rng.choice(("always", "never", "first")), split=rng.random() < 0.6),
        ))()  # fmt: skip

    steps = [one() for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    byte_level = rng.random() < 0.4
    if byte_level:
        steps.append(p.ByteLevel(add_prefix_space=rng.random() < 0.4, use_regex=rng.random() < 0.6))
    if not steps:
        return None, False
    return (steps[0] if len(steps) == 1 else p.Sequence(steps)), byte_level


def model(rng: random.Random, byte_level: bool):
    from tokenizers import models, pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    special = ["[UNK]", "<s>", "</s>"]
    size = rng.choice((150, 400, 700)) + len(alphabet)
    match rng.choice(("bpe", "bpe", "bpe", "wordpiece", "unigram", "wordlevel")):
        case "bpe":
            marks = {}
            if rng.random() < 0.2:
                marks["continuing_subword_prefix"] = rng.choice(("##", "@"))
            if rng.random() < 0.2:
                marks["end_of_word_suffix"] = "</w>"
            unk = rng.choice((None, "[UNK]"))
            made = models.BPE(unk_token=unk, fuse_unk=rng.random() < 0.5, **marks)
            trainer = trainers.BpeTrainer(
                vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False,
                limit_alphabet=rng.choice((1000, 60 + len(alphabet))), **marks,
            )  # fmt: skip
        case "wordpiece":
            made = models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=rng.choice((100, 5)))
            trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)  # fmt: skip
        case "unigram":
            made = models.Unigram()
            trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="[UNK]", initial_alphabet=alphabet, show_progress=False)  # fmt: skip
        case "wordlevel":
            made = models.WordLevel(unk_token="[UNK]")
            trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    return made, trainer


def decoder(rng: random.Random, byte_level: bool):
    from tokenizers import decoders as d

    if byte_level and rng.random() < 0.8:
        return d.ByteLevel()
    return rng.choice((
        lambda: None, lambda: d.WordPiece(cleanup=rng.random() < 0.5), d.BPEDecoder, d.CTC, d.Fuse, d.ByteFallback,
        lambda: d.Metaspace(prepend_scheme=rng.choice(("always", "never", "first"))),
        lambda: d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", rng.randint(0, 2), rng.randint(0, 1))]),
    ))()  # fmt: skip


def post_processor(rng: random.Random, tokenizer):
    from tokenizers import processors

    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    template = processors.TemplateProcessing(single=rng.choice(("<s> $A", "$A </s>", "<s> $A </s>")), special_tokens=[("<s>", bos), ("</s>", eos)])  # fmt: skip
    return rng.choice((
        None, template, processors.ByteLevel(trim_offsets=True), processors.BertProcessing(("</s>", eos), ("<s>", bos)),
        processors.RobertaProcessing(("</s>", eos), ("<s>", bos)), processors.Sequence([processors.ByteLevel(), template]),
    ))  # fmt: skip


def tokenizer_json(seed: int) -> str:
    from tokenizers import AddedToken, Tokenizer

    rng = random.Random(seed)
    pre, byte_level = pre_tokenizer(rng)
    made, trainer = model(rng, byte_level)
    tokenizer = Tokenizer(made)
    norm = normalizer(rng)
    if norm is not None:
        tokenizer.normalizer = norm
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(CORPUS, trainer)
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] == "BPE":
        content["model"]["ignore_merges"] = rng.random() < 0.3
        if not byte_level and rng.random() < 0.4:  # with all bytes, or not all
            content["model"]["byte_fallback"] = True
            vocabulary = content["model"]["vocab"]
            at = 1 + max(vocabulary.values())
            vocabulary |= {f"<0x{b:02X}>": at + b for b in range(rng.choice((256, 128)))}
    numbers = content["model"]["vocab"]
    if isinstance(numbers, dict) and sorted(numbers.values()) != [*range(len(numbers))]:
        raise RuntimeError("the library trained a model with gaps, and gives added tokens ids that others have")
    tokenizer = Tokenizer.from_str(json.dumps(content))
    for text in rng.sample(
        ["<mask>", "  ", "ab", "a", "xX", "É", "<|x|>", "<|x", "[UNK]", "\n|", "a b", "了", "'s"], rng.randint(0, 5)
    ):
        flags = {name: rng.random() < 0.3 for name in ("lstrip", "rstrip", "single_word", "normalized")}
        special = rng.random() < 0.4
        if special and content["model"]["type"] != "BPE":
            flags["single_word"] = False  # where it is not found, the model would find it among its pieces
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(text, **flags)])
    post, dec = post_processor(rng, tokenizer), decoder(rng, byte_level)
    if post is not None:
        tokenizer.post_processor = post
    if dec is not None:
        tokenizer.decoder = dec
    return tokenizer.to_str()


def made(seed: int) -> tuple[bytes, Tokenizers]:
    """A tokenizer.json, and the library with it. What the library trains is not the same in every process."""
    from tokenizers import Tokenizer

    text = tokenizer_json(seed)
    return text.encode(), Tokenizers(Tokenizer.from_str(text), by_search=True)

"""GPT-2's two files: ``vocab.json``, ids by text in the byte-level alphabet, and ``merges.txt``, a pair per line.

As ``ByteLevelBPETokenizer`` of Hugging Face's tokenizers reads them. Special and other added tokens are those of
``tokenizer_config.json`` beside them. Where it lists none, entries that no merge makes and that are written ``<..>`` are
special tokens (GPT-2's ``<|endoftext|>``; ``<s>``, ``<pad>``, ``</s>``, ``<unk>``, ``<mask>`` of RoBERTa); other entries that
no merge makes stay pieces, which no text leads to.
"""

import json
import re
from dataclasses import replace

import numpy as np

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.text.byte_alphabet import spell, unspell
from shardpiece.text.documents import Words
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import companions
from shardpiece.tokenizer.formats.huggingface_models import is_byte_level
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer

NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""What the two are called by transformers, and by OpenAI."""
END_OF_WORD = "</w>"
_GPT2 = "GPT2Tokenizer"
# These put <s> and </s> around a text.
_ROBERTA = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer")
_PATTERN = "gpt2"


def is_vocabulary(content) -> bool:
    return isinstance(content, dict) and bool(content) and all(type(i) is int for i in content.values())


def read_vocabulary(raw: bytes, source: str) -> dict[str, int]:
    """Ids by text. Raises FormatError for what is none."""

    def once(pairs: list) -> dict:
        content: dict = {}
        for text, i in pairs:
            if text in content:
                raise FormatError(f"{source}: the token {text!r} is there twice")
            content[text] = i
        return content

    try:
        content = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{source}: not readable as JSON ({error})") from None
    if not is_vocabulary(content):
        raise FormatError(f"{source}: not a vocabulary, an object of ids by text")
    if min(content.values()) < 0 or max(content.values()) > 2 * len(content) + 1024:
        raise FormatError(
            f"{source}: {len(content):,} tokens with ids from {min(content.values())} to {max(content.values())}"
        )
    if len({*content.values()}) != len(content):
        texts = {}
        for text, i in content.items():
            if i in texts:
                raise FormatError(f"{source}: {texts[i]!r} and {text!r} have the same id {i}")
            texts[i] = text
    return content


def read_merges(raw: bytes, source: str) -> list[tuple[str, str]]:
    """The pairs of merges.txt, or of subword-nmt's codes; lines of the header, ``#version``, are left out. Raises FormatError
    naming the line that is no pair or is there twice."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{source}, line {number}: not valid UTF-8") from None
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    pairs: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#version"):
            continue
        parts = line.removesuffix("\r").split(" ")
        if len(parts) != 2 or not all(parts):
            raise FormatError(f"{source}, line {number}: {line[:60]!r} is not two tokens with a space between them")
        pair = (parts[0], parts[1])
        if pair in pairs:
            raise FormatError(f"{source}, line {number}: the merge of line {pairs[pair]} once more")
        pairs[pair] = number
    return [*pairs]


def read_files(
    vocab: bytes, merges: bytes, source: str, pretokenizer=None, special_tokens=None, config: bytes | None = None
) -> Tokenizer:
    """``vocab``, ``merges``: the content of the two files; ``source``: the first one's name; ``config``: that of
    tokenizer_config.json. ``pretokenizer``: default GPT-2's. ``special_tokens``: ids by text, or texts; default as the module
    says. Raises FormatError."""
    settings = companions.read_config(config, source)
    companions.check_class(settings, (_GPT2, *_ROBERTA), source)
    if companions.flag(settings, "add_prefix_space", False, source):
        raise FormatError(
            f"{source}: {companions.CONFIG_FILE} beside it says add_prefix_space, which is read from a tokenizer.json alone"
        )
    ids = read_vocabulary(vocab, source)
    pairs = read_merges(merges, f"the merges beside {source}")
    made = {a + b for a, b in pairs}
    if any(part.endswith(END_OF_WORD) and part not in made for pair in pairs for part in pair):
        raise FormatError(
            f"{source}: its merges mark ends of words ({END_OF_WORD}), and what text they are for (CLIP's, GPT-1's, ..) "
            f"stands in neither file: load the tokenizer.json of that model"
        )
    numbers = np.empty((len(pairs), 2), np.int32)
    for r, (a, b) in enumerate(pairs):
        for token in (a, b, a + b):
            if token not in ids:
                raise FormatError(f"{source}: has no token {token!r}, which merge {r + 1} ({a} {b}) needs")
        numbers[r] = ids[a], ids[b]
    added = companions.added_tokens(settings, source) if special_tokens is None else None
    if added is None:
        added = [AddedToken(text, i) for text, i in _special_tokens(ids, made, special_tokens, source).items()]
    for token in added:
        if ids.get(token.text, token.id) != token.id:
            raise FormatError(
                f"{source}: {token.text!r} has the id {ids[token.text]} there, and {token.id} as an added token"
            )
    # Added tokens are no pieces, unless merges make them.
    beside = {token.text for token in added if token.text not in made and len(token.text) > 1}
    pieces: list[bytes | None] = [None] * (max(ids.values()) + 1)
    for text, i in ids.items():
        if text not in beside:
            pieces[i] = _bytes_of(text, source)
    around = Template()
    if str(settings.get("tokenizer_class")).removesuffix("Fast") in _ROBERTA and {"<s>", "</s>"} <= ids.keys():
        around = Template((ids["<s>"],), (ids["</s>"],))
    try:
        engine, model = TextEngine.of(pretokenizer or _PATTERN), BPEModel(pieces, numbers)
        return Tokenizer(engine, model, added_tokens=added, template=around)
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


def _bytes_of(text: str, source: str) -> bytes:
    try:
        return unspell(text)
    except FormatError as error:
        raise FormatError(f"{source}: {error}: it is not a byte-level vocabulary as GPT-2's") from None


def _special_tokens(ids: dict[str, int], made: set[str], given, source: str) -> dict[str, int]:
    if given is None:
        return {text: i for text, i in ids.items() if text not in made and is_special(text)}
    special = {}
    for text in given:
        i = given[text] if isinstance(given, dict) else ids.get(text)
        if i is None or ids.get(text, i) != i:
            raise FormatError(f"{source}: the special token {text!r} has the id {ids.get(text)} there, not {i}")
        if text in made:
            raise FormatError(f"{source}: merges make {text!r}, so it is no special token")
        special[text] = i
    return special


def is_special(text: str) -> bool:
    return re.fullmatch(r"<[^ ]+>", text) is not None


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why the two files cannot say what this tokenizer does; None when they can."""
    model = tokenizer.model
    if not is_byte_level(model) or model.prefix or model.suffix:
        return f"vocab.json and merges.txt are for byte-level BPE, and this model is one of kind {model.kind} over other units"
    if tokenizer.engine.fingerprint != TextEngine(_PATTERN).fingerprint:
        return (
            f"readers of vocab.json and merges.txt split as GPT-2 does, and this tokenizer has {tokenizer.engine.name}"
        )
    if model.ignore_merges and (piece := unreached(model)) is not None:
        return f"no merges lead to {piece!r}, which this tokenizer makes of the word as a whole (ignore_merges)"
    if tokenizer.template and tokenizer.template != _roberta_template(tokenizer):
        return "readers of vocab.json put <s> and </s> around a text, or nothing, and this tokenizer something else"
    try:
        _spelled(tokenizer)
    except FormatError as error:
        return str(error)
    return None


def _roberta_template(tokenizer: Tokenizer) -> Template | None:
    ids = [tokenizer.special_tokens.get(text) for text in ("<s>", "</s>")]
    return None if None in ids else Template((ids[0],), (ids[1],))


def unreached(model: BPEModel) -> bytes | None:
    """The first token that its own text, merged, does not lead to; None where there is none."""
    pieces = np.flatnonzero(model.vocab.present)
    ends = model.vocab.offsets[pieces + 1]
    words = Words(model.vocab.data, 0, ends.copy(), np.arange(1, len(pieces) + 1))
    tokens, offsets = replace(model, ignore_merges=False).encoder(1 << 20).encode(words)
    wrong = np.flatnonzero(np.diff(offsets) != 1)
    if len(wrong):
        return model.vocab[int(pieces[wrong[0]])]
    wrong = np.flatnonzero(tokens != pieces)
    return model.vocab[int(pieces[wrong[0]])] if len(wrong) else None


def _spelled(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids by text: pieces in the byte alphabet, and added tokens that are none. Raises FormatError where two are alike."""
    vocab = tokenizer.model.vocab
    ids = {spell(piece): i for i, piece in enumerate(vocab) if piece is not None}
    for token in tokenizer.added_tokens:
        if token.id >= len(vocab) or vocab[token.id] is None:
            if token.text in ids:
                raise FormatError(f"the added token {token.text!r} is spelled like an ordinary token")
            ids[token.text] = token.id
        elif spell(vocab[token.id]) != token.text:
            raise FormatError(f"the added token {token.text!r} has the id of the piece {spell(vocab[token.id])!r}")
    return dict(sorted(ids.items(), key=lambda item: item[1]))


def to_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """vocab.json, merges.txt and tokenizer_config.json. Raises FormatError naming what they cannot say."""
    if (reason := problem(tokenizer)) is not None:
        raise FormatError(reason)
    vocab = tokenizer.model.vocab
    lines = [f"{spell(vocab[a])} {spell(vocab[b])}\n" for a, b in tokenizer.model.merges.tolist()]
    config = {
        "tokenizer_class": _ROBERTA[0] if tokenizer.template else _GPT2,
        "add_prefix_space": False,
        "added_tokens_decoder": companions.added_tokens_json(tokenizer.added_tokens),
    }
    return {
        companions.CONFIG_FILE: storage.pretty_json(config),
        NAMES[0][1]: "".join(["#version: 0.2\n", *lines]).encode(),
        NAMES[0][0]: json.dumps(_spelled(tokenizer), ensure_ascii=False, separators=(",\n", ": ")).encode(),
    }

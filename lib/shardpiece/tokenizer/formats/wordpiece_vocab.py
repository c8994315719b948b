"""BERT's ``vocab.txt``: a piece per line, its id the number of the line (Devlin et al. 2019).

All else is BERT's: its normalizer and pre-tokenizer, ``##`` before what continues a word, words of at most 100 characters,
[UNK], [CLS] and [SEP] around a text on request. Whether text is lowercased stands in no line: ``tokenizer_config.json`` beside the file says it; without one, a
vocabulary is cased when one of its pieces has a letter from A to Z.
"""

import re

from shardpiece import storage
from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.formats import companions
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.wordpiece import WordPieceModel

VOCABULARY_FILE = "vocab.txt"
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "RetriBertTokenizer",
            "LayoutLMTokenizer", "LxmertTokenizer", "ConvBertTokenizer", "SqueezeBertTokenizer", "RealmTokenizer",
            "DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer", "DPRReaderTokenizer")  # fmt: skip
MAX_CHARACTERS = 100


def is_vocabulary(raw: bytes) -> bool:
    """Whether it is a list of lines with BERT's unknown token among them."""
    return re.search(rb"^\[UNK\]\r?$", raw, re.MULTILINE) is not None


def read_pieces(raw: bytes, source: str) -> list[str]:
    """The lines. Raises FormatError for one that readers do not agree on, and for one that is there twice."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{source}, line {number}: not valid UTF-8") from None
    pieces = [line.removesuffix("\r") for line in text.split("\n")]
    if pieces and not pieces[-1]:
        pieces.pop()
    seen: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if not piece or piece != piece.rstrip() or "\r" in piece:
            raise FormatError(
                f"{source}, line {number}: {piece[:60]!r} is empty or has white space that readers of this format treat "
                f"in different ways"
            )
        if piece in seen:
            raise FormatError(f"{source}, line {number}: the piece {piece!r} of line {seen[piece]} once more")
        seen[piece] = number
    return pieces


def is_cased(pieces: list[str]) -> bool:
    """By content: whether a piece that is no ``[..]`` has a letter from A to Z."""
    return any(re.search("[A-Z]", piece) for piece in pieces if not re.fullmatch(r"\[.*\]", piece))


def read_vocabulary(raw: bytes, source: str, lowercase: bool | None = None, config: bytes | None = None) -> Tokenizer:
    """The tokenizer as ``BertWordPieceTokenizer`` and ``BertTokenizer`` have it. ``lowercase``: wins over what ``config``, the
    content of tokenizer_config.json, and the pieces say. Raises FormatError."""
    settings = companions.read_config(config, source)
    companions.check_class(settings, _CLASSES, source)
    if not companions.flag(settings, "do_basic_tokenize", True, source):
        raise FormatError(
            f"{source}: {companions.CONFIG_FILE} beside it says do_basic_tokenize false, which is not read"
        )
    pieces = read_pieces(raw, source)
    texts = {key: companions.token_text(settings, key) or text for key, text in SPECIAL_TOKENS.items()}
    ids = {piece: i for i, piece in enumerate(pieces)}
    special = {text: ids[text] for text in dict.fromkeys(texts.values()) if text in ids}
    unk = texts["unk_token"]
    if unk not in special:
        raise FormatError(f"{source}: no line is the unknown token {unk}: it is not a vocabulary of BERT's form")
    if lowercase is None:
        lowercase = companions.flag(settings, "do_lower_case", not is_cased(pieces), source)
    normalizer = {
        "type": "bert",
        "clean_text": True,
        "handle_chinese_chars": companions.flag(settings, "tokenize_chinese_chars", True, source),
        "strip_accents": companions.flag(settings, "strip_accents", lowercase, source),
        "lowercase": lowercase,
    }
    vocab = [None if piece in special else piece.encode() for piece in pieces]
    around = [(special[text],) for text in (texts["cls_token"], texts["sep_token"]) if text in special]
    try:
        model = WordPieceModel(vocab, special[unk], b"##", MAX_CHARACTERS)
        return Tokenizer(
            TextEngine("bert", normalizer),
            model,
            special,
            decoder=Decoder(({"type": "wordpiece", "prefix": "##", "cleanup": True},)),
            template=Template(*around) if len(around) == 2 else Template(),
        )
    except FormatError as error:
        raise FormatError(f"{source}: {error}") from None


# --- writing --------------------------------------------------------------------------------------------------------


def problem(tokenizer: Tokenizer) -> str | None:
    """Why ``vocab.txt`` and ``tokenizer_config.json`` cannot say what this tokenizer does; None when they can."""
    model = tokenizer.model
    if model.kind != "wordpiece":
        return f"vocab.txt is for WordPiece, and this model is one of kind {model.kind}"
    if model.prefix != b"##" or model.max_characters != MAX_CHARACTERS:
        return (
            f"readers of vocab.txt continue words with ## and take {MAX_CHARACTERS} characters at most, and this model has "
            f"{model.prefix.decode()!r} and {model.max_characters}"
        )
    spec = None if tokenizer.engine.normalizer is None else tokenizer.engine.normalizer.spec
    if tokenizer.engine.pretokenizer.fingerprint != TextEngine("bert").pretokenizer.fingerprint or (
        spec is None or spec["type"] != "bert" or not spec["clean_text"]
    ):
        return f"readers of vocab.txt treat text as BERT does, and this tokenizer has {tokenizer.engine.name}"
    unknown = [text for text in tokenizer.special_tokens if text not in SPECIAL_TOKENS.values()]
    if unknown:
        return f"readers of vocab.txt know {', '.join(SPECIAL_TOKENS.values())}, and not the special token {unknown[0]}"
    if tokenizer.special_tokens.get("[UNK]") != model.unk_id:
        return "readers of vocab.txt need the unknown token [UNK]"
    if (reason := companions.added_problem(tokenizer.added_tokens, "vocab.txt")) is not None:
        return reason
    around = tuple((tokenizer.special_tokens.get(text),) for text in ("[CLS]", "[SEP]"))
    if tokenizer.template and (tokenizer.template.before, tokenizer.template.after) != around:
        return "readers of vocab.txt put [CLS] and [SEP] around a text, and this tokenizer something else"
    lines = _lines(tokenizer)
    for i, line in enumerate(lines):
        if line is None:
            return f"vocab.txt has a line for every id, and the id {i} is no token"
        if not line or line != line.rstrip() or "\n" in line or "\r" in line:
            return f"the piece {line!r} has white space that readers of vocab.txt drop"
    return None


def _lines(tokenizer: Tokenizer) -> list[str | None]:
    lines = [None if piece is None else piece.decode() for piece in tokenizer.model.vocab]
    lines += [None] * (tokenizer.vocab_size - len(lines))
    for text, i in tokenizer.special_tokens.items():
        lines[i] = text
    return lines


def to_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """vocab.txt and tokenizer_config.json. Raises FormatError naming what they cannot say."""
    if (reason := problem(tokenizer)) is not None:
        raise FormatError(reason)
    spec = tokenizer.engine.normalizer.spec
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": spec["lowercase"],
        "strip_accents": spec["strip_accents"],
        "tokenize_chinese_chars": spec["handle_chinese_chars"],
        **{key: text for key, text in SPECIAL_TOKENS.items() if text in tokenizer.special_tokens},
    }
    lines = "".join(f"{line}\n" for line in _lines(tokenizer))
    return {VOCABULARY_FILE: lines.encode(), companions.CONFIG_FILE: storage.pretty_json(config)}

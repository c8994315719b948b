"""The ``train`` section of the job configuration: every algorithm's settings, checked against each other."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, model_validator

ALGORITHMS = ("bpe", "wordpiece", "unigram", "word", "character", "byte")
STYLES = ("byte-level", "sentencepiece", "end-of-word", "continuing")
# Style → special tokens and where they are, when the user says nothing.
_SPECIAL_TOKENS = {
    "byte-level": (["<|endoftext|>"], "back"),
    "sentencepiece": (["<unk>", "<s>", "</s>"], "front"),
    "end-of-word": (["<unk>", "<s>", "</s>"], "front"),
    "continuing": (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "front"),
    "word": (["<unk>"], "front"),
    "byte": (["<pad>", "</s>", "<unk>"], "front"),
}

# What words of a style are, when the user says nothing: pre-tokenizer and normalizer.
_TEXT_ENGINES = {
    "byte-level": ("cl100k_base", None),
    "sentencepiece": ("metaspace_never", {"type": "sentencepiece", "rule": "nmt_nfkc"}),
    "end-of-word": ("whitespace_split", None),
    "continuing": ("bert", "bert"),
    "word": ("whitespace_split", None),
    "character": ("character", None),
    "byte": ("byte", None),
}


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("an empty path")
    return value


def as_sizes(value: Any) -> Any:
    """16384, "16k" (16 × 1,024), "16k,32k" or a list of these."""
    values = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return [_size(one) for one in values]


def _size(value: Any) -> Any:
    match = re.fullmatch(r"\s*(\d+)\s*([kKmM])\s*", value) if isinstance(value, str) else None
    return int(match[1]) * (1024 if match[2] in "kK" else 1 << 20) if match else value


def _encodable(values: list[str]) -> list[str]:
    for value in values:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!a} is not valid Unicode text") from None
    return values


StringList = Annotated[list[str], BeforeValidator(as_list), AfterValidator(_encodable)]
Count = Annotated[int, Field(ge=1, le=1 << 62)]
PathText = Annotated[str, AfterValidator(not_blank)]
Memory = Annotated[ByteSize, Field(ge=1 << 20)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)


class SeparateConfig(Section):
    """What no merge may join."""

    letters_and_digits: bool = Field(False, description="no token with a letter and a digit")
    scripts: bool = Field(False, description="no token with two scripts, as SentencePiece's split_by_unicode_script")
    max_digits: int | None = Field(None, ge=1, le=1 << 16, description="no token with more digits")


class ParityConfig(Section):
    """Parity-aware BPE (Foroutan et al. 2025): the groups of the word table are compressed alike."""

    num_global: int = Field(0, ge=0, description="so many merges of plain BPE first")
    window: int | None = Field(
        100, ge=1, le=1 << 31, description="a group is passed over that was chosen too often in so many merges"
    )
    alpha: float = Field(2.0, gt=0, le=1e6, description="too often: alpha times its even share of the window")
    units: dict[str, Count] | None = Field(
        None, description="by group, what its tokens are counted per (parallel lines); default: its bytes"
    )
    development: str | None = Field(
        None, description="another word table, such as one of translations, on which costs are measured"
    )


class CutConfig(Section):
    """Exact reduction of the word table in the course of training: cut and deduplicate."""

    floor: int | None = Field(
        None, ge=1, le=1 << 62, description="the lowest count that a merge is expected to have; default: found"
    )
    max_symbols: int = Field(
        100_000_000,
        ge=1,
        le=1 << 31,
        description="most symbols of a reduced table, 32 bytes each, where a higher floor can be had",
    )
    where: Literal["driver", "spark"] = Field(
        "driver", description="spark: the first merges and the cut on executors, for tables that the driver cannot hold"
    )


class SentencePieceConfig(Section):
    """What no piece joins in style sentencepiece, with SentencePiece's names and defaults."""

    split_by_unicode_script: bool = True
    split_by_number: bool = Field(True, description="digits are a script of their own")
    split_digits: bool = Field(False, description="every digit is a piece of its own")


class UnigramConfig(Section):
    """The search of Unigram (Kudo 2018), with SentencePiece's names and defaults."""

    seed_size: int = Field(1_000_000, ge=1, description="pieces to begin with")
    shrinking_factor: float = Field(0.75, ge=0.1, lt=1, description="pieces kept by each pruning")
    sub_iterations: int = Field(2, ge=1, description="EM steps between prunings")


class TrainConfig(Section):
    """Training a tokenizer from the word table."""

    words: str | None = Field(None, description="word table to train from; default: count's output")
    output: PathText | None = Field(None, description="tokenizer directory; default OUTPUT/tokenizer")
    algorithm: Literal[ALGORITHMS] = "bpe"
    style: Literal[STYLES] | None = Field(None, description="what words are made of; default: the algorithm's own")
    vocab_size: Annotated[int, BeforeValidator(_size)] = Field(
        32_768, ge=1, le=1 << 24, description="tokens in all: alphabet, learned and special tokens"
    )
    vocab_sizes: Annotated[list[Annotated[int, Field(ge=1, le=1 << 24)]], BeforeValidator(as_sizes)] = Field(
        [], description="several sizes from one training, each below the output in a directory of its size"
    )
    min_frequency: int | None = Field(
        None, ge=1, le=1 << 62, description="merges stop when the most frequent pair is rarer"
    )
    tie_break: Literal["lexicographic", "id", "first_seen", "lexicographic_last", "sentencepiece"] | None = None
    alphabet_order: Literal["byte-level", "raw"] = "byte-level"
    max_token_length: int | None = Field(
        None, ge=1, description="longest token, inclusive: in bytes (byte-level) or characters"
    )
    character_coverage: float = Field(1.0, gt=0, le=1, description="share of all characters that the alphabet covers")
    limit_alphabet: int | None = Field(None, ge=1, description="most characters of the alphabet")
    initial_alphabet: StringList = Field([], description="characters that are in the alphabet in any case")
    byte_fallback: bool | None = Field(
        None, description="unknown characters as the pieces of their bytes; default with sentencepiece style and bpe"
    )
    unk_token: str | None = Field(None, description="the special token for what the vocabulary cannot spell")
    separate: SeparateConfig = SeparateConfig()
    sentencepiece: SentencePieceConfig = SentencePieceConfig()
    criterion: Literal["likelihood", "frequency"] = Field("likelihood", description="WordPiece: how merges are chosen")
    max_word_characters: int = Field(100, ge=1, le=1 << 30, description="WordPiece: longer words are unknown")
    reserved_tokens: StringList = Field(
        [], description="texts that are tokens ahead of all learned ones, such as runs of 2, 4, 8 spaces"
    )
    special_tokens: StringList = Field(
        [], description="in the order of their ids; where the corpus spells one, counting leaves it out"
    )
    special_tokens_at: Literal["front", "back"] = "back"
    reserved_slots: int = Field(0, ge=0, description="special tokens <|reserved_0|>, … for later use")
    multiple_of: int = Field(
        1, ge=1, le=65_536, description="pad the vocabulary with reserved slots to a multiple of this"
    )
    continue_from: str | None = Field(
        None, description="a tokenizer of any format whose vocabulary is kept and extended"
    )
    continue_pretokenizer: Any = Field(
        None, description="for tiktoken ranks of no published vocabulary: the pre-tokenizer they are for"
    )
    min_count: int = Field(
        1, ge=1, le=1 << 62, description="leave out words that are rarer; what that prunes is reported"
    )
    weights: dict[str, float | int | str] | None = Field(None, description="share of each group in the mixture")
    temperature: float | None = Field(
        None, ge=0, le=1, description="shares of the groups as n^temperature, n their bytes"
    )
    parity: ParityConfig | None = Field(None, description="parity-aware BPE over the groups of the word table")
    cut: CutConfig | None = Field(None, description="exact reduction of the word table while training")
    unigram: UnigramConfig = UnigramConfig()
    threads: int = Field(0, ge=0, le=1024, description="0: as many as there are cores; no result depends on it")
    checkpoint_seconds: float = Field(300, gt=0, description="how often the merges so far are written down")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_style(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        own = {"unigram": "sentencepiece", "wordpiece": "continuing", "bpe": "byte-level", "byte": "byte-level"}
        algorithm = given.get("algorithm", "bpe")
        style = given.get("style") or own.get(algorithm)
        key = {"byte": "byte", "word": "word", "character": "word"}.get(algorithm, style)
        special, at = _SPECIAL_TOKENS.get(key, ([], "back"))
        result = {"special_tokens_at": at if "special_tokens" not in given or at == "front" else "back"}
        if given.get("special_tokens") is None:
            result["special_tokens"] = [] if given.get("continue_from") else special
        result.update({name: value for name, value in given.items() if value is not None or name not in result})
        if style is not None:
            result["style"] = style
        if result.get("unk_token") is None and key in ("sentencepiece", "end-of-word", "continuing", "word"):
            result["unk_token"] = "[UNK]" if key == "continuing" else "<unk>"
        if result.get("byte_fallback") is None:
            result["byte_fallback"] = style == "sentencepiece" and algorithm == "bpe"
        if result.get("tie_break") is None:
            result["tie_break"] = "sentencepiece" if style == "sentencepiece" else "lexicographic"
        if style == "sentencepiece" and "character_coverage" not in given:
            result["character_coverage"] = 0.9995
        return result

    @model_validator(mode="after")
    def _fitting(self) -> "TrainConfig":
        for token in self.special_tokens:
            size = len(token.encode())
            if size > 512:
                raise ValueError(f"special_tokens: {token[:40]!r}... has more than 512 bytes")
            if size < 2:
                raise ValueError(
                    f"special_tokens: {token!r} is a single byte or empty: every byte is an ordinary token already"
                )
            if self.special_tokens.count(token) > 1:
                raise ValueError(f"special_tokens: {token!r} is listed twice")
        styles = {"bpe": STYLES, "unigram": ("sentencepiece",), "wordpiece": ("continuing",), "byte": ("byte-level",)}
        if self.style not in styles.get(self.algorithm, (None,)):
            allowed = [style for style in styles.get(self.algorithm, ()) if style]
            raise ValueError(
                f"style {self.style} does not go with algorithm {self.algorithm} (which takes {', '.join(allowed) or 'none'})"
            )
        self._only(("bpe",), "parity", "cut", "continue_from", "reserved_tokens")
        self._only(("bpe", "wordpiece"), "separate")
        self._only(("bpe", "wordpiece", "word"), "min_frequency")
        self._only(("bpe", "wordpiece", "character"), "limit_alphabet")
        self._only(("bpe", "wordpiece", "unigram"), "max_token_length")
        if self.byte_fallback and self.style != "sentencepiece":
            raise ValueError("byte_fallback goes with style sentencepiece")
        if self.reserved_tokens and self.style not in ("byte-level", "sentencepiece"):
            raise ValueError("reserved_tokens go with the styles byte-level and sentencepiece")
        if self.continue_from and (self.reserved_tokens or self.max_token_length):
            raise ValueError("continue_from does not go with reserved_tokens or max_token_length")
        if self.parity and (self.cut or self.continue_from or self.reserved_tokens):
            raise ValueError("parity does not go with cut, continue_from or reserved_tokens")
        if self.parity and self.parity.development and self.style != "byte-level":
            raise ValueError("parity.development goes with style byte-level")
        if self.parity and self.tie_break == "first_seen":
            raise ValueError("parity does not go with tie_break first_seen")
        if self.cut and (self.continue_from or self.reserved_tokens or self.tie_break == "first_seen"):
            raise ValueError("cut does not go with continue_from, reserved_tokens or tie_break first_seen")
        if self.cut and self.cut.where == "spark":
            if self.style != "byte-level":
                raise ValueError("cut.where spark is for style byte-level")
            if self.weights is not None or self.temperature is not None or self.min_count > 1:
                raise ValueError("cut.where spark does not go with weights, temperature or min_count")
        if self.unk_token is not None and self.style == "byte-level":
            raise ValueError("unk_token does not go with style byte-level, which knows every byte")
        if self.weights is not None and self.temperature is not None:
            raise ValueError("weights and temperature are two ways to say the same: give one")
        needs_unk = self.style in ("sentencepiece", "end-of-word", "continuing") or self.algorithm in (
            "word",
            "character",
        )
        if (
            needs_unk
            and not self.byte_fallback
            and not self.continue_from
            and self.unk_token not in self.special_tokens
        ):
            raise ValueError(
                f"unk_token {self.unk_token!r} is not among special_tokens ({', '.join(self.special_tokens)})"
            )
        least = (256 if self.style == "byte-level" else 1) + len(self.special_tokens) + self.reserved_slots
        for size in self.sizes:
            if size < least and self.algorithm != "byte":
                what = "256 bytes" if self.style == "byte-level" else "an alphabet"
                raise ValueError(
                    f"vocab_size {size} is too small: {what} and {len(self.special_tokens) + self.reserved_slots} special "
                    f"tokens need {least}"
                )
        return self

    def _only(self, algorithms: tuple[str, ...], *names: str) -> None:
        given = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
        if given and self.algorithm not in algorithms:
            raise ValueError(f"{given[0]} goes with algorithm {' or '.join(algorithms)}, not with {self.algorithm}")

    @property
    def text_engine(self) -> tuple[Any, Any]:
        """(pre-tokenizer, normalizer) that go with algorithm and style."""
        return _TEXT_ENGINES[self.algorithm if self.algorithm in _TEXT_ENGINES else self.style]

    @property
    def sizes(self) -> list[int]:
        """The vocabulary sizes to make, ascending."""
        return sorted(set(self.vocab_sizes)) or [self.vocab_size]

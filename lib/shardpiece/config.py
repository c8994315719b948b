"""The typed job configuration: one YAML file drives every command, flags and --set override it."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from shardpiece.errors import ConfigError


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("an empty path")
    return value


StringList = Annotated[list[str], BeforeValidator(_as_list)]
PathText = Annotated[str, AfterValidator(_not_blank)]
Memory = Annotated[ByteSize, Field(ge=1 << 20)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)


class CountConfig(_Section):
    """Counting words."""

    output: PathText | None = Field(None, description="word table; default OUTPUT/words")
    max_word_bytes: int = Field(
        32_768,
        ge=16,
        le=65_535,
        description="longer words are left out of the table and reported; they always encode",
    )
    memory_per_task: Memory = Field(
        ByteSize(256 << 20), description="bound of a task's hash table; it spills when full"
    )
    task_size: Memory = Field(ByteSize(64 << 20), description="text per Spark task")


class TrainConfig(_Section):
    """Training a tokenizer from the word table."""

    words: str | None = Field(None, description="word table to train from; default: count's output")
    output: PathText | None = Field(None, description="tokenizer directory; default OUTPUT/tokenizer")
    algorithm: Literal["bpe"] = "bpe"
    vocab_size: int = Field(32_768, ge=256, le=1 << 24, description="tokens in all: 256 bytes, merges, special tokens")
    min_frequency: int = Field(1, ge=1, le=1 << 62, description="merges stop when the most frequent pair is rarer")
    tie_break: Literal["lexicographic", "id", "first_seen", "lexicographic_last"] = "lexicographic"
    alphabet_order: Literal["byte-level", "raw"] = "byte-level"
    max_token_length: int | None = Field(None, ge=1, description="longest token in bytes, inclusive")
    special_tokens: StringList = Field(
        ["<|endoftext|>"],
        description="their ids follow the vocabulary, in this order; where the corpus spells one, counting leaves it out",
    )

    @field_validator("special_tokens")
    @classmethod
    def _usable_tokens(cls, tokens: list[str]) -> list[str]:
        for token in tokens:
            try:
                size = len(token.encode())
            except UnicodeEncodeError:
                raise ValueError(f"{token!a} is not valid Unicode text") from None
            if size > 512:
                raise ValueError(f"{token[:40]!r}... has more than 512 bytes")
            if size < 2:
                raise ValueError(f"{token!r} is a single byte or empty: every byte is an ordinary token already")
            if tokens.count(token) > 1:
                raise ValueError(f"{token!r} is listed twice")
        return tokens

    @model_validator(mode="after")
    def _large_enough(self) -> "TrainConfig":
        least = 256 + len(self.special_tokens)
        if self.vocab_size < least:
            raise ValueError(
                f"vocab_size {self.vocab_size} is too small: 256 bytes and {len(self.special_tokens)} special tokens "
                f"need {least}"
            )
        return self


class EncodeConfig(_Section):
    """Encoding the corpus into shards."""

    tokenizer: str | None = Field(None, description="tokenizer directory; default: train's output")
    output: PathText | None = Field(None, description="shard directory; default OUTPUT/shards")
    format: Literal["parquet", "bin"] = "parquet"
    append_eos: bool = Field(False, description="end every document with eos_token, exactly once")
    eos_token: str = "<|endoftext|>"
    empty_documents: Literal["keep", "skip"] = Field(
        "keep", description="keep: an empty or null document is a document without text; skip: it is left out"
    )
    special_tokens_in_text: Literal["text", "token", "error"] = Field(
        "text", description="what a place is that spells a special token: ordinary text, that token, or an error"
    )
    shard_size: Memory = Field(ByteSize(256 << 20), description="input text per shard; one row group at least")


class JobConfig(_Section):
    """A whole job. Paths may be local or any fsspec URL; every Spark executor must reach them."""

    master: str | None = Field(None, description="Spark master URL; default local[*]")
    input: Annotated[list[PathText], BeforeValidator(_as_list)] = Field(
        [], description="Parquet files, directories or globs"
    )
    text_column: str = "text"
    id_column: str | None = Field(None, description="document id for the shards; default FILE:ROW")
    group_column: str | None = Field(None, description="language or source, kept apart in the word table")
    invalid_utf8: Literal["replace", "error"] = "replace"
    # TextEngine checks these two; its messages are better than those for a union of types.
    normalizer: Any = Field(
        None, description="what is done to text before it is split: a name, a step with settings, or a list of these"
    )
    pretokenizer: Any = Field(
        "cl100k_base", description="a name, a regular expression, a step with settings, or a list of these"
    )
    output: PathText | None = Field(None, description="where the stages put their results unless told otherwise")
    overwrite: bool = Field(False, description="replace results that other settings made")
    count: CountConfig = CountConfig()
    train: TrainConfig = TrainConfig()
    encode: EncodeConfig = EncodeConfig()
    spark: dict[str, str | int | float | bool] = Field({}, description="any Spark property")

    @property
    def engine_settings(self) -> dict[str, Any]:
        """pretokenizer and normalizer, where the user has set them."""
        return {key: getattr(self, key) for key in ("pretokenizer", "normalizer") if key in self.model_fields_set}

    @property
    def words_path(self) -> str:
        return self.count.output or self._below("words", "count.output")

    @property
    def tokenizer_path(self) -> str:
        return self.train.output or self._below("tokenizer", "train.output")

    @property
    def shards_path(self) -> str:
        return self.encode.output or self._below("shards", "encode.output")

    @property
    def words_source(self) -> str:
        """The word table to train from."""
        return self.train.words or self.count.output or self._below("words", "train.words", "--words")

    @property
    def tokenizer_source(self) -> str:
        """The tokenizer to encode with."""
        own = self.encode.tokenizer or self.train.output
        return own or self._below("tokenizer", "encode.tokenizer", "--tokenizer")

    def _below(self, name: str, key: str, flag: str = "--output") -> str:
        if self.output is None:
            raise ConfigError(f"no {name} given: pass {flag}, or set {key} or output in the configuration")
        return f"{self.output.rstrip('/')}/{name}"


_SECTIONS = ("count", "train", "encode", "spark")


def load_config(path: str | None = None, overrides: dict[str, Any] | None = None) -> JobConfig:
    """Read a YAML file and apply overrides, whose keys are dotted paths such as "train.vocab_size".

    Raises ConfigError naming the file and the key.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: expected keys and values, found {type(content).__name__}")
    # A section whose keys are all commented out is null in YAML.
    content = {key: value for key, value in content.items() if value is not None or key not in _SECTIONS}
    for key, value in (overrides or {}).items():
        _put(content, key, value)
    try:
        return JobConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_explain(error, path)) from None


def parse_setting(text: str) -> tuple[str, Any]:
    """``a.b=value`` as (key, value); the value is read as YAML, so numbers and lists work."""
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_\-]+)*", key):
        raise ConfigError(f"--set {text!r}: expected KEY=VALUE, such as train.vocab_size=50000")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        return key, value


def _put(content: dict[str, Any], key: str, value: Any) -> None:
    head, *rest = key.split(".")
    # Spark's own property names have dots in them.
    if head == "spark" and rest:
        given = content.get("spark") or {}
        if not isinstance(given, dict):
            raise ConfigError(f"spark: expected properties and values, found {given!r}")
        content["spark"] = {**given, ".".join(rest): value}
        return
    parts = [head, *rest]
    for part in parts[:-1]:
        inner = content.get(part)
        if inner is None:
            inner = content[part] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"{key}: {part!r} is not a section")
        content = inner
    content[parts[-1]] = value


def _explain(error: ValidationError, path: str | None) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            *section, last = [str(part) for part in problem["loc"]]
            known = _keys(".".join(section))
            elsewhere = [name for name in _keys("", deep=True) if name.split(".")[-1] == last]
            close = elsewhere or get_close_matches(key, _keys("", deep=True), 1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
            lines.append(f"{key}: unknown key ({hint})")
        elif problem["type"] == "value_error":
            lines.append(f"{key}: {problem['ctx']['error']}")
        else:
            message = problem["msg"][0].lower() + problem["msg"][1:]
            lines.append(f"{key or 'configuration'}: {message} (given: {problem['input']!r})")
    return (f"{path}: " if path else "") + "; ".join(lines)


def _keys(section: str, deep: bool = False) -> list[str]:
    """The keys of a section ("" for the top); with ``deep`` all keys, dotted."""
    model: Any = JobConfig
    if section:
        model = model.model_fields[section].annotation
    names = []
    for name, field in model.model_fields.items():
        names.append(name)
        if deep and isinstance(field.annotation, type) and issubclass(field.annotation, _Section):
            names += [f"{name}.{inner}" for inner in field.annotation.model_fields]
    return names

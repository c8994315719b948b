"""The typed job configuration: one YAML file drives every command, flags and --set override it."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError

from shardpiece.errors import ConfigError


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


StringList = Annotated[list[str], BeforeValidator(_as_list)]
Memory = Annotated[ByteSize, Field(ge=1 << 20)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)


class CountConfig(_Section):
    """Counting words."""

    output: str | None = Field(None, description="word table; default OUTPUT/words")
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
    output: str | None = Field(None, description="tokenizer directory; default OUTPUT/tokenizer")
    algorithm: Literal["bpe"] = "bpe"
    vocab_size: int = Field(32_768, ge=256, le=1 << 24, description="tokens in all: 256 bytes, merges, special tokens")
    min_frequency: int = Field(1, ge=1, description="merges stop when the most frequent pair is rarer")
    tie_break: Literal["lexicographic", "id", "first_seen", "lexicographic_last"] = "lexicographic"
    alphabet_order: Literal["byte-level", "raw"] = "byte-level"
    max_token_length: int | None = Field(None, ge=1, description="longest token in bytes, inclusive")
    special_tokens: StringList = Field(["<|endoftext|>"], description="their ids follow the vocabulary, in this order")


class EncodeConfig(_Section):
    """Encoding the corpus into shards."""

    tokenizer: str | None = Field(None, description="tokenizer directory; default: train's output")
    output: str | None = Field(None, description="shard directory; default OUTPUT/shards")
    format: Literal["parquet", "bin"] = "parquet"
    append_eos: bool = Field(False, description="end every document with eos_token, exactly once")
    eos_token: str = "<|endoftext|>"
    empty_documents: Literal["keep", "skip"] = Field(
        "keep", description="keep: an empty or null document is a document without text; skip: it is left out"
    )
    shard_size: Memory = Field(ByteSize(256 << 20), description="input text per shard; one row group at least")


class JobConfig(_Section):
    """A whole job. Paths may be local or any fsspec URL; every Spark executor must reach them."""

    master: str | None = Field(None, description="Spark master URL; default local[*]")
    input: StringList = Field([], description="Parquet files, directories or globs")
    text_column: str = "text"
    id_column: str | None = Field(None, description="document id for the shards; default FILE:ROW")
    group_column: str | None = Field(None, description="language or source, kept apart in the word table")
    invalid_utf8: Literal["replace", "error"] = "replace"
    pretokenizer: str = Field("cl100k_base", description="a published name or a regular expression")
    output: str = Field("runs/default", description="where the stages put their results unless told otherwise")
    overwrite: bool = Field(False, description="replace results that other settings made")
    count: CountConfig = CountConfig()
    train: TrainConfig = TrainConfig()
    encode: EncodeConfig = EncodeConfig()
    spark: dict[str, str | int | float | bool] = Field({}, description="any Spark property")

    @property
    def words_path(self) -> str:
        return self.count.output or f"{self.output.rstrip('/')}/words"

    @property
    def tokenizer_path(self) -> str:
        return self.train.output or f"{self.output.rstrip('/')}/tokenizer"

    @property
    def shards_path(self) -> str:
        return self.encode.output or f"{self.output.rstrip('/')}/shards"


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
        content["spark"] = {**(content.get("spark") or {}), ".".join(rest): value}
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
            section: Any = JobConfig
            for part in problem["loc"][:-1]:
                section = section.model_fields[part].annotation
            known = ", ".join(section.model_fields)
            lines.append(f"{key}: unknown key (known here: {known})")
        else:
            lines.append(f"{key}: {problem['msg'][0].lower()}{problem['msg'][1:]} (given: {problem['input']!r})")
    where = f"{path}: " if path else ""
    return where + "; ".join(lines)

"""The typed job configuration: one YAML file drives every command, flags and --set override it."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
)

from shardpiece.encode_config import EncodeConfig, Seed
from shardpiece.errors import ConfigError
from shardpiece.evaluation_config import EvaluateConfig, SweepConfig
from shardpiece.train_config import Memory, PathText, Section, TrainConfig, as_list


class CountConfig(Section):
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


class SampleConfig(Section):
    """A part of the corpus, by the hash of document ids: the same documents however much the corpus grows."""

    fraction: float = Field(gt=0, le=1, description="share of the documents")
    seed: Seed = 0


class JobConfig(Section):
    """A whole job. Paths may be local or any fsspec URL; every Spark executor must reach them."""

    master: str | None = Field(None, description="Spark master URL; default local[*]")
    input: Annotated[list[PathText], BeforeValidator(as_list)] = Field(
        [], description="files, directories or globs; or table:NAME, sql:QUERY, which Spark reads"
    )
    input_format: Literal["auto", "parquet", "jsonl", "text", "arrow"] = Field(
        "auto", description="auto: by the endings of the files' names"
    )
    where: str | None = Field(None, description="only documents whose columns fulfil this condition, written as in SQL")
    sample: SampleConfig | None = Field(None, description="a part of the documents, by the hash of their ids")
    text_documents: Literal["line", "file"] = Field("line", description="what a document of a text file is")
    bad_rows: Literal["error", "skip"] = Field(
        "error", description="of lines that are no JSON object of the expected types: stop, or leave them out, counted"
    )
    bad_files: Literal["error", "skip"] = Field(
        "error", description="of input files that cannot be read: refuse the job, or leave them out and say so"
    )
    changed_input: Literal["error", "ignore"] = Field(
        "error", description="of input that an earlier increment has read and that is other now, or gone"
    )
    text_column: str = "text"
    id_column: str | None = Field(None, description="document id for the shards; default FILE:ROW")
    group_column: str | None = Field(None, description="language or source, kept apart in the word table")
    invalid_utf8: Literal["replace", "error"] = "replace"
    # TextEngine checks these two; its messages are better than those for a union of types.
    normalizer: Any = Field(
        None,
        description="what is done to text before it is split: a name, a step with settings, or a list of these; default: "
        "that of train.style",
    )
    pretokenizer: Any = Field(
        None,
        description="a name, a regular expression, a step with settings, or a list of these; default: that of train.style",
    )
    output: PathText | None = Field(None, description="where the stages put their results unless told otherwise")
    overwrite: bool = Field(False, description="replace results that other settings made")
    dry_run: bool = Field(False, description="say what would be done, and do nothing")
    resume: bool = Field(False, description="go on from the checkpoint of a training that was stopped")
    count: CountConfig = CountConfig()
    train: TrainConfig = TrainConfig()
    encode: EncodeConfig = EncodeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    sweep: SweepConfig = SweepConfig()
    spark: dict[str, str | int | float | bool] = Field({}, description="any Spark property")

    @property
    def engine_settings(self) -> dict[str, Any]:
        """pretokenizer and normalizer, where the user has set them."""
        return {key: value for key in ("pretokenizer", "normalizer") if (value := getattr(self, key)) is not None}

    @property
    def engine_to_count(self) -> tuple[Any, Any]:
        """(pretokenizer, normalizer) to count with: the user's, else what goes with the style. A pre-tokenizer of the user's
        own comes without the style's normalizer."""
        pretokenizer, normalizer = self.train.text_engine
        given = self.engine_settings
        if "pretokenizer" in given:
            normalizer = None
        return given.get("pretokenizer", pretokenizer), given.get("normalizer", normalizer)

    @property
    def words_path(self) -> str:
        return self.count.output or self._below("words", "count.output")

    @property
    def tokenizer_path(self) -> str:
        return self.train.output or self._below("tokenizer", "train.output")

    @property
    def tokenizer_paths(self) -> dict[int, str]:
        """Where each vocabulary size goes: below the tokenizer's directory when there are several."""
        if not self.train.vocab_sizes:
            return {self.train.vocab_size: self.tokenizer_path}
        return {size: f"{self.tokenizer_path.rstrip('/')}/{size}" for size in self.train.sizes}

    @property
    def shards_path(self) -> str:
        return self.encode.output or self._below("shards", "encode.output")

    @property
    def words_source(self) -> str:
        """The word table to train from."""
        return self.train.words or self.count.output or self._below("words", "train.words", "--words")

    @property
    def tokenizer_source(self) -> str:
        """The tokenizer to encode with: of several that were trained, the largest."""
        if self.encode.tokenizer:
            return self.encode.tokenizer
        own = self.train.output or self._below("tokenizer", "encode.tokenizer", "--tokenizer")
        return f"{own.rstrip('/')}/{self.train.sizes[-1]}" if self.train.vocab_sizes else own

    @property
    def evaluation_path(self) -> str:
        return self.evaluate.output or self._below("evaluation", "evaluate.output")

    @property
    def sweep_path(self) -> str:
        return self.sweep.output or self._below("sweep", "sweep.output")

    def _below(self, name: str, key: str, flag: str = "--output") -> str:
        if self.output is None:
            raise ConfigError(f"no {name} given: pass {flag}, or set {key} or output in the configuration")
        return f"{self.output.rstrip('/')}/{name}"


_SECTIONS = ("count", "train", "encode", "evaluate", "sweep", "spark")


class _OnceLoader(yaml.SafeLoader):
    """YAML in which no key comes twice: the second would silently take the place of the first, with all below it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.YAMLError(f"{key.value} is there twice, in lines {seen[key.value]} and {line}")
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def load_config(path: str | None = None, overrides: dict[str, Any] | None = None) -> JobConfig:
    """Read a YAML file and apply overrides, whose keys are dotted paths such as "train.vocab_size".

    Raises ConfigError naming the file and the key.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = yaml.load(Path(path).read_text(encoding="utf-8"), _OnceLoader) or {}
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
    """The keys of a section ("" for the top); with ``deep`` those of the sections in it too, dotted."""
    model: Any = JobConfig
    for part in filter(None, section.split(".")):
        model = _section_of(model.model_fields[part].annotation)
    names = []
    for name, field in model.model_fields.items():
        names.append(name)
        if deep and _section_of(field.annotation):
            names += [f"{name}.{inner}" for inner in _keys(f"{section}.{name}", deep)]
    return names


def _section_of(annotation: Any) -> type[Section] | None:
    """The section that a key of this type holds, one that may be left out too; None for other keys."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None)

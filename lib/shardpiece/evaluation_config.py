"""The parts of the job configuration that are about comparing tokenizers: evaluation, and the sweep over settings."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, Field, field_validator, model_validator

from shardpiece.train_config import ALGORITHMS, Memory, PathText, Section, StringList, as_list, as_sizes


class TokenizerChoice(Section):
    """A tokenizer to evaluate."""

    path: PathText
    name: str | None = Field(None, description="in the report; default: of its file or directory")
    pretokenizer: Any = Field(None, description="for tiktoken ranks of no published vocabulary: what they are for")


def _choices(value: Any) -> Any:
    """Each a path, NAME=PATH, or a section."""
    given = value if isinstance(value, list) else [value]
    found = []
    for one in given:
        if isinstance(one, str):
            name, equals, path = one.partition("=")
            named = equals and name and not re.search(r"[/\\:]", name)
            one = {"name": name, "path": path} if named else {"path": one}
        found.append(one)
    return found


class ShapeConfig(Section):
    """A model that a tokenizer would be for."""

    layers: int = Field(ge=1)
    d_model: int = Field(ge=1)
    key_value_size: int | None = Field(
        None, ge=1, description="values per token and layer for keys, and for values; default d_model"
    )
    bytes_per_value: int = Field(2, ge=1, le=8)
    tied: bool = Field(True, description="whether the output matrix is the embedding's")
    price_per_million_tokens: float = Field(1.0, ge=0, allow_inf_nan=False)


class EvaluateConfig(Section):
    """Metrics of tokenizers side by side."""

    tokenizers: Annotated[list[TokenizerChoice], BeforeValidator(_choices)] = Field(
        [], description="of any format: a path, NAME=PATH, or {path, name, pretokenizer}; the first is the baseline"
    )
    words: str | None = Field(
        None,
        description="a word table: without input what is evaluated on, with input what training counts are from",
    )
    output: PathText | None = Field(None, description="directory of the report; default OUTPUT/evaluation")
    parallel_column: str | None = Field(None, description="column with the ids of parallel texts")
    parallel_key: str | None = Field(
        None,
        description="what of that id translations have in common: a regular expression that matches it as a whole, its first "
        "group, or strip_last_part (of A:B:C A:B); default: all of it",
    )
    pivot: str | None = Field(
        None, description="group that premiums are against; default English, else the group with most parallel texts"
    )
    probes: StringList = Field([], description="terms of your own to see cut: part numbers, names")
    shapes: dict[str, ShapeConfig] | None = Field(
        None, description="models to compute costs for; default GPT-2 small and Llama 3 8B"
    )
    samples: int = Field(12, ge=0, le=1_000, description="documents in the report, of the groups with most text")
    glitch_tokens: int = Field(2_000, ge=0, description="glitch candidates to list for each tokenizer")
    memory_per_task: Memory = Field(ByteSize(512 << 20), description="bound of a task's tables")

    @field_validator("parallel_key")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"no regular expression ({error}): {value!r}") from None
        return value


Weighting = float | dict[str, float | int | str] | None


class SweepConfig(Section):
    """A grid of tokenizers, trained from one word table and compared on it."""

    words: str | None = Field(None, description="word table; default: count's output")
    output: PathText | None = Field(None, description="default OUTPUT/sweep")
    vocab_sizes: Annotated[list[Annotated[int, Field(ge=1, le=1 << 24)]], BeforeValidator(as_sizes)] = Field(
        [8_192, 16_384, 32_768, 65_536], min_length=1
    )
    algorithms: Annotated[list[str], BeforeValidator(as_list)] = Field(["bpe"], min_length=1)
    weights: dict[str, Weighting] = Field(
        {"as counted": None},
        min_length=1,
        description="weightings of the groups by name: null as counted, a number is train.temperature, a section train.weights",
    )

    @model_validator(mode="after")
    def _known(self) -> "SweepConfig":
        for algorithm in self.algorithms:
            if algorithm not in ALGORITHMS:
                raise ValueError(f"algorithms: {algorithm!r} is none of {', '.join(ALGORITHMS)}")
        for name in self.weights:
            if not re.fullmatch(r"[\w .,-]+", name):
                raise ValueError(
                    f"weights: the name {name!r} becomes a directory's: letters, digits, spaces and -,. only"
                )
        return self

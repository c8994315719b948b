"""The part of the job configuration that is about encoding: which tokenizer, what around documents, which shards."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from shardpiece.errors import ConfigError
from shardpiece.train_config import Memory, PathText, Section, StringList, as_list

Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class SamplingConfig(Section):
    """Regularization: segmentations drawn at random, the same ones for a seed, an epoch and a document's id anywhere."""

    dropout: float = Field(0.0, ge=0, lt=1, description="of BPE models: how often a merge is left out")
    alpha: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="of Unigram models: segmentations in proportion to their probability to this power",
    )
    nbest: int | None = Field(None, ge=1, le=1 << 20, description="of so many best segmentations; default: of all")
    seed: Seed = 0
    epoch: Seed = Field(0, description="another one gives other segmentations")


class PackingConfig(Section):
    """Documents packed into sequences of one length."""

    strategy: Literal["concatenate", "best_fit"] = Field(
        "concatenate",
        description="concatenate: one after the other, cut wherever a sequence is full; best_fit: no document is cut that "
        "fits into a sequence",
    )
    sequence_length: int = Field(ge=1, lt=1 << 31, description="tokens of a sequence")
    remainder: Literal["pad", "drop", "carry"] = Field(
        "pad",
        description="what is left at the end of a shard: filled with pad_token, left out, or packed with that of all other "
        "shards into a last shard",
    )
    long_documents: Literal["split", "keep"] = Field(
        "split", description="of a document longer than a sequence: cut it, or keep it whole as a longer row of its own"
    )
    pad_token: str | None = Field(None, description="default: the end-of-text token, else id 0")


class ValidationConfig(Section):
    """Documents set apart by the hash of their ids: the same ones however much the corpus grows."""

    fraction: float = Field(gt=0, lt=1, description="share of the documents")
    seed: Seed = 0


class EncodeConfig(Section):
    """Encoding the corpus into shards."""

    tokenizer: str | None = Field(
        None, description="a tokenizer of any format, file or directory; default: train's output"
    )
    tokenizer_pretokenizer: Any = Field(
        None, description="for tiktoken ranks of no published vocabulary: the pre-tokenizer they are for"
    )
    output: PathText | None = Field(None, description="shard directory; default OUTPUT/shards")
    format: Annotated[list[str], BeforeValidator(as_list)] = Field(
        ["parquet"], min_length=1, description="of the shards; of several, each has a directory of its name"
    )
    append_eos: bool = Field(False, description="end every document with eos_token, exactly once")
    eos_token: str | None = Field(
        None, description="the end-of-text token; default: the first of <|endoftext|>, </s> and [SEP] that there is"
    )
    add_special_tokens: bool = Field(
        False, description="put around every document what the tokenizer has for it, such as [CLS] and [SEP]"
    )
    empty_documents: Literal["keep", "skip"] = Field(
        "keep", description="keep: an empty or null document is a document without text; skip: it is left out"
    )
    special_tokens_in_text: Literal["text", "token", "error"] = Field(
        "text", description="what a place is that spells a special token: ordinary text, that token, or an error"
    )
    shard_size: Memory = Field(ByteSize(256 << 20), description="input text per shard; one row group at least")
    metadata_columns: StringList = Field(
        [], description="columns that go into the shards, where the format can hold them"
    )
    packing: PackingConfig | None = Field(None, description="sequences of one length; default: a row per document")
    shuffle: Literal["none", "shard", "global"] = Field(
        "none", description="order of the documents: the input's, at random within each shard, or across all of them"
    )
    seed: Seed = Field(0, description="of shuffle and mixture")
    validation: ValidationConfig | None = Field(None, description="documents set apart for validation")
    mixture: dict[str, float | int | str] | None = Field(
        None,
        description="by group: how often its documents are taken (2.0, 0.5), or how many tokens of it (0.5B tokens)",
    )
    memory_per_task: Memory = Field(ByteSize(512 << 20), description="bound of a task's buffers; more is on local disk")
    incremental: bool = Field(False, description="add to the shards that are there what input is new")
    warm_words: PathText | None = Field(
        None,
        description="a word table; workers begin with its most frequent words, which changes no output; default: in run the "
        "job's own",
    )
    cache_bytes: Memory = Field(ByteSize(64 << 20), description="memory for words that a worker has encoded")
    sampling: SamplingConfig | None = Field(None, description="draw segmentations at random; default: no")

    @model_validator(mode="after")
    def _fitting(self) -> "EncodeConfig":
        for name in self.metadata_columns:
            if self.metadata_columns.count(name) > 1:
                raise ValueError(f"metadata_columns: {name!r} is listed twice")
        if self.format == ["parquet"]:
            return self
        from shardpiece.shards.formats import FORMATS  # a second of imports, which other commands need not wait for

        for name in self.format:
            if name not in FORMATS:
                raise ValueError(f"format: {name!r} is none of {', '.join(FORMATS)}")
            if self.format.count(name) > 1:
                raise ValueError(f"format: {name!r} is listed twice")
        return self

    def end_of_text(self, special_tokens: Iterable[str]) -> str:
        """The token that append_eos appends, one of ``special_tokens``. Raises ConfigError when it is not among them."""
        known = [*special_tokens]
        wanted = [self.eos_token] if self.eos_token is not None else ["<|endoftext|>", "</s>", "[SEP]"]
        for token in wanted:
            if token in known:
                return token
        raise ConfigError(
            f"encode.append_eos: the end-of-text token {wanted[0]!r} is not among the special tokens "
            f"({', '.join(known) or 'none'}): set encode.eos_token to one of them"
        )

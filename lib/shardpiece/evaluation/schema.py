"""The content of metrics.json and sweep.json.

Rates are fractions of 1, sizes are in bytes, and a value that cannot be computed is null: ``notes`` says why. No value is
ever NaN or infinite. Groups are the values of the group column, "" where there is none; tokenizers go by their ``name``,
which is unique in a report, and the first one is the baseline of ratios.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = "shardpiece-evaluation"
SWEEP_FORMAT = "shardpiece-sweep"
VERSION = 1


class Part(BaseModel):
    """Base of everything in a report."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TextSize(Part):
    """How much text there is; the same for all tokenizers. Of a word table ``documents`` is 0."""

    documents: int = 0
    bytes: int = 0
    characters: int = 0
    words: int = 0


class Corpus(TextSize):
    """``source``: whether text was read, or a word table. ``word_rule``: what a word is. ``groups``: in order of their names."""

    source: Literal["text", "words"]
    word_rule: str
    groups: dict[str, TextSize]


class GroupMetrics(TextSize):
    """What a tokenizer does with the text of a group, or with all of it (see DEFINITIONS for every rate)."""

    tokens: int = 0
    tokens_per_document: float | None = None
    bytes_per_token: float | None = None
    characters_per_token: float | None = None
    fertility: float | None = None
    continued_words: float | None = None
    single_token_common_words: float | None = None
    unk_rate: float | None = None
    round_trip_rate: float | None = None
    renyi_efficiency: float | None = None
    distinct_tokens: int = 0
    white_space_tokens: float | None = None
    white_space_bytes_per_token: float | None = None


class TokenInfo(Part):
    """``text``: readable, every invisible byte shown; ``bytes``: in hexadecimal, what the token says; ``count``: in the text
    evaluated."""

    text: str
    bytes: str
    count: int


class Allocation(Part):
    """Numbers of tokens. ``by_group``: the group in whose text the token's relative frequency is highest; tokens that no
    text has are under "unused"."""

    by_category: dict[str, int]
    by_script: dict[str, int]
    by_length: dict[int, int] = Field(description="by bytes of the token; special tokens are left out")
    by_group: dict[str, int]


class Utilization(Part):
    """``possible``: tokens that text can become (no special ones, no unused ids); ``used``: those that the text has;
    ``at_least``: by a number, how many occur so often."""

    possible: int
    used: int
    fraction: float | None
    at_least: dict[int, int]


class Renyi(Part):
    """``efficiency``: by the size of the vocabulary; ``efficiency_of_used``: by the number of tokens that occur."""

    alpha: float
    efficiency: float | None
    efficiency_of_used: float | None


GlitchReason = Literal["unreachable", "partial_utf8", "unused", "rare"]


class GlitchToken(Part):
    """A token that a model may hardly learn. ``training_count``: in the training table, null when that is not at hand;
    ``expected``: how often it should occur here, null when nothing says so."""

    id: int
    text: str
    bytes: str
    reasons: list[GlitchReason]
    count: int
    training_count: int | None = None
    expected: float | None = None


class Glitches(Part):
    """``counts``: how many tokens each reason is true of; ``candidates``: the most suspicious of them."""

    counts: dict[GlitchReason, int]
    candidates: list[GlitchToken]


class NumbersOfLength(Part):
    """``patterns``: digits per token such as "3+3+1", and how many of the numbers are cut so, the most frequent first."""

    numbers: int
    alike: float | None
    tokens: float | None
    patterns: dict[str, int]


class Numbers(Part):
    """``alike``: mean over the lengths; ``grouping``: in words, such as "single digits" or "groups of 3 from the left"."""

    alike: float | None
    grouping: str | None
    lengths: dict[int, NumbersOfLength]


class WhiteSpace(Part):
    """``indentation``: by kind ("4 spaces", "2 spaces", "tab"), tokens of an indented line's white space at levels 1, 2, ..;
    ``spaces``: tokens of runs of 1, 2, .. spaces before a word."""

    indentation: dict[str, list[int]]
    spaces: list[int]
    longest_spaces_in_one_token: int


class Cut(Part):
    """A text cut by a tokenizer; ``pieces``: readable, one for each id."""

    ids: list[int]
    pieces: list[str]


class Probe(Part):
    """One of the user's terms: at the start of a text, and after a space. ``count``: how often text has it, where counted."""

    text: str
    alone: Cut
    after_space: Cut
    round_trip: bool


class Cost(Part):
    """What a tokenizer costs a model of some shape, see DEFINITIONS."""

    embedding_parameters: int
    output_parameters: int
    parameters: int
    cache_bytes_per_token: int
    cache_bytes_per_document: float | None
    cache_bytes_per_thousand_words: float | None
    attention_ratio: float | None
    price_per_million_words: float | None


class Shape(Part):
    """``key_value_size``: values per token and layer in the cache, for keys and for values each: d_model, unless heads share
    them. ``tied``: whether the output matrix is the embedding's."""

    layers: int
    d_model: int
    key_value_size: int
    bytes_per_value: int
    tied: bool
    price_per_million_tokens: float


class TokenizerReport(Part):
    """``tokens``: what is known of every id that samples, probes and numbers name, by id. ``premiums``: by group, against
    the pivot; ``frequency_curve``: (rank, count) at ranks that grow by a factor."""

    name: str
    source: str
    fingerprint: str
    vocab_size: int
    algorithm: str
    engine: str
    overall: GroupMetrics
    groups: dict[str, GroupMetrics]
    vocabulary: Allocation
    utilization: Utilization
    renyi: Renyi
    frequency_curve: list[tuple[int, int]]
    premiums: dict[str, float | None]
    gini: float | None
    numbers: Numbers | None
    white_space: WhiteSpace | None
    glitch: Glitches
    probes: list[Probe]
    costs: dict[str, Cost]
    tokens: dict[int, TokenInfo]
    notes: list[str] = []


class ParallelGroup(Part):
    """``pairs``: texts that this group and the pivot both have; ``byte_premium``: their bytes against the pivot's, what a
    tokenizer of bytes would have as its premium."""

    pairs: int
    byte_premium: float | None


class Parallel(Part):
    """``pivot``: the group that premiums are against, null when there are no pairs; ``texts``: different ids counted;
    ``sampled``: whether these are not all."""

    pivot: str | None
    texts: int
    sampled: bool
    groups: dict[str, ParallelGroup]


class SampleTokens(Part):
    """A sample cut by a tokenizer. ``spans``: (id, start, end) into the UTF-8 bytes of the sample's text, one after the
    other; null when the tokenizer changes the text, and then ``pieces`` alone tell what became of it. ``pieces``: readable,
    one for each id."""

    ids: list[int]
    pieces: list[str]
    spans: list[tuple[int, int, int]] | None


class Sample(Part):
    """``tokens``: by the name of the tokenizer; ``cut``: whether the document is longer than the text."""

    group: str
    id: str
    text: str
    cut: bool
    tokens: dict[str, SampleTokens]


class Definition(Part):
    """``better``: which way is better; "neither" for what only describes."""

    title: str
    formula: str
    source: str
    better: Literal["higher", "lower", "neither"]


class File(Part):
    """A file that lies beside."""

    name: str
    bytes: int
    checksum: str


class Report(Part):
    """All of metrics.json."""

    format: Literal["shardpiece-evaluation"] = FORMAT
    version: Literal[1] = VERSION
    key: str
    settings: dict
    definitions: dict[str, Definition]
    corpus: Corpus
    shapes: dict[str, Shape]
    tokenizers: list[TokenizerReport]
    parallel: Parallel | None
    samples: list[Sample]
    notes: list[str]
    files: list[File] = []


class SweepCell(Part):
    """A trained tokenizer of the grid. ``weights``: the name of the weighting; ``parameters``: by the name of a shape."""

    name: str
    algorithm: str
    vocab_size: int
    weights: str
    tokenizer: str
    fingerprint: str
    seconds: float
    overall: GroupMetrics
    groups: dict[str, GroupMetrics]
    renyi: Renyi
    utilization: Utilization
    fertility_gini: float | None
    parameters: dict[str, int]


class Sweep(Part):
    """All of sweep.json. ``curves``: by metric, for every series (algorithm and weights) its (vocab_size, value) pairs."""

    format: Literal["shardpiece-sweep"] = SWEEP_FORMAT
    version: Literal[1] = VERSION
    key: str
    settings: dict
    definitions: dict[str, Definition]
    corpus: Corpus
    shapes: dict[str, Shape]
    cells: list[SweepCell]
    curves: dict[str, dict[str, list[tuple[int, float | None]]]]
    notes: list[str]
    files: list[File] = []

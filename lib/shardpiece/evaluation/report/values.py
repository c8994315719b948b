"""Values as people read them. A value that could not be computed is a dash with words for those who do not see it."""

from dataclasses import dataclass
from typing import Literal

from shardpiece.evaluation import schema

Kind = Literal["count", "ratio", "share", "small", "bytes", "money", "text"]
NOT_COMPUTED = "–"
PERCENT = "\u00a0%"


def shown(value: float | int | str | None, kind: Kind = "text") -> str:
    if value is None:
        return NOT_COMPUTED
    match kind:
        case "count":
            return f"{value:,.0f}"
        case "ratio":
            return f"{value:.2f}"
        case "small":
            return f"{value:.3f}"
        case "share":
            return percent(value)
        case "bytes":
            return byte_size(value)
        case "money":
            return f"{value:,.2f}"
    return str(value)


def percent(value: float) -> str:
    """Never 0 % for what is more, nor 100 % for what is less."""
    if value in (0, 1):
        return f"{100 * value:.0f}{PERCENT}"
    if value < 0.0001:
        return f"< 0.01{PERCENT}"
    if 0.9999 < value < 1:
        return f"> 99.99{PERCENT}"
    places = 2 if value < 0.01 or value > 0.99 else 1
    return f"{100 * value:.{places}f}{PERCENT}"


def whole_percent(value: float) -> str:
    return f"{100 * value:.0f}{PERCENT}"


def byte_size(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= size:
            return f"{value / size:,.{0 if value >= 100 * size else 1}f} {unit}"
    return f"{value:,.0f} B"


def times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"


def counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(items: list[str], most: int = 4) -> str:
    """As a sentence has them: "a, b and c", the rest as a number."""
    if len(items) > most:
        items = [*items[: most - 1], f"{len(items) - most + 1} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


# From this share of unknown tokens on, few tokens are no merit: each may stand for a word that was lost.
MANY_UNKNOWN = 0.02


def loses_text(metrics: schema.GroupMetrics | None) -> bool:
    """Whether so much of a text became unknown tokens that its number of tokens cannot be compared."""
    return metrics is not None and (metrics.unk_rate or 0) >= MANY_UNKNOWN


@dataclass(frozen=True)
class Metric:
    """A column: ``key`` of GroupMetrics (or another place) and of the definitions, its short title and how it is shown."""

    key: str
    title: str
    kind: Kind


GROUP_METRICS = (
    Metric("bytes_per_token", "Bytes/token", "ratio"),
    Metric("characters_per_token", "Characters/token", "ratio"),
    Metric("fertility", "Fertility", "ratio"),
    Metric("continued_words", "Continued words", "share"),
    Metric("single_token_common_words", "Common words in one token", "share"),
    Metric("unk_rate", "Unknown tokens", "share"),
    Metric("round_trip_rate", "Round trips", "share"),
    Metric("renyi_efficiency", "Rényi efficiency", "small"),
    Metric("white_space_tokens", "White-space tokens", "share"),
    Metric("white_space_bytes_per_token", "White space per token", "ratio"),
)
# What unknown tokens make look better than it is.
OF_TOKENS = {"bytes_per_token", "characters_per_token", "fertility", "continued_words", "single_token_common_words"}
SIZES = (
    Metric("documents", "Documents", "count"),
    Metric("bytes", "Bytes", "count"),
    Metric("characters", "Characters", "count"),
    Metric("words", "Words", "count"),
)
COSTS = (
    Metric("embedding_parameters", "Embedding", "count"),
    Metric("output_parameters", "Output", "count"),
    Metric("parameters", "Parameters", "count"),
    Metric("cache_bytes_per_token", "Cache per token", "bytes"),
    Metric("cache_bytes_per_document", "Cache per document", "bytes"),
    Metric("cache_bytes_per_thousand_words", "Cache per 1,000 words", "bytes"),
    Metric("attention_ratio", "Attention work", "ratio"),
    Metric("price_per_million_words", "Price of 1 M words", "money"),
)

"""What a tokenizer costs a model: parameters, attention, cache, money."""

from shardpiece.evaluation.metrics import ratio
from shardpiece.evaluation.schema import Cost, GroupMetrics, Shape

DEFAULT_SHAPES = {
    "GPT-2 small": Shape(
        layers=12, d_model=768, key_value_size=768, bytes_per_value=2, tied=True, price_per_million_tokens=1.0
    ),
    "Llama 3 8B": Shape(
        layers=32, d_model=4096, key_value_size=1024, bytes_per_value=2, tied=False, price_per_million_tokens=1.0
    ),
}
"""Shapes of models: values of 16 bits; prices are of no provider, so that the price of a million words is the fertility."""


def parameters(vocab_size: int, shape: Shape) -> tuple[int, int]:
    """(of the embedding, of the output): V · d each, the output none of its own where it is tied to the embedding (Press and
    Wolf 2017). GPT-2 small: 50,257 · 768 = 38.6 M."""
    size = vocab_size * shape.d_model
    return size, 0 if shape.tied else size


def cache_bytes_per_token(shape: Shape) -> int:
    """Keys and values of all layers: 2 · layers · key_value_size · bytes of a value; GPT-2 small in 16 bits: 36,864."""
    return 2 * shape.layers * shape.key_value_size * shape.bytes_per_value


def attention_ratio(tokens: float, baseline: float) -> float | None:
    """How much more work attention is for the same text: the square of the ratio of tokens, as scores are computed for every
    pair (Vaswani et al. 2017). 58 % more tokens make 2.5 times the work."""
    times = ratio(tokens, baseline)
    return None if times is None else times * times


def cost(vocab_size: int, shape: Shape, overall: GroupMetrics, baseline: GroupMetrics) -> Cost:
    embedding, output = parameters(vocab_size, shape)
    cache = cache_bytes_per_token(shape)
    fertility, length = overall.fertility, overall.tokens_per_document
    return Cost(
        embedding_parameters=embedding,
        output_parameters=output,
        parameters=embedding + output,
        cache_bytes_per_token=cache,
        cache_bytes_per_document=None if length is None else cache * length,
        cache_bytes_per_thousand_words=None if fertility is None else cache * fertility * 1_000,
        attention_ratio=attention_ratio(overall.tokens, baseline.tokens),
        price_per_million_words=None if fertility is None else shape.price_per_million_tokens * fertility,
    )

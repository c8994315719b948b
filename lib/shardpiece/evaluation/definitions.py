"""What every metric means, for the report: its formula, where it is from, and which way is better."""

from shardpiece.evaluation.schema import Definition

WORD_RULE = (
    "a maximal run of letters, marks, digits and underscores (\\w+, the words of Hugging Face's Whitespace pre-tokenizer). "
    "Where a script puts no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) a run is a whole "
    "phrase: figures per word then compare tokenizers on the same text, not languages; characters per token do both"
)


def _definition(title: str, better: str, formula: str, source: str = "") -> Definition:
    return Definition(title=title, better=better, formula=formula, source=source)


DEFINITIONS: dict[str, Definition] = {
    "tokens": _definition("Tokens", "lower", "tokens of the text, without special tokens around documents"),
    "tokens_per_document": _definition("Tokens per document", "lower", "tokens / documents"),
    "bytes_per_token": _definition("Bytes per token", "higher", "bytes of the text in UTF-8 / tokens (compression)"),
    "characters_per_token": _definition(
        "Characters per token", "higher", "Unicode code points of the text / tokens; for scripts without spaces too"
    ),
    "fertility": _definition(
        "Fertility",
        "lower",
        f"tokens of the text / words of the text. A word is {WORD_RULE}",
        "Ács 2019; Rust et al. 2021",
    ),
    "continued_words": _definition(
        "Continued words",
        "lower",
        "share of the text's words that become more than one token, each word standing after a line end and a space",
        "Ács 2019; Rust et al. 2021 (proportion of continued words)",
    ),
    "single_token_common_words": _definition(
        "Common words in one token",
        "higher",
        "share of the group's 1,000 most frequent words that become one token, each standing after a line end and a space; of all "
        "text, the mean over the groups",
    ),
    "unk_rate": _definition("Unknown tokens", "lower", "unknown tokens / tokens; 0 where there is no unknown token"),
    "round_trip_rate": _definition(
        "Round trips",
        "higher",
        "share of the documents tried that decode(encode(document)) gives back byte for byte; all are tried where decoding puts bytes "
        "together, else the first 64 and every sixteenth of a file (of lines, those that begin at such bytes) up to 32 KiB each",
    ),
    "renyi_efficiency": _definition(
        "Rényi efficiency",
        "higher",
        "log(Σ pᵢ^α) / (1 − α) / log(V), α = 2.5, pᵢ the relative frequency of token i, V the size of the vocabulary",
        "Zouhar et al. 2023",
    ),
    "renyi_efficiency_of_used": _definition(
        "Rényi efficiency of used tokens",
        "higher",
        "as Rényi efficiency, V the number of tokens that occur, as the package tokenization-scorer has it",
        "Zouhar et al. 2023",
    ),
    "distinct_tokens": _definition("Different tokens", "neither", "tokens that occur at least once"),
    "utilization": _definition(
        "Utilization", "higher", "tokens that occur at least once / tokens that are neither special nor unused ids"
    ),
    "premium": _definition(
        "Premium",
        "lower",
        "Σ tokens of the group's texts / Σ tokens of the pivot's texts, over the texts that both have",
        "Petrov et al. 2023",
    ),
    "gini": _definition(
        "Gini coefficient of premiums",
        "lower",
        "Σᵢ Σⱼ |cᵢ − cⱼ| / (2 n Σ cᵢ), cᵢ the premium of group i, the pivot's 1 among them: 0 when the same text costs "
        "every group as many tokens",
        "Gini 1912; for tokenizers Foroutan et al. 2025",
    ),
    "fertility_gini": _definition(
        "Gini coefficient of fertility", "lower", "as that of premiums, of the groups' fertility", "Gini 1912"
    ),
    "by_group": _definition(
        "Vocabulary by group",
        "neither",
        "number of tokens whose relative frequency (count / tokens of the group) is highest in the group",
    ),
    "numbers_alike": _definition(
        "Numbers cut alike",
        "higher",
        "share of the numbers of one length that are cut in the most frequent way, mean over the lengths 2 to 9",
    ),
    "white_space_tokens": _definition("White-space tokens", "lower", "tokens of white space alone / tokens"),
    "white_space_bytes_per_token": _definition(
        "White space per token", "higher", "bytes of tokens of white space alone / such tokens"
    ),
    "unreachable": _definition(
        "Unreachable tokens",
        "lower",
        "encode(decode([t])) ≠ [t], and t does not come of its text between other characters, nor occur in the text",
        "Land & Bartolo 2024",
    ),
    "partial_utf8": _definition(
        "Tokens of partial characters",
        "lower",
        "two bytes or more that are no valid UTF-8: they decode together with their neighbours alone",
        "Land & Bartolo 2024",
    ),
    "unused": _definition("Unused tokens", "lower", "tokens that text can become, and that the text never has"),
    "rare": _definition(
        "Rare tokens",
        "lower",
        "tokens that occur less than a tenth as often as expected: the count in the training table, scaled by the tokens of "
        "both, where that is at hand and 10 or more are expected",
    ),
    "parameters": _definition("Parameters", "lower", "V · d for the embedding, and as many for an output of its own"),
    "cache_bytes_per_token": _definition(
        "Cache per token", "lower", "2 · layers · key_value_size · bytes of a value (keys and values)"
    ),
    "cache_bytes_per_document": _definition("Cache per document", "lower", "cache per token · tokens per document"),
    "cache_bytes_per_thousand_words": _definition(
        "Cache per 1,000 words", "lower", "cache per token · fertility · 1,000"
    ),
    "attention_ratio": _definition(
        "Attention work", "lower", "(tokens / tokens of the first tokenizer)², attention being quadratic in the length"
    ),
    "price_per_million_words": _definition("Price of 1 M words", "lower", "price of a million tokens · fertility"),
}

"""Every sum and figure in plain Python, a document at a time."""

import math
import re
from collections import Counter, defaultdict


def words_of(text: str) -> list[str]:
    # Python's \w has no marks and joiners; texts of the tests with such are counted as the real engine has them.
    return re.findall(r"[\w\u0300-\u036f\u0900-\u0963\u200c\u200d\ufe0f]+", text)


def in_context(tokenizer, word: str) -> int:
    return max(0, len(tokenizer.encode("\n " + word)) - len(tokenizer.encode("\n")))


def measured(tokenizer, rows: list[dict]) -> dict[str, dict]:
    """By group, and None for all: the sums, the count of every token and the words' counts."""
    result = defaultdict(lambda: {"sums": Counter(), "tokens": Counter(), "words": Counter()})
    for row in rows:
        text = row["text"] or ""
        ids, words = tokenizer.encode(text), words_of(text)
        for group in (row["lang"] or "", None):
            own = result[group]
            own["sums"].update(
                documents=1, bytes=len(text.encode()), characters=len(text), words=len(words), tokens=len(ids)
            )
            own["sums"]["round_trips"] += tokenizer.decode_bytes(ids) == text.encode()
            own["sums"]["continued"] += sum(in_context(tokenizer, word) > 1 for word in words)
            own["tokens"].update(ids)
            own["words"].update(words)
    return dict(result)


def common_in_one_token(tokenizer, words: Counter, most: int = 1000) -> float | None:
    top = sorted(words, key=lambda word: (-words[word], word.encode()))[:most]
    return sum(in_context(tokenizer, word) == 1 for word in top) / len(top) if top else None


def renyi_efficiency(tokens: Counter, size: int, alpha: float = 2.5) -> float:
    total = sum(tokens.values())
    return math.log(sum((n / total) ** alpha for n in tokens.values())) / (1 - alpha) / math.log(size)


def gini(values: list[float]) -> float:
    return sum(abs(a - b) for a in values for b in values) / (2 * len(values) * sum(values))


def premium(tokenizer, rows: list[dict], group: str, pivot: str, key) -> float | None:
    sizes = defaultdict(list)
    for row in rows:
        sizes[row["lang"], key(row["id"])].append(len(tokenizer.encode(row["text"])))
    mean = {place: sum(found) / len(found) for place, found in sizes.items()}
    keys = {k for lang, k in mean if lang == group} & {k for lang, k in mean if lang == pivot}
    return sum(mean[group, k] for k in keys) / sum(mean[pivot, k] for k in keys) if keys else None

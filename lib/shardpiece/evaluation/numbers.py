"""How a tokenizer cuts numbers and white space, found by trying."""

from collections import Counter

from shardpiece.evaluation.cuts import after_line_end
from shardpiece.evaluation.metrics import ratio
from shardpiece.evaluation.schema import Numbers, NumbersOfLength, WhiteSpace
from shardpiece.evaluation.vocabulary import Said

LENGTHS = range(2, 10)
PER_LENGTH = 200
_LEVELS = 8
INDENTS = {"4 spaces": "    ", "2 spaces": "  ", "tab": "\t"}


def numbers_to_try(length: int) -> list[str]:
    """Up to PER_LENGTH numbers of so many digits, spread evenly over all there are."""
    first, n = 10 ** (length - 1), 9 * 10 ** (length - 1)
    take = min(PER_LENGTH, n)
    # Steps that are wide are multiples of five: these numbers are moved to end in every digit.
    return [str(first + i * n // take + (i % 10 if n // take > 10 else 0)) for i in range(take)]


def digit_patterns(said: Said, numbers: list[str]) -> list[str]:
    """Digits per token of each number, after a line end and a space, such as "3+1"; tokens without digits are left out, and
    what is not cut into its digits is "?"."""
    patterns = []
    for number, ids in zip(numbers, after_line_end(said.tokenizer, [f" {number}" for number in numbers]), strict=True):
        digits = [sum(48 <= b <= 57 for b in said.texts[i]) for i in ids]
        patterns.append("+".join(str(n) for n in digits if n) if sum(digits) == len(number) else "?")
    return patterns


def grouping(patterns: dict[int, dict[str, int]]) -> str:
    """In words how numbers are cut, from the patterns of each length."""
    if any(len(found) != 1 or "?" in found for found in patterns.values()):
        return "numbers of one length are cut in different ways"
    cut = {length: [int(part) for part in next(iter(found)).split("+")] for length, found in patterns.items()}
    if all(parts == [1] * length for length, parts in cut.items()):
        return "single digits"
    if all(len(parts) == 1 for parts in cut.values()):
        return "whole numbers"
    size = max(max(parts) for parts in cut.values())
    left = all(
        parts == [size] * (length // size) + [length % size] * bool(length % size) for length, parts in cut.items()
    )
    right = all(
        parts == [length % size] * bool(length % size) + [size] * (length // size) for length, parts in cut.items()
    )
    if left or right:
        return f"groups of {size} from the {'left' if left else 'right'}"
    return "numbers of one length alike, in no regular groups"


def numbers(said: Said) -> Numbers:
    """Numbers of 2 to 9 digits: whether those of one length are cut alike, and into which groups of digits (Singh and Strouse
    2024: groups from the right make arithmetic easier)."""
    patterns = {length: Counter(digit_patterns(said, numbers_to_try(length))) for length in LENGTHS}
    lengths = {}
    for length, found in patterns.items():
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        n = found.total()
        known = {pattern: times for pattern, times in found.items() if pattern != "?"}
        pieces = sum((pattern.count("+") + 1) * times for pattern, times in known.items())
        lengths[length] = NumbersOfLength(
            numbers=n,
            alike=ratio(max(known.values(), default=0), n),
            tokens=ratio(pieces, sum(known.values())),
            patterns=dict(ordered[:12]),
        )
    alike = [one.alike for one in lengths.values() if one.alike is not None]
    return Numbers(alike=ratio(sum(alike), len(alike)), grouping=grouping(patterns), lengths=lengths)


def white_space(said: Said) -> WhiteSpace:
    """How many tokens the white space before code is: that of a line ``x`` with indentation, less those of ``x`` alone."""

    def blank(texts: list[str]) -> list[int]:
        bare, *found = map(len, after_line_end(said.tokenizer, ["x", *(text + "x" for text in texts)]))
        return [max(0, n - bare) for n in found]

    spaces = [i for i, raw in enumerate(said.texts) if said.ordinary[i] and raw and not raw.strip(b" ")]
    return WhiteSpace(
        indentation={name: blank([unit * level for level in range(1, _LEVELS + 1)]) for name, unit in INDENTS.items()},
        spaces=blank([" " * n for n in range(1, 17)]),
        longest_spaces_in_one_token=max((len(said.texts[i]) for i in spaces), default=0),
    )

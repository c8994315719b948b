"""Regular expressions of users: checked before a job starts, and run with a bound on time, since one may be exponential on
some text."""

from collections.abc import Iterator

import regex

from shardpiece.errors import ConfigError, DocumentError

# Seconds per document, and per megabyte of it.
TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_PER_MB = 20.0


def compiled(pattern: str, what: str) -> regex.Pattern:
    """Raises ConfigError, which says ``what`` the pattern is for, when it is no regular expression, runs backwards, or is
    not valid Unicode."""
    try:
        expression = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{what}: {shortened(pattern)} is not a regular expression that compiles ({error})") from None
    if expression.flags & regex.REVERSE:
        raise ConfigError(f"{what}: {shortened(pattern)} searches backwards")
    check_text(pattern, f"{what}: the pattern")
    return expression


def check_text(text: str, what: str) -> None:
    """Raises ConfigError for lone surrogates, which no UTF-8 text can hold."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise ConfigError(f"{what} {shortened(text)} is not valid Unicode text")


def shortened(text: str) -> str:
    """For messages."""
    return ascii(text) if len(text) <= 80 else f"{text[:77]!a}..."


def matches(expression: regex.Pattern, text: str, size: int, index: int, what: str) -> Iterator[regex.Match]:
    """All matches in document ``index`` of ``size`` bytes. Raises DocumentError when they take too long."""
    timeout = TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * size / 1e6
    try:
        yield from expression.finditer(text, timeout=timeout)
    except TimeoutError:
        raise DocumentError(
            index,
            f"the {what} pattern ran for more than {timeout:.0f} s on this document of {size:,} bytes; simplify the "
            f"pattern or leave the document out",
        ) from None

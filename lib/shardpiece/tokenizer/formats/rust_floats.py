"""Numbers as Hugging Face's library reads them from JSON.

Its parser (serde_json) takes the digits for an integer of 64 bits, rounds that to float64 and divides by a power of ten,
which rounds again: numbers of 17 digits are often the next float64 to the one that is written. A Unigram model adds such
scores up, and where two paths are equal but for rounding, the last bit decides.
"""

import math
import re
from functools import lru_cache

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_MOST = 2**64 - 1
_EXACT = 2**53


def rust_float(text: str) -> float:
    """The number that a text of JSON is to that library."""
    sign, whole, fraction, exponent = _NUMBER.fullmatch(text).groups()
    fraction = fraction or ""
    significand, power = int(whole + fraction), int(exponent or 0) - len(fraction)
    if significand <= _EXACT and -22 <= power <= 22:
        return float(text)  # both are exact, and one division or multiplication rounds once
    if significand > _MOST:  # further digits are left out
        digits = (whole + fraction).lstrip("0")
        kept = 20 if int(digits[:20]) <= _MOST else 19
        significand, power = int(digits[:kept]), power + len(digits) - kept
    number = float(significand)
    while power < -308 and number:
        number /= 1e308
        power += 308
    if power < 0:
        number /= float(f"1e{-power}") if number else 1.0
    elif number:
        number *= float(f"1e{power}") if power <= 308 else math.inf
    return -number if sign else number


@lru_cache(1 << 18)
def rust_text(number: float) -> str:
    """A text that is this number to that library: the shortest, else one with more or fewer digits. Of ten thousand numbers
    some three have no such text; theirs is the shortest, which is one of the two next to it there."""
    if rust_float(repr(number)) == number:
        return repr(number)
    size = abs(number)
    for digits in range(15, 21):
        mantissa, _, exponent = f"{size:.{digits - 1}e}".partition("e")
        nearest, power = float(mantissa.replace(".", "")), int(exponent) - digits + 1
        for k in range(-4, 5):
            significand = nearest + k * math.ulp(nearest)
            text = f"{'-' if number < 0 else ''}{int(significand)}e{power}"
            if significand < _MOST and rust_float(text) == number:
                return text
    return repr(number)

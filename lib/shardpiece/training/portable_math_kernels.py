"""Logarithm, exponential and digamma from additions, multiplications and divisions alone.

The C library's functions differ in the last bit between versions and processors, and a vocabulary is cut at a rank: a
last bit could decide a piece. These give the same bits on every machine that has IEEE doubles (the compiler does not
fuse or reorder operations here), with an error of a few units in the last place.
"""

import math

import numpy as np

from shardpiece.kernel_cache import plain_kernel

# The logarithm of two in two parts; the first has so few bits that its product with an exponent is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_INVERSE_LN2 = 1.44269504088896338700
_ROOT_HALF = 0.70710678118654752440


@plain_kernel
def log(x):
    """Natural logarithm of a positive, finite float64."""
    m, e = math.frexp(x)
    if m < _ROOT_HALF:
        m *= 2.0
        e -= 1
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    # 2 artanh(f), |f| < 0.1716: the first term left out is below 2^-57 of the sum.
    s = 1.0 / 23.0
    s = s * g + 1.0 / 21.0
    s = s * g + 1.0 / 19.0
    s = s * g + 1.0 / 17.0
    s = s * g + 1.0 / 15.0
    s = s * g + 1.0 / 13.0
    s = s * g + 1.0 / 11.0
    s = s * g + 1.0 / 9.0
    s = s * g + 1.0 / 7.0
    s = s * g + 1.0 / 5.0
    s = s * g + 1.0 / 3.0
    return e * _LN2_HIGH + (2.0 * f + (2.0 * f * g * s + e * _LN2_LOW))


@plain_kernel
def exp(x):
    """e to the power of a float64 between -700 and 700."""
    k = math.floor(x * _INVERSE_LN2 + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    s = 1.0
    for n in range(14, 0, -1):
        s = 1.0 + r * s / n
    return math.ldexp(s, np.int32(k))


@plain_kernel
def digamma(x):
    """The digamma function of a positive float64: recurrence up to 10, then the asymptotic series (Bernardo 1976)."""
    result = 0.0
    while x < 10.0:
        result -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    s = 1.0 / 12.0
    s = 691.0 / 32760.0 - y * s
    s = 1.0 / 132.0 - y * s
    s = 1.0 / 240.0 - y * s
    s = 1.0 / 252.0 - y * s
    s = 1.0 / 120.0 - y * s
    s = 1.0 / 12.0 - y * s
    return result + log(x) - 0.5 / x - y * s

"""Numba kernels of the Unigram trainer: words to segments of character numbers, and the passes over the segments.

``text``: int32, the distinct segments' characters (numbers from 1) one after the other; ``starts``: int64 [s + 1];
``counts``: int64 [s]. ``nodes``: trie_kernels.NODE, the trie over the pieces. A lane is a run of segments that one
thread goes through; its scratch arrays are made once, for the longest segment.
"""

import numpy as np

from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.training.portable_math_kernels import digamma, exp, log

# What a character may stand next to inside a piece; values from SCRIPT on are scripts.
MARK = 0  # ▁, in front only
INHERITED = 1  # takes the script before it
ANY = 2
ALONE = 3  # no piece but itself
SCRIPT = 4

# Forward values outside this range are brought back into it, at most once per position.
_LOW = 2.0**-400
_HIGH = 2.0**400
_LOG_HIGH = 277.25887222397812  # 400 log 2


@plain_kernel
def decode(data, i, end):
    """(code point, bytes) of the UTF-8 character at data[i]; (0, 1) for a byte that begins none."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, np.int64(1)
    n = np.int64(2) if b < 0xE0 else np.int64(3) if b < 0xF0 else np.int64(4)
    if b < 0xC2 or b > 0xF4 or i + n > end:
        return np.int64(0), np.int64(1)
    c = b & (0xFF >> (n + 1))
    for k in range(1, n):
        tail = np.int64(data[i + k])
        if tail & 0xC0 != 0x80:
            return np.int64(0), np.int64(1)
        c = (c << 6) | (tail & 0x3F)
    if c >= 0x110000 or (0xD800 <= c < 0xE000) or (n == 3 and c < 0x800) or (n == 4 and c < 0x10000):
        return np.int64(0), np.int64(1)
    return c, n


@kernel
def count_characters(data, starts, counts, total):
    """Add the weighted count of each code point to ``total`` (int64 [0x110000]); [0] gets the bytes that are none."""
    for w in range(len(counts)):
        i = starts[w]
        while i < starts[w + 1]:
            c, n = decode(data, i, starts[w + 1])
            total[c] += counts[w]
            i += n


@plain_kernel
def may_join(a, b):
    """Whether a piece may hold characters of kinds a and b side by side."""
    if b in (MARK, ALONE) or a == ALONE:
        return False
    return a < SCRIPT or b < SCRIPT or a == b


@kernel
def cut_words(data, starts, counts, number_of, kind_of, text, order, length, count):
    """Cut words into segments that no piece can reach beyond: at characters without a number (left out) and between
    characters that may not stand side by side.

    ``number_of``: int32 [0x110000], 0 for none; ``kind_of``: int32 by number. Writes ``text`` (int32), the position of
    each segment (``order``, int32), its length at that position (``length``, int32) and its count (int64); the arrays
    hold one element per character of the words. Returns (segments, characters).
    """
    at = np.int64(0)
    m = np.int64(0)
    for w in range(len(counts)):
        open_ = False
        before = 0
        i = starts[w]
        while i < starts[w + 1]:
            c, n = decode(data, i, starts[w + 1])
            i += n
            number = number_of[c]
            if number == 0:
                open_ = False
                continue
            kind = kind_of[number]
            if not open_ or not may_join(before, kind):
                order[m] = at
                count[m] = counts[w]
                length[at] = 0
                m += 1
                open_ = True
            text[at] = number
            at += 1
            length[order[m - 1]] += 1
            before = kind
    return m, at


@kernel
def longest_pieces(text, starts, kind_of, most, length):
    """``length`` (int32, by position): symbols of the longest valid piece that begins there, at most ``most``."""
    for s in range(len(starts) - 1):
        end = starts[s + 1]
        for i in range(end - 1, starts[s] - 1, -1):
            kind = kind_of[text[i]]
            if i + 1 < end and kind >= SCRIPT and kind_of[text[i + 1]] == kind:
                length[i] = min(length[i + 1] + 1, most)
                continue
            n = np.int64(1)
            script = kind if kind >= SCRIPT else ANY
            while i + n < end and n < most and kind != ALONE:
                following = kind_of[text[i + n]]
                if following in (MARK, ALONE):
                    break
                if following != INHERITED:
                    if following >= SCRIPT and script >= SCRIPT and following != script:
                        break
                    script = following
                n += 1
            length[i] = n


@kernel
def expect(
    text,
    starts,
    counts,
    first,
    last,
    nodes,
    most,
    log_scale,
    expected,
    alpha,
    beta,
    edges,
    lengths,
    values,
    ends,
    shift,
):
    """E step over segments [first, last): forward–backward (Kudo 2018), without a logarithm per step.

    The weight of a piece of n symbols is its probability times exp(n * log_scale), 0 where no piece ends. With
    log_scale near the text's nats per symbol, forward values stay near 1; where one leaves [2^-400, 2^400], it and the
    values begun to the right of it are multiplied back, and the backward values likewise. Every single symbol is a
    piece, so neighbouring values differ by far less than the range of float64 allows.

    Adds to ``expected`` (float64, by node) count times the expected number of occurrences. Scratch: ``alpha``, ``beta``
    (float64), ``ends`` (int64), ``shift`` (int8) of the longest segment + 1; ``edges``, ``lengths`` (int32), ``values``
    (float64) of that times ``most``. Returns the sum of count times log-likelihood.
    """
    total = 0.0
    for s in range(first, last):
        a = starts[s]
        n = starts[s + 1] - a
        count = np.float64(counts[s])
        for j in range(1, n + 1):
            alpha[j] = 0.0
        alpha[0] = 1.0
        scaled = 0
        m = np.int64(0)
        for i in range(n):
            ends[i] = m
            shift[i] = 0
            if alpha[i] < _LOW or alpha[i] > _HIGH:
                shift[i] = 1 if alpha[i] < _LOW else -1
                scaled += shift[i]
                factor = _HIGH if shift[i] > 0 else _LOW
                for j in range(i, min(n, i + most) + 1):
                    alpha[j] *= factor
            value = alpha[i]
            node = np.int64(0)
            for j in range(i, n):
                t = np.int64(nodes[node].base) + np.int64(text[a + j])
                if nodes[t].check != node:
                    break
                node = t
                weight = nodes[t].weight
                if weight > 0.0:
                    alpha[j + 1] += value * weight
                    edges[m] = t
                    lengths[m] = j + 1 - i
                    values[m] = weight
                    m += 1
        total += count * (log(alpha[n]) - scaled * _LOG_HIGH - n * log_scale)
        beta[n] = count / alpha[n]
        for i in range(n - 1, -1, -1):
            value = alpha[i]
            sum_ = 0.0
            for e in range(ends[i], m):
                x = values[e] * beta[i + lengths[e]]
                sum_ += x
                expected[edges[e]] += value * x
            m = ends[i]
            beta[i] = sum_
            if shift[i]:  # what lies left of here was computed without the factor
                factor = _HIGH if shift[i] > 0 else _LOW
                for j in range(i, min(n, i + most) + 1):
                    beta[j] *= factor
    return total


@kernel
def best_counts(text, starts, counts, first, last, nodes, used, best, edges, lengths):
    """Add to ``used`` (int64, by node) how often each piece stands in the best segmentations of segments [first, last).
    The weight of a piece is its log-probability, -inf where no piece ends. Scratch (longest segment + 1): ``best``
    (float64), ``edges``, ``lengths`` (int32)."""
    for s in range(first, last):
        a = starts[s]
        n = starts[s + 1] - a
        for j in range(1, n + 1):
            best[j] = -np.inf
        best[0] = 0.0
        for i in range(n):
            value = best[i]
            node = np.int64(0)
            for j in range(i, n):
                t = np.int64(nodes[node].base) + np.int64(text[a + j])
                if nodes[t].check != node:
                    break
                node = t
                if value + nodes[t].weight > best[j + 1]:
                    best[j + 1] = value + nodes[t].weight
                    edges[j + 1] = t
                    lengths[j + 1] = j + 1 - i
        j = n
        while j > 0:
            used[edges[j]] += counts[s]
            j -= lengths[j]


@kernel
def losses(symbols, offsets, first, last, nodes, node_of, used, total, loss):
    """What removing each of the pieces [first, last) would cost: its occurrences (``used``, int64 by node, of
    best_counts) then go to its second best segmentation (Kudo 2018, as SentencePiece approximates it).

    ``symbols``, ``offsets``: the pieces; ``total``: the sum of ``used``. Writes ``loss`` (float64): inf for pieces of
    one symbol, which are always kept, -inf for those that occur nowhere or are themselves better split.
    """
    longest = np.int64(0)
    for i in range(first, last):
        longest = max(longest, offsets[i + 1] - offsets[i])
    best = np.empty(longest + 1, np.float64)
    edges = np.empty(longest + 1, np.int32)
    lengths = np.empty(longest + 1, np.int32)
    for i in range(first, last):
        a = offsets[i]
        n = offsets[i + 1] - a
        if n == 1:
            loss[i] = np.inf
            continue
        f = np.float64(used[node_of[i]])
        if f == 0.0:
            loss[i] = -np.inf
            continue
        for j in range(1, n + 1):
            best[j] = -np.inf
        best[0] = 0.0
        for b in range(n):
            node = np.int64(0)
            for j in range(b, n):
                t = np.int64(nodes[node].base) + np.int64(symbols[a + j])
                if nodes[t].check != node:
                    break
                node = t
                if j + 1 - b < n and best[b] + nodes[t].weight > best[j + 1]:
                    best[j + 1] = best[b] + nodes[t].weight
                    edges[j + 1] = t
                    lengths[j + 1] = j + 1 - b
        if best[n] > nodes[node_of[i]].weight:
            loss[i] = -np.inf
            continue
        instead = 0.0
        parts = 0
        j = n
        while j > 0:
            instead += log(np.float64(used[edges[j]]) + f)
            parts += 1
            j -= lengths[j]
        instead -= parts * log(total + f * (parts - 1))
        loss[i] = f * (log(f) - log(total) - instead)


@kernel
def weights(scores, offsets, log_scale, weight):
    """``weight`` (float64): exp of each piece's score plus log_scale for each of its symbols."""
    for i in range(len(scores)):
        weight[i] = exp(scores[i] + log_scale * (offsets[i + 1] - offsets[i]))


@kernel
def new_scores(expected, offsets, threshold, scores):
    """M step: ``scores`` (float64) become the digamma of each expected count less that of their sum, a prior that
    starves rare pieces (Liang and Klein 2007), as in SentencePiece. Pieces expected fewer than ``threshold`` times get
    -inf; those of one symbol stay, as if expected that often."""
    total = 0.0
    for i in range(len(expected)):
        if expected[i] >= threshold:
            total += expected[i]
        elif offsets[i + 1] - offsets[i] == 1:
            total += threshold
    of_total = digamma(total)
    for i in range(len(expected)):
        if expected[i] >= threshold:
            scores[i] = digamma(expected[i]) - of_total
        elif offsets[i + 1] - offsets[i] == 1:
            scores[i] = digamma(threshold) - of_total
        else:
            scores[i] = -np.inf


@kernel
def first_scores(frequency, scores):
    """``scores`` (float64): the logarithm of each share of the sum of ``frequency`` (int64, positive)."""
    total = 0.0
    for i in range(len(frequency)):
        total += np.float64(frequency[i])
    of_total = log(total)
    for i in range(len(frequency)):
        scores[i] = log(np.float64(frequency[i])) - of_total


@kernel
def take_pieces(text, positions, offsets, symbols):
    """Copy the pieces at ``positions`` (int64) to ``symbols`` (int32), where each has its place by ``offsets``."""
    for i in range(len(positions)):
        for d in range(offsets[i + 1] - offsets[i]):
            symbols[offsets[i] + d] = text[positions[i] + d]

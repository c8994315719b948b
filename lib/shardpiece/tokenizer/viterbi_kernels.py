"""Numba kernels of the Unigram encoder: words in, the most probable pieces out (Viterbi 1967 over a trie, Kudo 2018).

A path replaces another one only when its score is strictly higher, and paths to a place are met in the order of where
their last piece begins: of equal paths the one with the longest last piece wins, as in SentencePiece.

Two arithmetics. *Wide*: float64, every word for itself, as Hugging Face adds up. *Narrow*: as SentencePiece's
EncodeOptimized (0.2.3): float32 along the whole document, each sum rounded before it is compared; and wherever the best sum
up to a character lies beyond ±RESET, it is taken from all sums that lie ahead.

Segments. Words are cut further where no piece has the characters on both sides next to each other: no piece crosses such
a border, every path visits it, and what lies behind depends on the sum so far alone. ``pairs`` (bool [65536]) says of the
last byte of a character and the first byte of the next whether some piece has them so (always, if neither is ASCII), and
``joins`` (bool [256]) and ``mark_joins`` whether some piece has ▁ behind a character with this last byte, and behind ▁.

Cache. A segment's best path is found by sums from 0 in float64 and kept with how far it may be trusted. Let P be that path,
T its sum, m the distance to the second best, N the number of characters, S the sum so far, and h half an ulp at the
largest magnitude M that a sum in the segment has. A sum kept for a place, F, is at least c - h and at most c' + h, c being
the largest candidate and c' the one that is kept (a kept sum never falls, and a candidate is kept where it is larger).
Along P therefore F(end) >= S + T - |P| h; along the path Q that is walked back, F(end) <= S + T(Q) + |Q| h; so T(Q) >= T -
(|P| + |Q|) h, and |Q| <= N: whenever m > (|P| + N) h, Q is P. With h <= M 2^-24 and M <= |S| + W + 1, W being the largest
magnitude of a best sum from 0, this is |S| < m 2^24 / (|P| + N) - W - 1; where no sum passes RESET none is reset. The
bound is kept as one of the LIMITS. Where it does not hold, the arithmetic itself is followed from S on. S is followed
exactly: along the kept path F is the rounded sum of its scores.

``nodes``: uint64 [slots], the trie over the pieces' bytes (see ``trie_kernels``): the parent's slot in the low half, twice
the base and whether a piece ends here in the high one. ``weights`` (float64) and ``ids`` (int32), both [slots]: the score
and the id of the piece that ends at a node. ``byte_ids``: int32 [256], -1 for bytes without a piece.

``short``: uint64 [buckets * 8], two entries of 32 bytes to a bucket: up to 15 bytes after an optional ▁, and up to four
ids. ``long``: uint64 [buckets * 32], two entries of 128 bytes: up to LONG_SEGMENT bytes, up to twelve pieces, UNKNOWN among them. A
new entry takes the place of the older one.
"""

import numpy as np

from shardpiece.intrinsics import (
    MIX_1,
    MIX_2,
    get,
    hash_bytes,
    load64,
    load_key,
    mask_of_range,
    prefetch,
    put,
    trailing_zeros,
)
from shardpiece.kernel_cache import kernel, plain_kernel

NO_UNKNOWN = -1
RESET = 100000.0
LIMITS = np.array(
    [0.0, *(2.0**e for e in range(4, 17)), 8e4, 9e4, 9.5e4, 9.8e4, 9.9e4, 9.95e4, 9.99e4]
    + [2.0**e for e in range(18, 40, 2)]
)
"""float64 [32]; those beyond RESET serve the wide arithmetic."""

LONG_SEGMENT = 40
LONG_TOKENS = 12
UNKNOWN = np.int32(-1)
BLOCK = 512

STATE_MISSES = 0
STATE_EXACT = 1
STATE_SIZE = 2

_NONE = -np.inf
_UNREACHED = np.int32(-2)
_LOW_32 = np.uint64(0xFFFFFFFF)
_LOW_27 = np.uint64(0x7FFFFFF)
_ID_BITS = np.uint64(27)
_SHIFT_32 = np.uint64(32)
_SHIFT_56 = np.uint64(56)
_ONE = np.uint64(1)
_SEED = np.uint64(0)

FIRST_OF_WORD = 1
LAST_OF_WORD = 2
IS_SHORT = 4
IS_LONG = 8


@plain_kernel
def character_bytes(data, i, end):
    """Bytes of the UTF-8 character at data[i], as its first byte says and as far as there are any."""
    b = data[i]
    n = 1 if b < 0xC0 else 2 if b < 0xE0 else 3 if b < 0xF0 else 4
    return min(n, end - i)


@plain_kernel
def is_mark(data, i):
    """Whether ▁ stands at data[i]; the caller guarantees i + 3 <= len(data)."""
    return data[i] == 0xE2 and data[i + 1] == 0x96 and data[i + 2] == 0x81


@plain_kernel
def is_border(data, i, end, pairs, joins, mark_joins):
    """Whether no piece crosses the place i inside of a word that ends at ``end``, as far as ``pairs`` and ``joins`` say."""
    if data[i] == 0xE2 and i + 3 <= end and is_mark(data, i):
        if data[i - 1] == 0x81 and i >= 3 and is_mark(data, i - 3):
            return not mark_joins
        return not joins[data[i - 1]]
    return not pairs[(np.int64(data[i - 1]) << 8) | np.int64(data[i])]


@plain_kernel
def candidates(data, i):
    """Bit k says that i + k may be a border: a character begins there, and not inside of an ASCII letter run. Needs 0 < i
    <= len(data) - 64."""
    letters = mask_of_range(data, i, np.uint8(0x20), np.uint8(0x61), np.uint8(26))
    inside = mask_of_range(data, i, np.uint8(0), np.uint8(0x80), np.uint8(0x40))
    before = np.uint64((data[i - 1] | 0x20) - 0x61 < 26 and (data[i - 1] | 0x20) >= 0x61)
    return ~((letters & ((letters << _ONE) | before)) | inside)


@plain_kernel
def word_end(data, start, end, joins, mark_joins):
    """Where the word that begins at ``start`` ends in text up to ``end``: before a ▁ that no piece crosses."""
    i = start + 1
    while i < end:
        if data[i] == 0xE2 and i + 3 <= end and is_mark(data, i):
            if data[i - 1] == 0x81 and i >= start + 3 and is_mark(data, i - 3):
                if not mark_joins:
                    return i
            elif not joins[data[i - 1]]:
                return i
        i += 1
    return end


@plain_kernel
def follow(data, start, end, total, narrow, nodes, weights, unknown_score, best, node_at, begin_at):
    """The arithmetic itself on data[start:end], from the sum ``total`` on; returns the sum at the end. ``best`` (float64),
    ``node_at`` and ``begin_at`` (int32): scratch of at least end - start + 1; they receive, for every place, the best sum,
    the node of the last piece (or UNKNOWN) and where that piece begins."""
    n = end - start
    best[0] = total
    for j in range(1, n + 1):
        node_at[j] = _UNREACHED
    i = np.int64(0)
    front = np.int64(0)
    while i < n:
        score = best[i]
        if narrow and (score < -RESET or score > RESET):
            for k in range(i, front + 1):
                if k == i or node_at[k] != _UNREACHED:
                    best[k] = np.float64(np.float32(best[k] - score))
            score = 0.0
        single = character_bytes(data, start + i, end)
        has_single = False
        node = np.int64(0)
        base = np.int64(get(nodes, 0) >> np.uint64(33))
        j = i
        while j < n:
            t = base + np.int64(get(data, start + j))
            unit = get(nodes, t)
            if np.int64(unit & _LOW_32) != node:
                break
            node = t
            base = np.int64(unit >> np.uint64(33))
            j += 1
            if (unit >> _SHIFT_32) & _ONE:
                if j - i == single:
                    has_single = True
                candidate = score + get(weights, t)
                if narrow:
                    candidate = np.float64(np.float32(candidate))
                if node_at[j] == _UNREACHED or candidate > best[j]:
                    best[j] = candidate
                    node_at[j] = t
                    begin_at[j] = i
                front = max(front, j)
        if not has_single:
            j = i + single
            candidate = score + unknown_score
            if narrow:
                candidate = np.float64(np.float32(candidate))
            if node_at[j] == _UNREACHED or candidate > best[j]:
                best[j] = candidate
                node_at[j] = UNKNOWN
                begin_at[j] = i
            front = max(front, j)
        i += single
    return best[n]


@plain_kernel
def two_best(data, start, end, nodes, weights, unknown_score, best, second, node_at, begin_at):
    """As ``follow`` from 0 in float64, with the second best sum at every place in ``second`` (-inf: there is one path).
    Returns (the largest magnitude of a best sum, number of characters)."""
    n = end - start
    best[0] = 0.0
    second[0] = _NONE
    for j in range(1, n + 1):
        best[j] = _NONE
        second[j] = _NONE
    i = np.int64(0)
    widest = 0.0
    characters = np.int64(0)
    while i < n:
        score = best[i]
        below = second[i]
        widest = max(widest, abs(score))
        characters += 1
        single = character_bytes(data, start + i, end)
        has_single = False
        node = np.int64(0)
        base = np.int64(get(nodes, 0) >> np.uint64(33))
        j = i
        while j < n:
            t = base + np.int64(get(data, start + j))
            unit = get(nodes, t)
            if np.int64(unit & _LOW_32) != node:
                break
            node = t
            base = np.int64(unit >> np.uint64(33))
            j += 1
            if (unit >> _SHIFT_32) & _ONE:
                if j - i == single:
                    has_single = True
                weight = get(weights, t)
                candidate = score + weight
                if candidate > best[j]:
                    second[j] = max(best[j], below + weight)
                    best[j] = candidate
                    node_at[j] = t
                    begin_at[j] = i
                else:
                    second[j] = max(second[j], candidate)
        if not has_single:
            j = i + single
            candidate = score + unknown_score
            if candidate > best[j]:
                second[j] = max(best[j], below + unknown_score)
                best[j] = candidate
                node_at[j] = UNKNOWN
                begin_at[j] = i
            else:
                second[j] = max(second[j], candidate)
        i += single
    return max(widest, abs(best[n])), characters


@plain_kernel
def walk_back(n, node_at, begin_at, ids, path):
    """The pieces of the best path to place ``n`` into ``path`` (int32), the last one first: ids, or UNKNOWN; returns how
    many there are."""
    m = np.int64(0)
    j = n
    while j > 0:
        t = node_at[j]
        path[m] = ids[t] if t >= 0 else UNKNOWN
        m += 1
        j = np.int64(begin_at[j])
    return m


@plain_kernel
def write_path(data, start, end, path, m, lengths, unk_id, byte_ids, out, at, fused):
    """Write the ``m`` pieces of ``path``, the last one first, of data[start:end] as tokens into out[at:]. A run
    of what has no piece becomes the pieces of its bytes, if all of them have one, else ``unk_id`` once, also together with
    the run before it (``fused``). ``lengths``: int32, bytes of each piece. Returns (tokens up to here or NO_UNKNOWN, whether
    they end with such a run)."""
    position = start
    k = m - 1
    while k >= 0:
        piece = path[k]
        if piece >= 0 and piece != unk_id:
            out[at] = piece
            at += 1
            position += lengths[piece]
            fused = False
            k -= 1
            continue
        run = position
        pieces = 0
        while k >= 0 and (path[k] < 0 or path[k] == unk_id):
            piece = path[k]
            position += lengths[piece] if piece >= 0 else character_bytes(data, position, end)
            pieces += 1
            k -= 1
        spelled = not (pieces == 1 and piece >= 0)
        i = run
        while spelled and i < position:
            spelled = byte_ids[data[i]] >= 0
            i += 1
        if spelled:
            for i in range(run, position):
                out[at] = byte_ids[data[i]]
                at += 1
            fused = False
        elif unk_id < 0:
            return np.int64(NO_UNKNOWN), fused
        else:
            if not fused:
                out[at] = unk_id
                at += 1
            fused = True
    return at, fused


@plain_kernel
def level_of(reach, limits):
    """The last of the limits that is not above ``reach``, 0 when none but 0 is."""
    level = len(limits) - 1
    while level > 0 and limits[level] > reach:
        level -= 1
    return np.uint64(level)


@plain_kernel
def short_key(data, start, n):
    """(key, key) of up to 15 bytes behind an optional ▁, of a segment of n bytes; the second is 0 for a longer one."""
    marked = n >= 3 and is_mark(data, start)
    if marked:
        start += 3
        n -= 3
    if n > 15:
        return np.uint64(0), np.uint64(0)
    if start + 16 <= len(data):
        first, second = load64(data, start), load64(data, start + 8)
        if n < 8:
            first &= (_ONE << np.uint64(8 * n)) - _ONE
            second = np.uint64(0)
        else:
            second &= (_ONE << np.uint64(8 * (n - 8))) - _ONE
    else:
        first = load_key(data, start, min(n, 8))
        second = load_key(data, start + 8, n - 8) if n > 8 else np.uint64(0)
    return first, second | (np.uint64(n + (16 if marked else 0)) << _SHIFT_56)


@plain_kernel
def bucket_of(first, second, buckets):
    h = (first ^ (second * MIX_2)) * MIX_1
    return np.int64((h >> _SHIFT_32) & np.uint64(buckets - 1))


@plain_kernel
def put_short(short, q, first, second, path, m, level, empty_id):
    """Enter a path of up to four pieces into the bucket at ``q``."""
    for i in range(4):
        short[q + 4 + i] = short[q + i]
    short[q] = first
    short[q + 1] = second
    one = np.uint64(path[m - 1]) | (level << _ID_BITS)
    two = np.uint64(path[m - 2] if m > 1 else empty_id) | (np.uint64(m) << _ID_BITS)
    three = np.uint64(path[m - 3] if m > 2 else empty_id)
    four = np.uint64(path[m - 4] if m > 3 else empty_id)
    short[q + 2] = one | (two << _SHIFT_32)
    short[q + 3] = three | (four << _SHIFT_32)


@plain_kernel
def find_long(long, q, data, start, n, h):
    """Where the entry of data[start:start + n], whose hash is ``h``, begins in the bucket at ``q``; -1: nowhere."""
    for way in range(2):
        e = q + 16 * way
        if long[e] == h and long[e + 1] & np.uint64(0xFF) == np.uint64(n):
            i = np.int64(0)
            while i < n and long[e + 2 + (i >> 3)] == load_key(data, start + i, min(n - i, 8)):
                i += 8
            if i >= n:
                return e
    return np.int64(-1)


@plain_kernel
def put_long(long, q, data, start, n, h, path, m, level):
    """Enter a path of up to LONG_TOKENS pieces into the bucket at ``q``."""
    for i in range(16):
        long[q + 16 + i] = long[q + i]
    long[q] = h
    long[q + 1] = np.uint64(n) | (np.uint64(m) << np.uint64(8)) | (level << np.uint64(16))
    i = np.int64(0)
    while i < n:
        long[q + 2 + (i >> 3)] = load_key(data, start + i, min(n - i, 8))
        i += 8
    for k in range(m):
        half = np.uint64(path[k]) & _LOW_32
        if k & 1:
            long[q + 10 + (k >> 1)] |= half << _SHIFT_32
        else:
            long[q + 10 + (k >> 1)] = half


# Where the cutting of words and the writing of tokens have come to.
_POSITION, _WORD, _WORD_BEGINS, _WINDOW, _SIZE, _DONE, _DOCUMENT, _AT, _FUSED = range(9)


@plain_kernel
def cut_segments(
    data, word_ends, cursor, ahead, pairs, joins, mark_joins, short, long, starts, stops, flags, key_1, key_2, places
):
    """Cut up to BLOCK segments off the words: where they begin and end, their keys, and where in the cache they would be,
    which is asked for. Returns how many. ``cursor`` (int64) and ``ahead`` (uint64 [1], places that may be borders) say where
    it goes on."""
    short_buckets = len(short) >> 3
    long_buckets = len(long) >> 5
    n_words = np.int64(len(word_ends))
    position = cursor[_POSITION]
    w = cursor[_WORD]
    word_begins = cursor[_WORD_BEGINS] != 0
    window = cursor[_WINDOW]
    size = cursor[_SIZE]
    found = ahead[0]
    count = 0
    while count < BLOCK and w < n_words:
        end = word_ends[w]
        stop = end
        while True:
            while found == 0:
                window += size
                if window >= end:
                    size = np.int64(0)
                    break
                if window + 64 <= len(data):
                    found = candidates(data, window)
                    size = np.int64(64)
                else:
                    found = np.uint64((data[window] & 0xC0) != 0x80)
                    size = np.int64(1)
            if found == 0:
                break
            k = window + trailing_zeros(found)
            if k >= end:
                break
            found &= found - _ONE
            if k > position and is_border(data, k, end, pairs, joins, mark_joins):
                stop = k
                break
        n = stop - position
        flag = np.uint8(FIRST_OF_WORD if word_begins else 0)
        word_begins = stop == end
        if word_begins:
            flag |= np.uint8(LAST_OF_WORD)
            w += 1
        starts[count] = position
        stops[count] = stop
        second_key = np.uint64(0)
        if n <= 18:
            first_key, second_key = short_key(data, position, n)
            key_1[count] = first_key
            key_2[count] = second_key
        if second_key != 0:
            flag |= np.uint8(IS_SHORT)
            q = bucket_of(first_key, second_key, short_buckets) << 3
            prefetch(short, q)
            places[count] = q
        elif n <= LONG_SEGMENT:
            flag |= np.uint8(IS_LONG)
            h = hash_bytes(data, position, stop, _SEED) | _ONE
            q = np.int64((h >> _SHIFT_32) & np.uint64(long_buckets - 1)) << 5
            prefetch(long, q)
            key_1[count] = h
            places[count] = q
        flags[count] = flag
        position = stop
        count += 1
    cursor[_POSITION] = position
    cursor[_WORD] = w
    cursor[_WORD_BEGINS] = 1 if word_begins else 0
    cursor[_WINDOW] = window
    cursor[_SIZE] = size
    ahead[0] = found
    return count


@plain_kernel
def encode_segments(
    first, count, data, document_ends, cursor, sums, starts, stops, flags, key_1, key_2, places, nodes, weights, ids, scores,
    narrow_scores, lengths, unknown_score, unk_id, byte_ids, narrow, limits, short, long, state, best, second, node_at, begin_at,
    path, out, token_ends,
):  # fmt: skip
    """Write the tokens of the segments [first:count]; returns the first one that the scratch arrays have no room for,
    ``count`` for none, or NO_UNKNOWN for one with a character without a token. ``sums``: float64 [1], the sum so far."""
    room = len(best)
    empty_id = np.int32(len(scores) - 1)
    long_buckets = len(long) >> 5
    at = cursor[_AT]
    done = cursor[_DONE]
    d = cursor[_DOCUMENT]
    fused = cursor[_FUSED] != 0
    total = sums[0]
    s = first
    while s < count:
        if stops[s] - starts[s] >= room:
            break
        flag = flags[s]
        if narrow:
            if total < -RESET or total > RESET:
                total = 0.0
        elif flag & FIRST_OF_WORD:
            total = 0.0
            fused = False
        hit = False
        e = np.int64(-1)
        level = np.uint64(0)
        if flag & IS_SHORT:
            q = places[s]
            if get(short, q) == key_1[s] and get(short, q + 1) == key_2[s]:
                e = q
            elif get(short, q + 4) == key_1[s] and get(short, q + 5) == key_2[s]:
                e = q + 4
            if e >= 0:
                a = get(short, e + 2)
                b = get(short, e + 3)
                level = (a >> _ID_BITS) & np.uint64(31)
                hit = abs(total) < limits[np.int64(level)] or (not narrow and total == 0.0)
                if hit:
                    one = np.int64(a & _LOW_27)
                    two = np.int64((a >> _SHIFT_32) & _LOW_27)
                    three = np.int64(b & _LOW_27)
                    four = np.int64(b >> _SHIFT_32)
                    put(out, at, np.int32(one))
                    put(out, at + 1, np.int32(two))
                    put(out, at + 2, np.int32(three))
                    put(out, at + 3, np.int32(four))
                    at += np.int64(a >> np.uint64(59))
                    if narrow:
                        sum32 = np.float32(total) + get(narrow_scores, one)
                        sum32 = sum32 + get(narrow_scores, two)
                        sum32 = sum32 + get(narrow_scores, three)
                        total = np.float64(sum32 + get(narrow_scores, four))
                    else:
                        total += get(scores, one)
                        total += get(scores, two)
                        total += get(scores, three)
                        total += get(scores, four)
                    fused = False
        if not hit:
            start = starts[s]
            stop = stops[s]
            n = stop - start
            known = e >= 0  # in the cache, only not to be trusted here
            m = np.int64(0)
            q = places[s]
            h = key_1[s]
            if not known and n <= LONG_SEGMENT:
                if flag & IS_SHORT:
                    h = hash_bytes(data, start, stop, _SEED) | _ONE
                    q = np.int64((h >> _SHIFT_32) & np.uint64(long_buckets - 1)) << 5
                e = find_long(long, q, data, start, n, h)
                if e >= 0:
                    known = True
                    packed = long[e + 1]
                    level = (packed >> np.uint64(16)) & np.uint64(31)
                    hit = abs(total) < limits[np.int64(level)] or (not narrow and total == 0.0)
                    if hit:
                        m = np.int64((packed >> np.uint64(8)) & np.uint64(0xFF))
                        for k in range(m):
                            half = long[e + 10 + (k >> 1)]
                            path[k] = np.int32(np.int64((half >> _SHIFT_32) if k & 1 else (half & _LOW_32)))
            if not known and n <= LONG_SEGMENT:
                state[STATE_MISSES] += 1
                widest, characters = two_best(
                    data, start, stop, nodes, weights, unknown_score, best, second, node_at, begin_at
                )
                m = walk_back(n, node_at, begin_at, ids, path)
                margin = best[n] - second[n] - 1e-12 * (widest + 1.0)
                reach = margin * (2.0**24 if narrow else 2.0**53) / (1.01 * np.float64(m + characters)) - widest - 1.0
                if narrow:
                    reach = min(reach, RESET - widest - 1.0)
                level = level_of(reach, limits)
                fits = (flag & IS_SHORT) != 0 and m <= 4
                for k in range(m):
                    fits = fits and path[k] >= 0 and path[k] != unk_id
                if fits:
                    put_short(short, places[s], key_1[s], key_2[s], path, m, level, empty_id)
                elif m <= LONG_TOKENS:
                    put_long(long, q, data, start, n, h, path, m, level)
                hit = abs(total) < limits[np.int64(level)] or (not narrow and total == 0.0)
            if hit:
                for k in range(m - 1, -1, -1):
                    total += unknown_score if path[k] < 0 else scores[path[k]]
                    if narrow:
                        total = np.float64(np.float32(total))
            else:
                state[STATE_EXACT] += 1
                total = follow(data, start, stop, total, narrow, nodes, weights, unknown_score, best, node_at, begin_at)
                m = walk_back(n, node_at, begin_at, ids, path)
            written, fused = write_path(data, start, stop, path, m, lengths, unk_id, byte_ids, out, at, fused)
            if written < 0:
                cursor[_DONE] = done
                return np.int64(NO_UNKNOWN)
            at = written
        if flag & LAST_OF_WORD:
            done += 1
            while d < len(document_ends) and document_ends[d] <= done:
                token_ends[d] = at
                d += 1
                total = 0.0
                fused = False
        s += 1
    cursor[_AT] = at
    cursor[_DONE] = done
    cursor[_DOCUMENT] = d
    cursor[_FUSED] = 1 if fused else 0
    sums[0] = total
    return s


@kernel
def segment_words(
    data,
    word_ends,
    document_ends,
    first_byte,
    nodes,
    weights,
    ids,
    scores,
    narrow_scores,
    lengths,
    unknown_score,
    unk_id,
    byte_ids,
    pairs,
    joins,
    mark_joins,
    narrow,
    limits,
    short,
    long,
    state,
    sums,
    out,
    token_ends,
):
    """Encode all words. ``scores``: float64 [pieces + 1], of each id, 0 behind the last one; ``narrow_scores``: the same as float32; ``lengths``: int32 [pieces];
    ``out`` (int32) must hold four elements more than there are bytes; ``token_ends`` (int64 [n]) receives the number of
    tokens up to and including each document. ``sums``: float64 [1], the sum so far, before and after. Returns the number of
    tokens, or -1 - w for the first word w that holds a
    character without a token."""
    room = LONG_SEGMENT + 1
    best = np.empty(room, np.float64)
    second = np.empty(room, np.float64)
    node_at = np.empty(room, np.int32)
    begin_at = np.empty(room, np.int32)
    path = np.empty(room, np.int32)
    starts = np.empty(BLOCK, np.int64)
    stops = np.empty(BLOCK, np.int64)
    flags = np.empty(BLOCK, np.uint8)
    key_1 = np.empty(BLOCK, np.uint64)
    key_2 = np.empty(BLOCK, np.uint64)
    places = np.empty(BLOCK, np.int64)
    cursor = np.zeros(9, np.int64)
    cursor[_POSITION] = first_byte
    cursor[_WINDOW] = first_byte + 1
    cursor[_WORD_BEGINS] = 1
    ahead = np.zeros(1, np.uint64)
    d = 0
    while d < len(document_ends) and document_ends[d] == 0:
        token_ends[d] = 0
        d += 1
    cursor[_DOCUMENT] = d
    while cursor[_WORD] < len(word_ends):
        count = cut_segments(
            data,
            word_ends,
            cursor,
            ahead,
            pairs,
            joins,
            mark_joins,
            short,
            long,
            starts,
            stops,
            flags,
            key_1,
            key_2,
            places,
        )
        s = np.int64(0)
        while True:
            s = encode_segments(
                s, count, data, document_ends, cursor, sums, starts, stops, flags, key_1, key_2, places, nodes, weights, ids,
                scores, narrow_scores, lengths, unknown_score, unk_id, byte_ids, narrow, limits, short, long, state, best,
                second, node_at, begin_at, path, out, token_ends,
            )  # fmt: skip
            if s < 0:
                return -1 - cursor[_DONE]
            if s == count:
                break
            room = 2 * (stops[s] - starts[s])
            best = np.empty(room, np.float64)
            second = np.empty(room, np.float64)
            node_at = np.empty(room, np.int32)
            begin_at = np.empty(room, np.int32)
            path = np.empty(room, np.int32)
    return cursor[_AT]

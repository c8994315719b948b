"""Numba kernels that draw segmentations of a Unigram model (Kudo 2018).

A word here is what stands between the words' ends and before every ▁ that no piece crosses (``word_end``): there all
segmentations meet, so those of a text are drawn word by word. Word i of a document draws from the stream of part i of the
document's key, whatever other documents there are.

From all segmentations: forward filtering, backward sampling over the lattice; F(j) is the logarithm of the sum of
exp(alpha * score) over all ways to reach place j. From the ``nbest`` best ones: lists of the best sums for every place
(Viterbi 1967), of equal ones that first whose last piece is longer; a word of more than MOST / nbest bytes takes its best
one.
"""

import numpy as np

from shardpiece.intrinsics import get
from shardpiece.kernel_cache import kernel, plain_kernel
from shardpiece.tokenizer.sampling_kernels import next_key, part_key, uniform
from shardpiece.tokenizer.viterbi_kernels import UNKNOWN, character_bytes, follow, walk_back, word_end, write_path

MOST = 1 << 24

_LOW_32 = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_SHIFT_33 = np.uint64(33)
_ONE = np.uint64(1)
_NONE = -np.inf


@kernel
def lattice(data, start, end, nodes, weights, unknown_score, starts, slots, following, heads):
    """All pieces in data[start:end]: edge e begins at place starts[e] and is the piece at node slots[e], or UNKNOWN; those
    that end at place j are heads[j], following[heads[j]], … (-1: no more), the latest to begin first. ``heads``: int32
    [end - start + 1]; the others, int32, are made longer as needed and returned with the number of edges."""
    n = end - start
    for j in range(n + 1):
        heads[j] = -1
    edges = np.int64(0)
    i = np.int64(0)
    while i < n:
        single = character_bytes(data, start + i, end)
        has_single = False
        node = np.int64(0)
        base = np.int64(get(nodes, 0) >> _SHIFT_33)
        j = i
        while True:
            if edges + 2 > len(starts):
                longer = np.empty((3, 2 * len(starts) + 1024), np.int32)
                longer[0, :edges] = starts[:edges]
                longer[1, :edges] = slots[:edges]
                longer[2, :edges] = following[:edges]
                starts, slots, following = longer[0], longer[1], longer[2]
            if j == n:
                break
            t = base + np.int64(get(data, start + j))
            unit = get(nodes, t)
            if np.int64(unit & _LOW_32) != node:
                break
            node = t
            base = np.int64(unit >> _SHIFT_33)
            j += 1
            if (unit >> _SHIFT_32) & _ONE:
                has_single = has_single or j - i == single
                starts[edges] = i
                slots[edges] = t
                following[edges] = heads[j]
                heads[j] = edges
                edges += 1
        if not has_single:
            starts[edges] = i
            slots[edges] = UNKNOWN
            following[edges] = heads[i + single]
            heads[i + single] = edges
            edges += 1
        i += single
    return starts, slots, following, edges


@plain_kernel
def edge_score(slot, weights, unknown_score):
    return unknown_score if slot < 0 else weights[slot]


@plain_kernel
def draw_path(n, alpha, key, starts, slots, following, heads, weights, unknown_score, ids, sums, path):
    """Draw a way to place n with probability in proportion to exp(alpha * score); its pieces into ``path``, the last one
    first. ``sums``: float64 [n + 1], scratch. Returns the number of pieces."""
    sums[0] = 0.0
    for j in range(1, n + 1):
        top = _NONE
        e = heads[j]
        while e >= 0:
            top = max(top, sums[starts[e]] + alpha * edge_score(slots[e], weights, unknown_score))
            e = following[e]
        total = 0.0
        e = heads[j]
        while e >= 0:
            value = sums[starts[e]] + alpha * edge_score(slots[e], weights, unknown_score)
            if value > _NONE:
                total += np.exp(value - top)
            e = following[e]
        sums[j] = top + np.log(total) if total > 0.0 else _NONE
    m = np.int64(0)
    j = np.int64(n)
    while j > 0:
        u = uniform(key)
        key = next_key(key)
        chosen = np.int64(-1)
        e = heads[j]
        while e >= 0:
            value = sums[starts[e]] + alpha * edge_score(slots[e], weights, unknown_score)
            if value > _NONE:
                chosen = e
                u -= np.exp(value - sums[j])
                if u < 0.0:
                    break
            e = following[e]
        path[m] = ids[slots[chosen]] if slots[chosen] >= 0 else UNKNOWN
        m += 1
        j = np.int64(starts[chosen])
    return m


@kernel
def draw_of_best(data, start, end, nbest, alpha, key, nodes, weights, ids, unknown_score, path):
    """As draw_path from the ``nbest`` best ways through data[start:end]."""
    n = end - start
    scores = np.empty((n + 1, nbest), np.float64)
    froms = np.empty((n + 1, nbest), np.int64)  # place << 32 | number of the way to that place
    slots = np.empty((n + 1, nbest), np.int32)
    counts = np.zeros(n + 1, np.int64)
    scores[0, 0] = 0.0
    counts[0] = 1
    new_scores = np.empty(nbest, np.float64)
    new_froms = np.empty(nbest, np.int64)
    new_slots = np.empty(nbest, np.int32)
    i = np.int64(0)
    while i < n:
        single = character_bytes(data, start + i, end)
        has_single = False
        node = np.int64(0)
        base = np.int64(get(nodes, 0) >> _SHIFT_33)
        j = i
        more = True
        while more:
            slot = np.int32(UNKNOWN)
            found = False
            more = j < n
            if more:
                t = base + np.int64(get(data, start + j))
                unit = get(nodes, t)
                more = np.int64(unit & _LOW_32) == node
            if more:
                node = t
                base = np.int64(unit >> _SHIFT_33)
                j += 1
                found = ((unit >> _SHIFT_32) & _ONE) != 0
                has_single = has_single or (found and j - i == single)
                slot = np.int32(t)
                target = j
            elif not has_single:
                found = True
                target = i + single
            if found:
                # Merge two lists in order; of equal ones, those that were there first.
                weight = edge_score(slot, weights, unknown_score)
                a = np.int64(0)
                b = np.int64(0)
                size = np.int64(0)
                while size < nbest and (a < counts[target] or b < counts[i]):
                    if b == counts[i] or (a < counts[target] and scores[target, a] >= scores[i, b] + weight):
                        new_scores[size] = scores[target, a]
                        new_froms[size] = froms[target, a]
                        new_slots[size] = slots[target, a]
                        a += 1
                    else:
                        new_scores[size] = scores[i, b] + weight
                        new_froms[size] = (i << 32) | b
                        new_slots[size] = slot
                        b += 1
                    size += 1
                counts[target] = size
                for k in range(size):
                    scores[target, k] = new_scores[k]
                    froms[target, k] = new_froms[k]
                    slots[target, k] = new_slots[k]
        i += single
    total = 0.0
    for k in range(counts[n]):
        total += np.exp(alpha * (scores[n, k] - scores[n, 0]))
    u = uniform(key) * total
    number = np.int64(0)
    while number + 1 < counts[n]:
        u -= np.exp(alpha * (scores[n, number] - scores[n, 0]))
        if u < 0.0:
            break
        number += 1
    m = np.int64(0)
    j = np.int64(n)
    while j > 0:
        slot = slots[j, number]
        path[m] = ids[slot] if slot >= 0 else UNKNOWN
        m += 1
        origin = froms[j, number]
        j = origin >> 32
        number = origin & np.int64(0xFFFFFFFF)
    return m


@kernel
def sample_words(
    data,
    word_ends,
    document_ends,
    first_byte,
    keys,
    alpha,
    nbest,
    nodes,
    weights,
    ids,
    lengths,
    unknown_score,
    unk_id,
    byte_ids,
    joins,
    mark_joins,
    narrow,
    out,
    token_ends,
):
    """Encode all words as drawn; arrays as in ``viterbi_kernels.segment_words``, ``keys``: uint64 [documents]. ``nbest`` < 1:
    from all segmentations. ``narrow``: neighbouring words share their unknown token. Returns as ``segment_words``."""
    room = 1024
    sums = np.empty(room, np.float64)
    heads = np.empty(room, np.int32)
    path = np.empty(room, np.int32)
    node_at = np.empty(room, np.int32)
    begin_at = np.empty(room, np.int32)
    edge_arrays = np.empty((3, 4 * room), np.int32)
    starts, slots, following = edge_arrays[0], edge_arrays[1], edge_arrays[2]
    at = np.int64(0)
    position = np.int64(first_byte)
    w = np.int64(0)
    for d in range(len(document_ends)):
        fused = False
        number = np.int64(0)
        while w < document_ends[d]:
            end = word_ends[w]
            if not narrow:
                fused = False
            while position < end:
                stop = word_end(data, position, end, joins, mark_joins)
                n = stop - position
                if n >= room:
                    room = 2 * n
                    sums = np.empty(room, np.float64)
                    heads = np.empty(room, np.int32)
                    path = np.empty(room, np.int32)
                    node_at = np.empty(room, np.int32)
                    begin_at = np.empty(room, np.int32)
                key = part_key(keys[d], number)
                number += 1
                if nbest < 1:
                    starts, slots, following, _ = lattice(
                        data, position, stop, nodes, weights, unknown_score, starts, slots, following, heads
                    )
                    m = draw_path(
                        n, alpha, key, starts, slots, following, heads, weights, unknown_score, ids, sums, path
                    )
                elif n * nbest <= MOST:
                    m = draw_of_best(data, position, stop, nbest, alpha, key, nodes, weights, ids, unknown_score, path)
                else:
                    follow(data, position, stop, 0.0, False, nodes, weights, unknown_score, sums, node_at, begin_at)
                    m = walk_back(n, node_at, begin_at, ids, path)
                written, fused = write_path(data, position, stop, path, m, lengths, unk_id, byte_ids, out, at, fused)
                if written < 0:
                    return -1 - w
                at = written
                position = stop
            w += 1
        token_ends[d] = at
    return at

"""Numba kernels of the piece trie: a double array (Aoe 1989) over small integer symbols, one 16-byte record per node.

A node is its slot in ``nodes`` (NODE [slots]); the root is slot 0. The child of node t for symbol c is the slot
base[t] + c, if check[there] == t. ``weight`` is for whoever walks the trie: it belongs to the piece that ends at the
node and lies in the same cache line as what the walk needs. The symbols are bytes in encoders and character numbers in
training.
"""

import numpy as np

from shardpiece.intrinsics import trailing_zeros
from shardpiece.kernel_cache import kernel, plain_kernel

NODE = np.dtype([("check", np.int32), ("base", np.int32), ("weight", np.float64)])

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NEAR = 2048


@plain_kernel
def bits_at(words, i):
    """64 bits of a bit array (uint64) from bit i on; the words after it must exist."""
    w = i >> 6
    r = np.uint64(i & 63)
    if r == 0:
        return words[w]
    return (words[w] >> r) | (words[w + 1] << (np.uint64(64) - r))


@kernel
def tree(symbols, offsets, node_of, label, first_child):
    """Number the nodes of a trie breadth first, the root 0, the children of a node side by side; returns how many there
    are. Node v has the symbol label[v] (int32) and the children first_child[v] to first_child[v + 1] (int32). ``symbols``
    and ``offsets``: see ``place_nodes``; ``node_of`` (int32 [n]) receives the node at which each string ends.
    """
    n = len(offsets) - 1
    low = np.empty(len(label), np.int32)  # strings [low, high) begin with the symbols on the way to the node
    high = np.empty(len(label), np.int32)
    low[0], high[0] = 0, n
    label[0] = 0
    nodes = np.int64(1)
    v = np.int64(0)
    depth = -1
    level_end = np.int64(0)
    while v < nodes:
        if v == level_end:
            depth += 1
            level_end = nodes
        first_child[v] = nodes
        s = np.int64(low[v])
        if offsets[s] + depth == offsets[s + 1]:
            node_of[s] = v
            s += 1
        while s < high[v]:
            c = symbols[offsets[s] + depth]
            label[nodes] = c
            low[nodes] = s
            while s < high[v] and symbols[offsets[s] + depth] == c:
                s += 1
            high[nodes] = s
            nodes += 1
        v += 1
    first_child[nodes] = nodes
    return nodes


@kernel
def count_nodes(symbols, offsets):
    """Nodes of the trie of ``symbols`` and ``offsets``, the root included."""
    nodes = np.int64(1)
    for s in range(len(offsets) - 1):
        a, n = offsets[s], offsets[s + 1] - offsets[s]
        shared = np.int64(0)
        if s > 0:
            b = offsets[s - 1]
            most = min(n, a - b)
            while shared < most and symbols[a + shared] == symbols[b + shared]:
                shared += 1
        nodes += n - shared
    return nodes


@kernel
def place_nodes(symbols, offsets, n_symbols, node_of):
    """Build the double array of n > 0 distinct, non-empty strings in an order that keeps common prefixes together.

    ``symbols``: int32, the strings one after the other, symbols from 0 to n_symbols - 1; ``offsets``: int64 [n + 1];
    ``node_of``: int32 [n], receives the slot at which each string ends. Returns (check, base), int32 [slots]; the last
    n_symbols slots are empty, so that no step can leave the array.

    Nodes with many children are placed first, while there is room for them, each at about the first place that fits; nodes
    with one child then fill the holes, along the paths.
    """
    total = count_nodes(symbols, offsets)
    label = np.empty(total, np.int32)
    first_child = np.empty(total + 1, np.int32)
    tree(symbols, offsets, node_of, label, first_child)

    widest = 0
    for v in range(total):
        widest = max(widest, first_child[v + 1] - first_child[v])
    of_width = np.zeros(widest + 2, np.int64)
    for v in range(total):
        of_width[first_child[v + 1] - first_child[v]] += 1
    wide = np.empty(total, np.int32)  # the nodes of several children, those with most first
    at = np.zeros(widest + 2, np.int64)
    for width in range(widest - 1, 1, -1):
        at[width] = at[width + 1] + of_width[width + 1]
    n_wide = np.int64(0)
    for v in range(total):
        width = first_child[v + 1] - first_child[v]
        if width > 1:
            wide[at[width]] = v
            at[width] += 1
            n_wide += 1

    first = np.int64(n_symbols + 1)  # slots below are never children: the base of a node without children is 0
    size = first + total + 4 * n_symbols + 1024
    used = np.zeros((size >> 6) + 2, np.uint64)  # a bit for each slot
    top = first  # the end of what has been handed out
    base = np.zeros(total, np.int32)
    rover = first
    width_before = np.int64(widest + 1)
    for k in range(n_wide):
        low, high = first_child[wide[k]], first_child[wide[k] + 1]
        if 2 * (high - low) <= width_before:  # far fewer children fit where more did not
            width_before = np.int64(high - low)
            rover = first
        # 64 places at a time, for the lowest label.
        q = rover
        while q < top:
            taken = np.uint64(0)
            for child in range(low, high):
                taken |= bits_at(used, min(q + label[child] - label[low], top))
                if taken == _ALL:
                    break
            if taken != _ALL:
                q += trailing_zeros(~taken)
                break
            q += 64
        if q - rover > _NEAR:  # what one node skips, the next may skip half of
            rover += (q - rover) >> 1
        found = q - label[low]
        base[wide[k]] = found
        end = found + label[high - 1] + 1
        top = max(top, end)
        if ((top + n_symbols) >> 6) + 2 > len(used):
            more = np.zeros(len(used) + (len(used) >> 1) + (n_symbols >> 6) + 2, np.uint64)
            more[: len(used)] = used
            used = more
        for child in range(low, high):
            t = found + label[child]
            used[t >> 6] |= np.uint64(1) << np.uint64(t & 63)
    # Depth first along the paths.
    stack = np.empty(total, np.int32)
    stack[0] = 0
    waiting = 1
    q = first
    while waiting > 0:
        waiting -= 1
        v = stack[waiting]
        for child in range(first_child[v + 1] - 1, first_child[v] - 1, -1):
            stack[waiting] = child
            waiting += 1
        if first_child[v + 1] - first_child[v] == 1:
            while q < top and used[q >> 6] >> np.uint64(q & 63) & np.uint64(1):
                q += 1
            base[v] = q - label[first_child[v]]
            q += 1
    top = max(top, q)

    # From numbers to slots.
    check_at = np.full(top + n_symbols, -1, np.int32)
    base_at = np.zeros(top + n_symbols, np.int32)
    slot = stack
    slot[0] = 0
    base_at[0] = base[0]
    for v in range(total):
        for child in range(first_child[v], first_child[v + 1]):
            t = base[v] + label[child]
            slot[child] = t
            check_at[t] = slot[v]
            base_at[t] = base[child]
    for s in range(len(node_of)):
        node_of[s] = slot[node_of[s]]
    return check_at, base_at


def build_trie(symbols: np.ndarray, offsets: np.ndarray, n_symbols: int) -> tuple[np.ndarray, np.ndarray]:
    """(nodes NODE [slots] with weight 0, node_of int32 [n]) for strings as ``place_nodes`` takes them."""
    node_of = np.empty(len(offsets) - 1, np.int32)
    if not len(node_of):
        nodes = np.zeros(n_symbols + 1, NODE)
        nodes["check"] = -1
        return nodes, node_of
    check, base = place_nodes(symbols, offsets, n_symbols, node_of)
    nodes = np.zeros(len(check), NODE)
    nodes["check"] = check
    nodes["base"] = base
    return nodes, node_of

"""Numba kernels of a trie over bytes in one array (a double array, Aoe 1989): a step is one load.

``cells`` (uint64): bits 0-8 the byte that leads into the cell (UNUSED: none does), bits 9-32 where the cell's children
begin (child of byte b: that plus b), bits 33-63 the token that ends here plus one, 0 for none. Cell 0 is the root. No two
nodes' children begin at the same place, so a byte that fits proves the parent.
"""

import numpy as np

from shardpiece.intrinsics import MIX_1
from shardpiece.kernel_cache import kernel

UNUSED = np.uint64(256)
BYTE_MASK = np.uint64(511)
BASE_MASK = np.uint64((1 << 24) - 1)
BASE_SHIFT = np.uint64(9)
TOKEN_SHIFT = np.uint64(33)
_8, _24, _40 = np.uint64(8), np.uint64(24), np.uint64(40)
_ONE = np.uint64(1)
ROOM = 512


@kernel
def count_nodes(data, offsets, wanted, slots):
    """Enter all texts of ``wanted`` tokens into a hash table of edges (``slots`` uint64, a power of two, zeroed: (node << 8
    | byte) + 1 in the upper 40 bits, the child in the lower 24); returns the number of nodes, the root (0) included."""
    mask = len(slots) - 1
    nodes = 1
    for t in range(len(wanted)):
        if not wanted[t]:
            continue
        node = 0
        for i in range(offsets[t], offsets[t + 1]):
            key = ((np.uint64(node) << _8) | np.uint64(data[i])) + _ONE
            q = np.int64((key * MIX_1) >> _40) & mask
            while slots[q] != 0 and (slots[q] >> _24) != key:
                q = (q + 1) & mask
            if slots[q] == 0:
                slots[q] = (key << _24) | np.uint64(nodes)
                nodes += 1
            node = np.int64(slots[q] & BASE_MASK)
    return nodes


@kernel
def build(data, offsets, wanted, slots, nodes, cells):
    """Lay the trie that ``count_nodes`` made out in ``cells``, nodes by their distance from the root, each in the first
    place that fits. Returns the number of cells used, -1 when there is no room (ROOM cells behind the last one are
    needed)."""
    label = np.zeros(nodes, np.uint8)
    parent = np.zeros(nodes, np.int32)
    token = np.full(nodes, -1, np.int32)
    children = np.zeros(nodes + 1, np.int32)
    mask = len(slots) - 1
    for q in range(len(slots)):
        if slots[q] != 0:
            child = np.int64(slots[q] & BASE_MASK)
            key = (slots[q] >> _24) - _ONE
            label[child] = np.uint8(key & np.uint64(255))
            parent[child] = np.int32(key >> _8)
            children[parent[child] + 1] += 1
    for t in range(len(wanted)):
        if not wanted[t]:
            continue
        node = 0
        for i in range(offsets[t], offsets[t + 1]):
            key = ((np.uint64(node) << _8) | np.uint64(data[i])) + _ONE
            q = np.int64((key * MIX_1) >> _40) & mask
            while (slots[q] >> _24) != key:
                q = (q + 1) & mask
            node = np.int64(slots[q] & BASE_MASK)
        token[node] = t
    for i in range(nodes):
        children[i + 1] += children[i]
    filled = children[:-1].copy()
    below = np.empty(max(nodes - 1, 1), np.int32)
    for child in range(1, nodes):
        below[filled[parent[child]]] = child
        filled[parent[child]] += 1

    size = len(cells)
    cells[:] = UNUSED
    taken = np.zeros(size, np.bool_)
    begins = np.zeros(size, np.bool_)
    following = np.arange(1, size + 1).astype(np.int32)  # the next free cell, with paths made shorter as they are used
    place = np.zeros(nodes, np.int64)
    queue = np.empty(nodes, np.int32)
    queue[0] = 0
    head, tail = 0, 1
    taken[0] = True
    cells[0] = UNUSED
    first_free = np.int64(1)
    top = np.int64(1)
    while head < tail:
        node = np.int64(queue[head])
        head += 1
        lo, hi = children[node], children[node + 1]
        if token[node] >= 0:
            cells[place[node]] |= np.uint64(token[node] + 1) << TOKEN_SHIFT
        if lo == hi:
            continue
        least = np.int64(256)
        for k in range(lo, hi):
            least = min(least, np.int64(label[below[k]]))
        while taken[first_free]:
            first_free += 1
        free = first_free
        tries = 0
        base = np.int64(-1)
        while True:
            if free + ROOM >= size:
                return np.int64(-1)
            candidate = free - least
            if candidate > 0 and not begins[candidate]:
                fits = True
                for k in range(lo, hi):
                    if taken[candidate + np.int64(label[below[k]])]:
                        fits = False
                        break
                if fits:
                    base = candidate
                    break
            tries += 1
            if tries == 64:  # crowded: go on behind everything
                free = max(free, top)
            free += 1
            while taken[free]:
                nearer = np.int64(following[free])
                while nearer < size and taken[nearer]:
                    nearer = np.int64(following[nearer])
                following[free] = nearer
                free = nearer
                if free + ROOM >= size:
                    return np.int64(-1)
        begins[base] = True
        cells[place[node]] |= np.uint64(base) << BASE_SHIFT
        for k in range(lo, hi):
            child = np.int64(below[k])
            at = base + np.int64(label[child])
            taken[at] = True
            cells[at] = np.uint64(label[child])
            place[child] = at
            top = max(top, at + 1)
            queue[tail] = child
            tail += 1
    return top + ROOM

"""Numba kernel that builds the double array of a charsmap: sorted sources become a minimal automaton (equal tails are
shared, as in Darts-clone), whose states are then placed one by one."""

import numpy as np

from shardpiece.intrinsics import MIX_1, MIX_2
from shardpiece.kernel_cache import kernel
from shardpiece.text.normalization.charsmap_kernels import NO_UNIT

MAX_UNITS = 1 << 21
"""Below this every distance between two blocks fits a unit as it is."""

# Places tried for a state before it goes to the end of the array.
_TRIES = 512
_SHIFT = np.uint64(29)


@kernel
def register(labels, targets, count, value, states, edge_labels, edge_targets, table):
    """The number of the state with these edges and this value (-1 for none), made if it is new.

    ``states`` (int64 [capacity + 1, 2]): first edge and value of each state; states[0, 1] is the number of states + 1.
    """
    h = np.uint64(value + 2) * MIX_1
    for k in range(count):
        h = (h ^ (h >> _SHIFT) ^ np.uint64(labels[k]) ^ (np.uint64(targets[k]) << np.uint64(8))) * MIX_2
    mask = np.uint64(len(table) - 1)
    slot = (h ^ (h >> _SHIFT)) & mask
    while table[slot] != 0:
        s = table[slot]
        first = states[s, 0]
        if states[s, 1] == value and states[s + 1, 0] - first == count:
            same = True
            for k in range(count):
                if edge_labels[first + k] != labels[k] or edge_targets[first + k] != targets[k]:
                    same = False
                    break
            if same:
                return s
        slot = (slot + np.uint64(1)) & mask
    s = states[0, 1]
    states[0, 1] += 1
    first = states[s, 0]
    for k in range(count):
        edge_labels[first + k] = labels[k]
        edge_targets[first + k] = targets[k]
    states[s, 1] = value
    states[s + 1, 0] = first + count
    table[slot] = s
    return s


@kernel
def minimal_automaton(keys, key_offsets, values, longest):
    """(states, edge labels, edge targets, root) of sorted, different keys (Daciuk et al. 2000)."""
    capacity = len(keys) + 2
    size = 1
    while size < 2 * capacity:
        size *= 2
    table = np.zeros(size, np.int64)
    states = np.zeros((capacity + 2, 2), np.int64)
    states[0, 1] = 1
    edge_labels = np.empty(capacity, np.uint8)
    edge_targets = np.empty(capacity, np.int64)
    labels = np.zeros((longest + 1, 256), np.uint8)
    targets = np.zeros((longest + 1, 256), np.int64)
    counts = np.zeros(longest + 1, np.int64)
    ends = np.full(longest + 1, -1, np.int64)
    depth = 0
    for key in range(len(values) + 1):
        common = 0
        start = np.int64(0)
        length = 0
        if key < len(values):
            start = np.int64(key_offsets[key])
            length = np.int64(key_offsets[key + 1]) - start
            while common < depth and common < length:
                if labels[common, counts[common] - 1] != keys[start + common]:
                    break
                common += 1
        while depth > common:
            s = register(
                labels[depth], targets[depth], counts[depth], ends[depth], states, edge_labels, edge_targets, table
            )
            counts[depth] = 0
            ends[depth] = -1
            depth -= 1
            targets[depth, counts[depth] - 1] = s
        while depth < length:
            labels[depth, counts[depth]] = keys[start + depth]
            counts[depth] += 1
            depth += 1
        if key < len(values):
            ends[depth] = values[key]
    root = register(labels[0], targets[0], counts[0], ends[0], states, edge_labels, edge_targets, table)
    return states, edge_labels, edge_targets, root


@kernel
def fits(units, used_blocks, block, labels, first, last, with_value):
    free = not used_blocks[block] and (not with_value or units[block] == NO_UNIT)
    e = first
    while free and e < last:
        free = units[block ^ np.int64(labels[e])] == NO_UNIT
        e += 1
    return free


@kernel
def build_double_array(keys, key_offsets, values, longest):
    """uint32 units; none when they would be more than MAX_UNITS. Free units bear a label that nothing has."""
    states, edge_labels, edge_targets, root = minimal_automaton(keys, key_offsets, values, longest)
    n = states[0, 1]
    units = np.full(1 << 12, NO_UNIT, np.uint32)
    used_blocks = np.zeros(1 << 12, np.uint8)
    used_blocks[0] = 1
    units[0] = 0
    blocks = np.zeros(n, np.int64)
    free = np.int64(1)
    top = np.int64(256)
    for s in range(n - 1, 0, -1):
        first = states[s, 0]
        last = states[s + 1, 0]
        with_value = states[s, 1] >= 0
        label = np.int64(0) if with_value else np.int64(edge_labels[first])
        while free < top and units[free] != NO_UNIT:
            free += 1
        block = np.int64(-1)
        place = free
        for _ in range(_TRIES):
            while place < top and units[place] != NO_UNIT:
                place += 1
            if place >= top:
                break
            if fits(units, used_blocks, place ^ label, edge_labels, first, last, with_value):
                block = place ^ label
                break
            place += 1
        if block < 0:
            block = top
            top += 256
            if top > MAX_UNITS:
                return np.empty(0, np.uint32)
            if top > len(units):
                longer = np.full(2 * len(units), NO_UNIT, np.uint32)
                longer[: len(units)] = units
                more_used = np.zeros(2 * len(units), np.uint8)
                more_used[: len(units)] = used_blocks
                units = longer
                used_blocks = more_used
        used_blocks[block] = 1
        blocks[s] = block
        # Taken; what it holds is known when all blocks are.
        if with_value:
            units[block] = NO_UNIT | states[s, 1]
            if states[s, 1] == 0:
                units[block] = 1
        for e in range(first, last):
            units[block ^ np.int64(edge_labels[e])] = edge_labels[e]
    for s in range(1, n):
        block = blocks[s]
        if states[s, 1] >= 0:
            units[block] = NO_UNIT | states[s, 1]
        for e in range(states[s, 0], states[s + 1, 0]):
            t = edge_targets[e]
            node = block ^ np.int64(edge_labels[e])
            has_value = 0x100 if states[t, 1] >= 0 else 0
            units[node] = ((node ^ blocks[t]) << 10) | has_value | np.int64(edge_labels[e])
    units[0] = blocks[root] << 10
    return units[:top].copy()

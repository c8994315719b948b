"""BPE training in plain Python: recount everything at every step (Sennrich et al. 2016)."""

import itertools


def learn_merges(
    words, n_merges, tie_break="lexicographic", byte_ids=None, min_frequency=1, max_length=10**9, reserved=()
):
    """``words``: list of (bytes, count), in table order. Returns [((left bytes, right bytes), count)]."""
    byte_ids = byte_ids or list(range(256))
    ids = {bytes([b]): byte_ids[b] for b in range(256)}
    state = [([bytes([b]) for b in word], count) for word, count in words]
    merges = []
    while len(merges) < n_merges:
        counts, seen = {}, {}
        for symbols, count in state:
            for pair in itertools.pairwise(symbols):
                joined = pair[0] + pair[1]
                if len(joined) > max_length or joined in reserved:
                    continue
                seen.setdefault(pair, len(seen))
                counts[pair] = counts.get(pair, 0) + count
        if not counts or max(counts.values()) < min_frequency:
            break
        top = max(counts.values())
        tied = [pair for pair, count in counts.items() if count == top]
        if tie_break == "lexicographic":
            best = min(tied)
        elif tie_break == "lexicographic_last":
            best = max(tied)
        elif tie_break == "id":
            best = min((ids[a], ids[b], (a, b)) for a, b in tied)[2]
        else:
            best = min((seen[pair], pair) for pair in tied)[1]
        merges.append((best, top))
        ids[best[0] + best[1]] = 256 + len(merges) - 1
        for symbols, _ in state:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges

"""BPE training in plain Python: recount everything at every step (Sennrich et al. 2016)."""


def learn_merges(words, n_merges, tie_break="lexicographic", byte_ids=None, min_frequency=1, max_length=10**9,
                 reserved=()):
    """``words``: list of (bytes, count), in table order. Returns [((left bytes, right bytes), count)]."""
    byte_ids = byte_ids or list(range(256))
    ids = {bytes([b]): byte_ids[b] for b in range(256)}
    state = [([bytes([b]) for b in word], count) for word, count in words]
    merges = []
    while len(merges) < n_merges:
        counts, seen = {}, {}
        for symbols, count in state:
            for pair in zip(symbols, symbols[1:], strict=False):
                joined = pair[0] + pair[1]
                if len(joined) > max_length or joined in reserved:
                    continue
                seen.setdefault(pair, len(seen))
                counts[pair] = counts.get(pair, 0) + count
        if not counts or max(counts.values()) < min_frequency:
            break
        top = max(counts.values())
        tied = [pair for pair, count in counts.items() if count == top]
        best = {
            "lexicographic": lambda: min(tied),
            "lexicographic_last": lambda: max(tied),
            "id": lambda: min(tied, key=lambda pair: (ids[pair[0]], ids[pair[1]])),
            "first_seen": lambda: min(tied, key=seen.get),
        }[tie_break]()
        merges.append((best, top))
        ids[best[0] + best[1]] = 256 + len(merges) - 1
        for symbols, _ in state:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges

"""BPE training in plain Python: recount everything at every step (Sennrich et al. 2016)."""

import itertools


def learn_merges(
    words, alphabet, n_merges, tie_break="lexicographic", *, min_frequency=1, max_length=10**9, reserved=(), prefix=b"",
    unique=False, allowed=lambda spelling: True, initial=(),
):  # fmt: skip
    """``words``: list of (base ids with -1 for unknown ones, count), in table order; ``alphabet``: spelling of each
    base id; ``allowed``: which spellings merges may have. Returns [((left id, right id), count)], -1 for initial
    merges."""
    spelled = list(alphabet)
    lengths = [1] * len(alphabet)
    state = [(list(symbols), count) for symbols, count in words]
    merges = []

    def joined(pair):
        left, right = spelled[pair[0]], spelled[pair[1]]
        return left + (right[len(prefix) :] if right.startswith(prefix) else right)

    def rank(pair):
        left, right = spelled[pair[0]], spelled[pair[1]]
        if tie_break == "sentencepiece":
            return (lengths[pair[0]] + lengths[pair[1]], joined(pair), left, right, pair)
        return pair if tie_break == "id" else (left, right, pair)

    def merge(pair, count):
        new = len(spelled)
        merges.append((pair, count))
        spelled.append(joined(pair))
        lengths.append(lengths[pair[0]] + lengths[pair[1]])
        for symbols, _ in state:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == pair:
                    symbols[i : i + 2] = [new]
                i += 1

    for pair in initial:
        merge(tuple(pair), -1)
    while len(merges) < n_merges:
        counts, seen = {}, {}
        for symbols, count in state:
            for pair in itertools.pairwise(symbols):
                if -1 not in pair:
                    seen.setdefault(pair, len(seen))
                    counts[pair] = counts.get(pair, 0) + count
        taken = {*reserved, *(spelled if unique else ())}
        counts = {
            pair: count
            for pair, count in counts.items()
            if lengths[pair[0]] + lengths[pair[1]] <= max_length and joined(pair) not in taken and allowed(joined(pair))
        }
        if not counts or max(counts.values()) < min_frequency:
            break
        top = max(counts.values())
        tied = [pair for pair, count in counts.items() if count == top]
        if tie_break == "first_seen":
            best = min(tied, key=seen.__getitem__)
        elif tie_break == "lexicographic_last":
            best = max(tied, key=lambda pair: (spelled[pair[0]], spelled[pair[1]]))
        else:
            best = min(tied, key=rank)
        merge(best, top)
    return merges


def frequencies(words, merges, base):
    """How often each token stands in the words (as above) that ``merges`` have cut, one after the other."""
    found = [0] * (base + len(merges))
    for symbols, count in words:
        symbols = list(symbols)
        for new, pair in enumerate(merges, base):
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == pair:
                    symbols[i : i + 2] = [new]
                i += 1
        for s in symbols:
            found[s] += count
    return found

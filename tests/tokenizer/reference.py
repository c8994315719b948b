"""BPE encoding in plain Python: merge the lowest rank, leftmost first, until nothing merges."""

import itertools


def encode_word(word: bytes, vocab: list[bytes], merges: list[tuple[int, int]]) -> list[int]:
    ids = {token: i for i, token in enumerate(vocab)}
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    tokens = [ids[bytes([b])] for b in word]
    while True:
        candidates = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(tokens)) if pair in ranks]
        if not candidates:
            return tokens
        _, i = min(candidates)
        tokens[i : i + 2] = [ids[vocab[tokens[i]] + vocab[tokens[i + 1]]]]

"""A compiled pattern made ready for the split kernels.

An automaton finds the end of a match only when it has read past it, often further than the first character of the next
word. The machine built here reads every character once, ASCII two at a time. Its states are lists of automaton states:
the first began at the end of the last settled word, each of the others at the latest end of a match that the one before
has found. When a longer match is found, what began at the earlier one is dropped; when the first can find no more, its
word is settled. The ends themselves stand in the output behind the settled words, one slot for each state of the list
but the last.

Where that list would grow too long, or a word turns out not to match at all, the machine gives up and the automaton
splits one word from the last settled end on. Published patterns never come to that.
"""

import numpy as np

from shardpiece.errors import DocumentError
from shardpiece.kernel_cache import read_only
from shardpiece.text import split_kernels as k
from shardpiece.text.dfa import DEAD, DFA, START
from shardpiece.text.documents import Documents
from shardpiece.text.window_kernels import NO_WINDOWS, WINDOW_ROOM
from shardpiece.text.windows import window_kind

# Steps of the automaton that a document may take beyond a hundred per byte: some ten seconds. Published patterns take
# about one per byte; a pattern that reads far ahead at every position and then fails takes their square.
WORK_PER_DOCUMENT = 2_000_000_000

_MOST_MACHINE_STATES = 1024
_LARGEST_TABLE = 1 << 18
# Documents up to this size get room for one word a byte at once: pages that stay empty cost nothing.
_SMALL = 1 << 21


class Splitter:
    """Splits documents by a DFA. ``windows``: whether to use a window kernel where the pattern has one."""

    def __init__(self, dfa: DFA, windows: bool = True):
        raw = dfa.class_of.tobytes()
        distinct: dict[bytes, int] = {}
        blocks = [distinct.setdefault(raw[at : at + 64], len(distinct)) for at in range(0, len(raw), 64)]
        transitions = np.array(dfa.transitions, np.uint16, order="C")
        ascii_classes = dfa.class_of[:128].copy()
        self._tables = (
            ascii_classes,
            np.array(blocks, np.uint16),
            np.frombuffer(bytearray(b"".join(distinct)), np.uint8),
            transitions,
            *_tabulate(*_build_machine(transitions.astype(np.int64)), ascii_classes),
            window_kind(dfa) if windows else NO_WINDOWS,
        )

    def split(self, documents: Documents) -> tuple[np.ndarray, np.ndarray]:
        """(ends int64 of all words, document_ends int64: words up to and including each document). Raises
        DocumentError for a document that takes too many steps."""
        document_ends = np.empty(len(documents), np.int64)
        state = np.zeros(k.STATE_SIZE, np.int64)
        state[k.STATE_WORD_START] = documents.offsets[0]
        size = documents.size
        data, offsets = read_only(documents.data), read_only(documents.offsets)
        ends = np.empty((size if size < _SMALL else max(_SMALL, size // 3)) + WINDOW_ROOM, np.int64)
        while True:
            status = k.split_documents(data, offsets, *self._tables, WORK_PER_DOCUMENT, ends, document_ends, state)
            if status == k.DONE:
                return ends[: state[k.STATE_WORDS]], document_ends
            if status == k.TOO_MUCH_WORK:
                d = int(state[k.STATE_DOCUMENT])
                size = int(offsets[d + 1] - offsets[d])
                raise DocumentError(
                    d,
                    f"the pre-tokenizer pattern took too many steps on this document of {size:,} bytes; "
                    f"simplify the pattern or leave the document out",
                )
            ends = np.concatenate([ends, np.empty(len(ends), np.int64)])


def _tabulate(following: np.ndarray, output: np.ndarray, ascii_classes: np.ndarray) -> tuple:
    """What ``split_kernels`` takes: (firsts, seconds, begin, following, output). Each state has a row of its classes and
    then of all pairs of ASCII classes, and its number is where the row begins."""
    states, columns = following.shape
    distinct, numbers = np.unique(ascii_classes, return_inverse=True)
    n = len(distinct)
    row = columns + n * n
    if states * row > _LARGEST_TABLE:
        nothing = np.empty(0, np.uint16), np.empty(0, np.uint8)
        return *nothing, START * columns, (following * columns).astype(np.uint32).ravel(), output.ravel()
    between = following[:, distinct]
    second = following[between][:, :, distinct]
    second[between == k.GIVE_UP] = k.GIVE_UP
    outputs = output[:, distinct, None] | output[between][:, :, distinct] << 8
    following = np.concatenate([following, second.reshape(states, -1)], axis=1) * row
    output = np.concatenate([output, outputs.reshape(states, -1)], axis=1)
    firsts, seconds = (columns + numbers * n).astype(np.uint16), numbers.astype(np.uint8)
    return firsts, seconds, START * row, following.astype(np.uint32).ravel(), output.ravel()


def _build_machine(transitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of the next state int64, output uint16 as in ``split_kernels.transduce``), both [machine states,
    columns]."""
    states, columns = transitions.shape
    rows = transitions.tolist()
    # A gap, characters where no match begins, is a word that ends where a match begins. It waits for the match's end:
    # if there is none after all, the gap goes on. The automaton may return to its start, but a text begins only once.
    gap, waiting, begin = states, states + 1, states + 2
    rows.append([gap << 1 if x >> 1 == DEAD else waiting << 1 | 1 for x in rows[START][:-1]] + [1])
    rows.append([waiting << 1] * (columns - 1) + [0])
    first = [gap if x >> 1 == DEAD else x >> 1 for x in rows[START][:-1]]
    rows.append([x << 1 for x in first] + [0])

    def step(entries: tuple[int, ...], c: int) -> tuple[tuple[int, ...], int, int]:
        """(next entries, slot to write, words settled); no entries where the machine gives up."""
        moved = []
        slot = len(entries) - 1
        for j, entry in enumerate(entries):
            x = rows[entry][c]
            moved.append(x >> 1)
            if x & 1:
                slot = j
                if j and moved[j - 1] == waiting:
                    moved[j - 1] = DEAD
                moved.append(first[c])
                break
        else:
            if moved[-1] == DEAD:
                return (), 0, 0
        settled = 0
        while moved[settled] == DEAD:
            settled += 1
        moved = moved[settled:]
        return (tuple(moved), slot, settled) if len(moved) + settled < k.SLOTS else ((), 0, 0)

    def finish(entries: tuple[int, ...]) -> int:
        """Output at the end of the text, 0 where the machine gives up."""
        for j, entry in enumerate(entries):
            if rows[entry][columns - 1] & 1:
                return j | (j + 1) << 3
        return 0

    numbers: dict[tuple[int, ...], int] = {(): k.GIVE_UP, (begin,): START}
    order = list(numbers)
    following: list[int] = [k.GIVE_UP] * columns
    output: list[int] = [0] * columns
    for entries in order:
        if not entries:
            continue
        for c in range(columns - 1):
            moved, slot, settled = step(entries, c)
            if moved not in numbers:
                if len(order) == _MOST_MACHINE_STATES:
                    moved = ()
                else:
                    numbers[moved] = len(order)
                    order.append(moved)
            following.append(numbers[moved])
            output.append(slot | settled << 3 if moved else 0)
        last = finish(entries)
        following.append(START if last else k.GIVE_UP)
        output.append(last)
    return np.array(following).reshape(-1, columns), np.array(output, np.uint16).reshape(-1, columns)

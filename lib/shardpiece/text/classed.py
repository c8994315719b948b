"""Text engines that need one pass over the text: pre-tokenizers whose words are single characters and runs of characters
of one class (BERT's, words between white space), behind normalizers that map characters one by one (BERT's, lowercase)."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.text import classed_kernels as k
from shardpiece.text.dfa import DEAD, DFA, START
from shardpiece.text.documents import Documents
from shardpiece.text.normalization.character_kernels import SURROUND
from shardpiece.text.normalization.tables import CharacterMap, frozen, two_stages

# Documents up to this size get room for one word a byte at once: pages that stay empty cost nothing.
_SMALL = 1 << 21

_SPACES = [*map(ord, " \t\n\r")]
_DIGITS = [*range(ord("0"), ord("9") + 1)]
_SMALL_LETTERS = [*range(ord("a"), ord("z") + 1)]
_CAPITALS = [*range(ord("A"), ord("Z") + 1)]
_SIGNS = sorted({*range(0x21, 0x7F)} - {*_DIGITS, *_SMALL_LETTERS, *_CAPITALS})


@dataclass(frozen=True)
class ClassedSplitter:
    """The tables of ``classed_kernels``. ``growth``: how many bytes a byte of text becomes at most; ``hard``: bool [code
    points], the characters with which text has to be normalized in several steps."""

    tables: tuple
    growth: int
    hard: np.ndarray

    @classmethod
    def of(
        cls, dfa: DFA, invert: bool, mapping: CharacterMap | None = None, hard: CharacterMap | None = None
    ) -> "ClassedSplitter | None":
        """For a pattern whose matches are dropped, or with ``invert`` are the words, behind a normalizer that makes of each
        character what ``mapping`` says, unless ``hard`` changes it. None where it takes more than one pass."""
        actions = character_actions(dfa, invert)
        if actions is None:
            return None
        values = actions.astype(np.int32)
        texts: dict[bytes, int] = {}
        growth = 1
        if mapping is not None:
            mapped = mapping.over_code_points()
            surrounded = mapped == SURROUND
            values[surrounded & (actions != k.GAP)] = k.SINGLE
            raw = mapping.targets.tobytes()
            borders = mapping.target_offsets.tolist()
            found = [_target_action(raw[a:b].decode(), actions) for a, b in pairwise(borders)]
            by_target = np.array(
                [action | (texts.setdefault(text, len(texts) + 1) if text else 0) << 8 for action, text in found],
                np.int32,
            )
            changed = mapped > 0
            values[changed] = by_target[mapped[changed] - 1]
            lengths = np.array([len(text) for _, text in found])[mapped[changed] - 1]
            widths = 1 + sum((np.flatnonzero(changed) >= first).astype(int) for first in (0x80, 0x800, 0x10000))
            growth = int(np.ceil(max((lengths / widths).max(initial=1), 1)))
        if hard is not None:
            values[hard.over_code_points() != 0] = k.HARD
        spelled = list(texts)
        ascii_actions = (values[:128] & 0xFF).astype(np.uint8)
        ascii_bytes = np.arange(128, dtype=np.uint8)
        for c in np.flatnonzero(values[:128] >> 8).tolist():
            text = spelled[(values[c] >> 8) - 1]
            if len(text) != 1:
                return None
            ascii_bytes[c] = text[0]
        window, letters = _window(ascii_actions, ascii_bytes)
        tables = (
            *two_stages(values),
            frozen(np.cumsum([0, *map(len, spelled)], dtype=np.int64)),
            np.frombuffer(b"".join(spelled), np.uint8),
            frozen(ascii_actions),
            frozen(ascii_bytes),
            window,
            letters,
        )
        return cls(tables, growth, (values & 0xFF) == k.HARD)

    def split(self, documents: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """(the words' bytes uint8, ends int64 of all words, document_ends int64: words up to and including each document),
        or None for documents that have to be normalized in several steps."""
        size = documents.size
        out = np.empty(size * self.growth + k.ROOM, np.uint8)
        document_ends = np.empty(len(documents), np.int64)
        state = np.zeros(2, np.int64)
        ends = np.empty((size if size < _SMALL else size // 2) + k.ROOM, np.int64)
        data, offsets = read_only(documents.data), read_only(documents.offsets)
        while True:
            status = k.split_classed(data, offsets, *self.tables, out, ends, document_ends, state)
            if status == k.DONE:
                return frozen(out[: state[0]]), ends[: state[1]], document_ends
            if status == k.NOT_HERE:
                return None
            ends = np.empty(size + k.ROOM, np.int64)

    def begins_with_word(self, documents: Documents) -> np.ndarray:
        """Bool [documents], whether each one, none of them empty, begins with a word."""
        pages, values, _, _, ascii_actions, *_ = self.tables
        kept = np.empty(len(documents), bool)
        data, offsets = read_only(documents.data), read_only(documents.offsets)
        k.mark_kept(data, offsets, pages, values, ascii_actions, kept)
        return kept


def character_actions(dfa: DFA, invert: bool) -> np.ndarray | None:
    """uint8 [code points]: what each character does (see ``classed_kernels``) where matches are dropped, or with ``invert``
    what stands between them; None where that depends on more than the character."""
    classes = np.unique(np.delete(dfa.class_of, slice(0xD800, 0xE000))).tolist()  # no text has surrogates
    table = dfa.transitions.astype(np.int64)
    following, matched = table >> 1, (table & 1).astype(bool)
    columns = [*classes, table.shape[1] - 1]
    action_of = np.full(table.shape[1], k.GAP, np.uint8)
    groups: dict[int, int] = {}
    for c in classes:
        state = int(following[START, c])
        if state == DEAD:
            action = k.GAP
        elif (following[state, columns] == DEAD).all() and matched[state, columns].all():
            action = k.SINGLE
        else:
            # A run: it goes on with the classes that begin it, and ends before all others.
            begin = following[START] == state
            goes_on = following[state] == state
            others = [x for x in columns if not goes_on[x]]
            if any(begin[x] != goes_on[x] for x in classes) or goes_on[columns[-1]]:
                return None
            if not matched[state, others].all() or (following[state, others] != DEAD).any():
                return None
            action = k.RUN + groups.setdefault(state, len(groups))
        action_of[c] = action
    if not invert:
        action_of = np.where(action_of == k.GAP, k.RUN, k.GAP).astype(np.uint8)
    return action_of[dfa.class_of]


def _target_action(text: str, actions: np.ndarray) -> tuple[int, bytes]:
    """What a character does that becomes ``text``, and the text that it leaves in a word."""
    done = [int(actions[ord(c)]) for c in text]
    if not done:
        return k.NOTHING, b""
    if set(done) == {k.GAP}:
        return k.GAP, b""
    kept = [i for i, action in enumerate(done) if action != k.GAP]
    middle = text[kept[0] : kept[-1] + 1].encode()
    inner = set(done[kept[0] : kept[-1] + 1])
    if len(inner) == 1 and (action := inner.pop()) != k.GAP:
        if len(kept) == len(done) and (action >= k.RUN or len(kept) == 1):
            return action, middle
        if done[0] == done[-1] == k.GAP and (action >= k.RUN or len(kept) == 1):
            return k.SINGLE, middle
    return k.HARD, b""


def _window(actions: np.ndarray, becomes: np.ndarray) -> tuple[int, np.uint8]:
    """(the kind of window that does the same to ASCII, how many capitals it makes small)."""
    group = actions[ord("a")]
    plain = [*_DIGITS, *_SMALL_LETTERS, *_SIGNS]
    none = k.NO_WINDOW, np.uint8(0)
    if group < k.RUN or (actions[[*_DIGITS, *_SMALL_LETTERS, *_CAPITALS]] != group).any():
        return none
    if (actions[_SPACES] != k.GAP).any() or (becomes[plain] != plain).any():
        return none
    capitals = becomes[_CAPITALS].tolist()
    if capitals not in (_CAPITALS, _SMALL_LETTERS):
        return none
    letters = np.uint8(26 if capitals == _SMALL_LETTERS else 0)
    signs = [c for c in _SIGNS if c != ord("_")]
    other = actions[ord("!")]
    if (actions[_SIGNS] == k.SINGLE).all():
        return k.WINDOW_SINGLE, letters
    if (actions[_SIGNS] == group).all():
        return k.WINDOW_JOINED, letters
    if other >= k.RUN and (actions[signs] == other).all() and actions[ord("_")] == group:
        return k.WINDOW_RUNS, letters
    return none

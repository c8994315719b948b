"""Characters that a Unigram model and its normalizer know nothing of: see ``unigram_cut_kernels``."""

import numpy as np

from shardpiece.kernel_cache import read_only
from shardpiece.text.normalization import charsmap_check_kernels as check
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.tables import two_stages
from shardpiece.tokenizer import unigram_cut_kernels as k
from shardpiece.tokenizer.unigram import MARK, UnigramModel

_PAGE = 256
_SURROGATES = slice(0xD800, 0xE000)
_CHINESE = slice((k.CHINESE & 0x0F) << 12, ((k.CHINESE & 0x0F) + k.CHINESE_LEADS) << 12)
NOT_FUSED = -2


def unknown_tokens(model: UnigramModel) -> tuple[int, int]:
    """(mark_id, fused_id) as ``unigram_recall_kernels`` take them."""
    mark = model.vocab.ids.get(MARK, -1)
    if model.unk_id is None or model.byte_ids is not None or mark < 0 or not model.matched[mark]:
        return -1, NOT_FUSED
    return mark, model.unk_id


def character_classes(
    model: UnigramModel, charsmap: Charsmap, symbols: list[str]
) -> tuple[np.ndarray, np.ndarray, np.uint8]:
    """(pages, classes, chinese) as ``unigram_cut_kernels`` take them. Where a model knows characters of a page of 256, words are of
    known and unknown ones alike: there none is inert."""
    if unknown_tokens(model)[1] == NOT_FUSED:
        return read_only(np.zeros(0, np.uint16)), read_only(np.zeros(0, np.uint8)), np.uint8(0)
    known = np.zeros(0x110000, bool)
    spelled = b"".join(model.vocab[i] for i in np.flatnonzero(model.matched).tolist()) + "".join(symbols).encode()
    known[np.array([ord(c) for c in {*spelled.decode(errors="replace")}], np.int64)] = True
    pages = known.reshape(-1, _PAGE).any(axis=1)
    of = charsmap.source_characters
    inert = (of & (check.SINGLE | check.LATER | check.ODD)) == 0
    inert.reshape(-1, _PAGE)[pages] = False
    inert[_SURROGATES] = False
    space = (of & check.SPACE != 0) & (of & (check.STARTS | check.LATER | check.ODD) == 0)
    space[[ord(c) for text in symbols for c in text]] = False
    classes = np.zeros(0x110000, np.uint8)
    for members, bit in (
        (inert, k.INERT),
        (space, k.SPACE),
        (of & check.STARTS != 0, k.STARTS),
        (of & check.LATER != 0, k.LATER),
        (of & (check.ODD | check.SPACE) != 0, k.ODD),
    ):
        classes[members] |= bit
    class_pages, classes = two_stages(classes)
    return class_pages, read_only(classes), np.uint8(k.CHINESE_LEADS if inert[_CHINESE].all() else 0)

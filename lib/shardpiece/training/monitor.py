"""What a long training tells whoever started it, and how it is stopped."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def _nothing(*_) -> None:
    pass


@dataclass(frozen=True)
class Monitor:
    """``progress(fraction, figures)``: called now and then with the share done and figures by name (numbers; "pair" is the
    text of the last merge). ``checkpoint(get)``: called as often; ``get()`` gives int64
    [m, 3], the merges so far and their counts, enough to go on from. ``stop()``: asked
    now and then; when true, the training ends with what it has. ``log(line)``: what people should know."""

    progress: Callable[[float, dict], None] = _nothing
    checkpoint: Callable[[Callable[[], np.ndarray]], None] | None = None
    stop: Callable[[], bool] | None = None
    log: Callable[[str], None] = _nothing

"""Ctrl-C during a long computation: the first one asks it to end with what it has, the second one breaks it off."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether the user, or the cluster, has asked to stop. In threads other than the main one
    signals cannot be caught, and it never does."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def ask(number, frame) -> None:
        asked.set()
        for restored, handler in before.items():
            signal.signal(restored, handler)

    for number in _SIGNALS:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

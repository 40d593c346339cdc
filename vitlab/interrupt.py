"""Ctrl-C, noted: code that it meets midway may make another error of it, and what is half undone may complain."""

import logging
import signal
import sys
import threading
from types import FrameType

_noted = threading.Event()


def listen(*kinds: signal.Signals) -> None:
    """From now on Ctrl-C, or each of these signals, is noted, and a KeyboardInterrupt as ever."""
    _noted.clear()
    if threading.current_thread() is threading.main_thread():
        for kind in kinds or (signal.SIGINT,):
            if signal.getsignal(kind) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(kind, _interrupt)


def came() -> bool:
    return _noted.is_set()


def _interrupt(_kind: int, _frame: FrameType | None) -> None:
    _noted.set()
    logging.disable()  # a database's pool tells of every connection that it finds broken
    sys.unraisablehook = lambda _: None
    raise KeyboardInterrupt

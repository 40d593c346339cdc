"""Ctrl-C, noted: code that it meets midway may make another error of it, and what is half undone may complain."""

import logging
import signal
import sys
import threading
from types import FrameType

_noted = threading.Event()


def listen() -> None:
    """From now on Ctrl-C is noted, and a KeyboardInterrupt as ever."""
    _noted.clear()
    usual = signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler)
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def came() -> bool:
    return _noted.is_set()


def _interrupt(_kind: int, _frame: FrameType | None) -> None:
    _noted.set()
    logging.disable()  # a database's pool tells of every connection that it finds broken
    sys.unraisablehook = lambda _: None
    raise KeyboardInterrupt

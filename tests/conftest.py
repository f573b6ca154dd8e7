"""What holds for all tests."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs like this, and every process that a test starts would inherit it: those
    # in which Ctrl-C is pressed would never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)

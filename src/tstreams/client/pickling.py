"""What cannot be pickled, and what to pickle instead."""

from __future__ import annotations


def refuse_to_pickle(what: str) -> TypeError:
    """The error for whatever hangs on a connection."""
    return TypeError(
        f"{what} hangs on a connection and cannot be pickled: "
        "send the client's `config` and connect with it on the other side"
    )

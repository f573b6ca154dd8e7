"""Tracing with OpenTelemetry: off, unless it is switched on. Nothing is imported before that."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .spans import Tracing

VARIABLE = "TSTREAMS_TRACING"
"""Switches tracing on for all clients that do not say otherwise: 1 or true."""

log = logging.getLogger("tstreams.client")


def tracing_of(wanted: bool | None) -> Tracing | None:
    """What traces for a client; None if nobody wants that.

    `wanted` None leaves it to the environment. `ImportError` if it is wanted and cannot be had; but an
    environment is for many programs, so for those that lack OpenTelemetry it is only logged.
    """
    if wanted is False or (wanted is None and not is_on_everywhere()):
        return None
    try:
        from .spans import Tracing
    except ImportError:
        if wanted:
            raise missing() from None
        log.warning("%s is set: %s", VARIABLE, missing())
        return None
    return Tracing()


def is_on_everywhere() -> bool:
    """Whether the environment switches it on."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "true")


def missing() -> ImportError:
    """The error that says how to get it."""
    return ImportError("tracing needs opentelemetry: pip install 'tstreams[tracing]'")

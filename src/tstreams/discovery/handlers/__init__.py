"""What the routes do: a function for each, found by its name."""

from __future__ import annotations

from ..application import Handler
from ..front import Front
from ..routes import ROUTES
from .cluster import ClusterRoutes
from .consumers import Consumers
from .node import NodeRoutes
from .observing import Observing
from .streams import Streams
from .transactions import Transactions


def handlers_of(front: Front) -> tuple[dict[str, Handler], Consumers]:
    """The function of each route; and those of consumers, which are of use to those who watch lags."""
    consumers = Consumers(front)
    groups = (
        NodeRoutes(front),
        ClusterRoutes(front),
        Streams(front, consumers),
        Transactions(front),
        consumers,
        Observing(front),
    )
    found: dict[str, Handler] = {}
    for route in ROUTES:
        having = [group for group in groups if hasattr(group, route.name)]
        assert len(having) == 1, f"{route.name} is in {having}"
        found[route.name] = getattr(having[0], route.name)
    return found, consumers


__all__ = ["Consumers", "handlers_of"]

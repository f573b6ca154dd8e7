"""Exactly once from a stream into another store.

into_database    a loop that stores transactions in a database, and where it stands beside them
OffsetStore      the same by hand, for any DB-API or SQLAlchemy connection
ItemKey          a key for each item, for stores without transactions: writing it again changes nothing
"""

from __future__ import annotations

from .keys import ItemKey, keyed_items
from .loading import Loaded, into_database
from .offsets import Claim, OffsetStore

__all__ = ["Claim", "ItemKey", "Loaded", "OffsetStore", "into_database", "keyed_items"]

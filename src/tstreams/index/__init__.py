"""The index: what is where, and every durable fact that is not payload. `keys.py` describes it."""

from .index import Index
from .listing import ListedReader, Looks
from .store import IndexFailed, Store
from .sweeper import floor_of

__all__ = ["Index", "IndexFailed", "ListedReader", "Looks", "Store", "floor_of"]

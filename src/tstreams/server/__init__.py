"""The storage server: transport, core, ledger and index, put together."""

from .node import Node

__all__ = ["Node"]

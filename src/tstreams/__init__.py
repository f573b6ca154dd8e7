"""tstreams: transactional, persistent streams for exactly-once batch messaging."""

__version__ = "0.1.0"

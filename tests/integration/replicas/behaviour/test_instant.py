"""What `tests.integration.tstreams.test_instant` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_instant import *  # noqa: F403

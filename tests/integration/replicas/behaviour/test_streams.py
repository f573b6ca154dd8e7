"""What `tests.integration.tstreams.test_streams` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_streams import *  # noqa: F403

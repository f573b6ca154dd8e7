"""What `tests.integration.tstreams.test_consumer` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_consumer import *  # noqa: F403

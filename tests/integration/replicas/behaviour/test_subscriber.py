"""What `tests.integration.tstreams.test_subscriber` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_subscriber import *  # noqa: F403

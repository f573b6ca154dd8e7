"""What `tests.integration.tstreams.test_transactions` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_transactions import *  # noqa: F403

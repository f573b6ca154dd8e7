"""What `tests.integration.tstreams.test_process` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_process import *  # noqa: F403

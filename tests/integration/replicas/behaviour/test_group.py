"""What `tests.integration.tstreams.test_group` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_group import *  # noqa: F403

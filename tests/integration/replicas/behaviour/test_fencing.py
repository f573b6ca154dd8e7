"""What `tests.integration.tstreams.test_fencing` says of a single server holds over an engine's log."""

from tests.integration.tstreams.test_fencing import *  # noqa: F403

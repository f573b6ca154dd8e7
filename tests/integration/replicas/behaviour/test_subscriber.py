"""What `tests.integration.tstreams.test_subscriber` says of a single server holds over an engine's log."""

import pytest

from tests.integration.tstreams.test_subscriber import *  # noqa: F403

pytestmark = pytest.mark.parametrize("node", ["memory"], indirect=True)

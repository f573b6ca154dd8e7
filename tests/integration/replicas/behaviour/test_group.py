"""What `tests.integration.tstreams.test_group` says of a single server holds over an engine's log."""

import pytest

from tests.integration.tstreams.test_group import *  # noqa: F403

pytestmark = pytest.mark.parametrize("node", ["memory", "jetstream-1", "bookkeeper"], indirect=True)

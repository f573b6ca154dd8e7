"""What goes wrong with a cluster."""

from __future__ import annotations

from tests.torture.client_faults import add_client_faults
from tests.torture.cluster.world import ClusterWorld
from tests.torture.kinds import Catalogue

CLUSTER: Catalogue[ClusterWorld] = Catalogue()
"""Against a cluster."""
fault = CLUSTER.fault
add_client_faults(CLUSTER)

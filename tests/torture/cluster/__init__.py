"""The campaign against a whole cluster, each server of which has a host of its own: `python -m tests.torture --cluster`."""

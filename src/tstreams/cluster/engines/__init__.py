"""The engines that a cluster stands on, as processes on this machine: for development, tests and measurements."""

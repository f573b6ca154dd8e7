"""The whole system on one thread: real servers and clients; time, network and disk are simulated."""

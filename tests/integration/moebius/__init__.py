"""moebius over real sockets: one suite for all transports and both faces of the client."""

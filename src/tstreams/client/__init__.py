"""The client of tstreams: the rules once, and a driver for each way of waiting."""

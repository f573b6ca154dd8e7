"""Carriers of messages: native TCP and unix sockets, ZeroMQ, and in-process."""

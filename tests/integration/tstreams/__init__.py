"""The client of tstreams and a real server: what users may rely on."""

"""Which tstreams this is: apart from the public face, so that the server need not import that."""

__version__ = "0.1.0"

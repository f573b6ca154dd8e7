"""The client: one set of rules (`exchange`), one driver (`connection`), two faces (`blocking`, `asynchronous`)."""

"""A whole cluster on this machine, to develop with: started, kept track of, and ended from a folder."""

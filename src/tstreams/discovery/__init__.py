"""The front door of a node: HTTP for lookup, administration, metrics, and a console for people.

It is a process of its own beside the storage server (`python -m tstreams.discovery`, started by `tstreams
serve`), and an ordinary client of it: whatever happens here takes no time from commits.
"""

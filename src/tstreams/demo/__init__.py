"""The demo: a day of card payments, a Spark pipeline that is killed, and an audit. `tstreams demo`.

    producers --> payments --> Spark --> alerts, totals --> audit

`show.py` runs it, `story.py` says what is in the streams.
"""

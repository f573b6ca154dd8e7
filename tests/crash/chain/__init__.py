"""A chain of three processors that are killed again and again, with their server: is it exactly once?

    orders ----> price ----> priced --\
                                       join ----> bills ----> route ----> ledger
                             payments -/  \\                       \\---> alarms
                                           waiting (its memory)

`python -m tests.crash --exactly-once --kills 50`
"""

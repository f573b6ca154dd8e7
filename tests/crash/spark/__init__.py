"""A streaming query on Spark that is killed again and again, with its workers and its server: is it exactly once?

    orders ----> Spark ----> results

`python -m tests.crash --spark --kills 10`
"""

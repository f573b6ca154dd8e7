"""Chance for pauses and choices, so that not all clients do the same at the same time.

It is not the `random` of the process: programs seed that one, and count on what comes next.
"""

from __future__ import annotations

import os
import random

luck = random.Random()

os.register_at_fork(after_in_child=luck.seed)

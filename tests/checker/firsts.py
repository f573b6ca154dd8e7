"""Finds the first number of a list, from some place on, that is below or above a bound."""

from __future__ import annotations

from collections.abc import Sequence


class Firsts:
    """A tree of minima over a list that does not change: questions take logarithmic time."""

    def __init__(self, values: Sequence[float]) -> None:
        size = 1
        while size < len(values):
            size *= 2
        tree = [float("inf")] * size + list(values) + [float("inf")] * (size - len(values))
        for at in range(size - 1, 0, -1):
            left, right = tree[2 * at], tree[2 * at + 1]
            tree[at] = left if left <= right else right
        self._tree = tree
        self._size = size

    def below(self, bound: float, start: int) -> int | None:
        """The first place from `start` on with a value below the bound."""
        tree, at = self._tree, self._size + start
        if start >= self._size:
            return None
        while tree[at] >= bound:
            while at & 1:  # a right child: what follows lies beside an ancestor
                at >>= 1
                if at == 0:
                    return None
            at += 1
        while at < self._size:
            at *= 2
            if tree[at] >= bound:
                at += 1
        return at - self._size

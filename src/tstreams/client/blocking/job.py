"""A job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..pickling import refuse_to_pickle
from ..rules import job as rules
from ..rules.job import Staged
from .driver import Driver
from .producer import Producer


class Job:
    """Many producers, in many processes, write; one coordinator makes all of it visible at once, once.

    A job has steps, numbered upwards. For each step, whoever writes fills transactions and calls `stage`,
    which gives a `Staged` to send to the coordinator; the coordinator calls `commit` with all of them. If it
    dies before it heard the answer, it, or its successor, commits the same step again: the server knows that
    it was done, and what was staged in vain is dropped. Made by `client.job(...)`, everywhere under the same
    name. It needs no closing.
    """

    def __init__(self, driver: Driver, job: rules.Job) -> None:
        self._driver = driver
        self._rules = job

    @property
    def name(self) -> str:
        """Its name: the same wherever somebody works for it."""
        return self._rules.name

    def stage(self, producer: Producer, step: int) -> Staged:
        """Hand all open transactions of a producer over to a step: complete, durable, and not visible yet.

        They outlive the producer. They live for the job's `staging_ttl`, and so long again whenever somebody
        stages for the same step; then they expire, and the step can be committed no more.
        `InvalidState` if the step was committed already.
        """
        return self._driver.run(self._rules.stage(producer._rules, step))

    def renew(self, producer: Producer, step: int) -> None:
        """Keep what was staged for a step alive, while you still write for it."""
        self._driver.run(self._rules.renew(producer._rules, step))

    def commit(
        self,
        step: int,
        staged: Iterable[Staged],
        *,
        replace: Iterable[str] = (),
        final: bool = False,
    ) -> None:
        """Make what was staged visible, all or nothing, and drop what else was staged up to this step.

        A step that was committed before is done: nothing happens. `replace` names streams whose contents
        this step takes the place of, in the same moment: all that was opened before the first of its
        transactions goes. `final` says that the job is over: it need not be remembered.
        """
        self._driver.run(self._rules.commit(step, staged, replace, final))

    def cancel(self, step: int) -> None:
        """Drop what was staged for a step. One that was committed stays."""
        self._driver.run(self._rules.cancel(step))

    def last_step(self) -> int | None:
        """The step that was committed last; None if none was, or that was 90 days ago."""
        return self._driver.run(self._rules.last_step())

    def __repr__(self) -> str:
        return f"<job {self.name!r}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a job")

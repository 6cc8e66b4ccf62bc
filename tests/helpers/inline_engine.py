"""A plugin file: the engine ``inline`` has one worker, in the process of ``sgdec corpus``."""

from __future__ import annotations

from sgdec import hookimpl
from sgdec.corpus.engine import Done, Engine, Event, Job, Limits, Ready, Task
from sgdec.corpus.work import Worker


class Inline(Engine):
    def start(self, job: Job, workers: int, limits: Limits) -> None:
        self.worker = Worker(job, "1.1")
        self.told: list[Event] = [Ready("1.1", self.worker.hello)]

    def wanted(self) -> int:
        return 1 - len(self.told)

    def submit(self, task: Task) -> None:
        self.told.append(Done("1.1", task, self.worker.work(task, lambda lines: None)))

    def events(self, seconds: float) -> list[Event]:
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        """Nothing is left to stop."""


@hookimpl
def sgdec_engines() -> dict[str, type[Engine]]:
    return {"inline": Inline}

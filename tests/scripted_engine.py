"""An engine that only takes the steps that a test allows, and a scheduler with it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.serve.metrics import ServerMetrics
from transduce.serve.scheduler import ScheduledRequest, Scheduler
from transduce.translation.stages.search import Searches
from transduce.translation.translation import Translation

TIMEOUT = 30
BUDGET = 40
"""Token budget of the scripted engine: ten jobs of three tokens with one row each."""


class ScriptedEngine:
    """Outputs the source in reverse order after a few steps; waits for the test to allow each step."""

    name = "scripted"
    batch_tokens = BUDGET
    several_sessions = mixed_options = False

    def __init__(self, steps: int = 3) -> None:
        self.steps, self.sessions = steps, []
        self.allowed = threading.Semaphore(0)
        self.taken = threading.Semaphore(0)
        self.failing = False
        self.work: Callable[[], None] = lambda: None

    def takes(self, config: SearchConfig) -> bool:
        return True

    def start_session(self, config: SearchConfig) -> "ScriptedSession":
        allowed = 4 if self.several_sessions else 1  # one for each size of requests
        assert sum(session.busy for session in self.sessions) < allowed
        self.sessions.append(ScriptedSession(self, config))
        return self.sessions[-1]

    def run_steps(self, steps: int) -> None:
        """Allow this many steps and wait until they are taken."""
        for _ in range(steps):
            self.allowed.release()
            assert self.taken.acquire(timeout=TIMEOUT)

    def run_freely(self) -> None:
        """Allow all further steps."""
        self.allowed.release(100_000)


class ScriptedSession:
    def __init__(self, engine: ScriptedEngine, config: SearchConfig) -> None:
        self.engine, self.config = engine, config
        self.jobs: dict[int, Job] = {}
        self.age: dict[int, int] = {}
        self.added: list[list[int]] = []
        """Lengths of the jobs added at each step."""
        self.stepped: list[int] = []
        """The keys of the jobs of each step."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self.jobs |= dict(jobs)
        self.age |= {key: 0 for key, _ in jobs}
        self.added.append([len(job.tokens) for _, job in jobs])

    def drop(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.jobs.pop(key, None)

    @property
    def busy(self) -> bool:
        return bool(self.jobs)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        assert self.engine.allowed.acquire(timeout=TIMEOUT)
        if self.engine.failing:
            self.engine.taken.release()
            raise RuntimeError("the device has failed")
        self.stepped += self.jobs
        self.engine.work()
        done = []
        for key in list(self.jobs):
            self.age[key] += 1
            if self.age[key] == self.engine.steps:
                done.append((key, [Hypothesis(self.jobs.pop(key).tokens[::-1], -1.0, -1.0)]))
        self.engine.taken.release()
        return done


class ScriptedTranslator:
    """The part of a translator that the scheduler uses."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine

    def engine_for(self, config: SearchConfig) -> ScriptedEngine:
        return self.engine

    repairing_engine = engine_for

    def translation_searches(
        self, texts: list[list[Job]], found: list[list[list[Hypothesis]]], config: SearchConfig, *wanted: bool
    ) -> Searches[list[list[Translation]]]:
        yield from ()
        return [
            [Translation(" ".join(map(str, best[0].tokens)), -1.0, -1.0, [])]
            for hypotheses in found
            for best in hypotheses
        ]


class Client:
    """Collects the results that a request delivers."""

    def __init__(self) -> None:
        self.outputs: dict[int, str] = {}
        self.error: Exception | None = None
        self.changed = threading.Condition()

    def deliver(self, result: Any) -> None:
        with self.changed:
            if isinstance(result, Exception):
                self.error = result
            else:
                self.outputs |= {index: best[0].text for index, best in result}
            self.changed.notify()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT), "nothing was delivered"


class Setup:
    """A scheduler with a scripted engine."""

    def __init__(self, queue: int = 8, steps: int = 3) -> None:
        self.metrics = ServerMetrics()
        self.engine = ScriptedEngine(steps)
        self.translator: Any = ScriptedTranslator(self.engine)
        self.scheduler = Scheduler(queue, self.metrics)

    def submit(self, jobs: int, beam: int = 1, first: int = 10, **options: Any) -> tuple[ScheduledRequest, Client]:
        client = Client()
        config = SearchConfig(beam=beam, **options)
        sentences = [Job([first + n, 5, 6], []) for n in range(jobs)]
        request = ScheduledRequest(self.translator, config, sentences, (), client.deliver)
        with self.scheduler.reserve():
            self.scheduler.submit(request)
        return request, client

    def metric(self, name: str) -> float:
        lines = self.metrics.text().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

"""The scheduler and its queues, with an engine that only takes the steps that the test allows."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from transduce.engines.choose import pick_engine
from transduce.engines.engine import Job
from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.serve import scheduler
from transduce.serve.metrics import Metrics
from transduce.serve.scheduled_request import ScheduledRequest
from transduce.serve.scheduler import QueueFullError, Scheduler
from transduce.translator import Translation, Translator

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

    def translations(
        self, jobs: list[Job], hypotheses: list[list[Hypothesis]], config: SearchConfig, *wanted: bool
    ) -> list[list[Translation]]:
        return [[Translation(" ".join(map(str, best[0].tokens)), -1.0, -1.0, [])] for best in hypotheses]


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
        self.metrics = Metrics()
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


@pytest.fixture
def setup() -> Iterator[Setup]:
    setup = Setup()
    yield setup
    setup.engine.failing = False
    setup.engine.run_freely()
    setup.scheduler.close()


class TwoEngines(Setup):
    """An engine with long steps by the scheduler's clock, which has run for 500 s, and one with short steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        self.steps: list[float] = []
        """Seconds of each step."""
        monkeypatch.setattr(scheduler, "perf_counter", lambda: self.now)
        self.long, self.short = self.engine, ScriptedEngine()
        self.long.work, self.short.work = lambda: self.advance(100.0), lambda: self.advance(1.0)
        self.submit(1000)
        self.long.run_steps(5)
        self.translator = ScriptedTranslator(self.short)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.steps.append(seconds)

    def finish(self) -> list[float]:
        """Finish all requests; returns the steps taken since 500 s, from the first short one."""
        for engine in (self.short, self.long):
            engine.run_freely()
        self.scheduler.close()
        return self.steps[self.steps.index(1.0) :]


def test_short_steps_of_one_engine_do_not_wait_for_long_steps_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = TwoEngines(monkeypatch)
    setup.submit(30)  # three budgets of three steps each
    assert setup.finish()[:10] == [1.0] * 9 + [100.0]


def test_idle_time_of_an_engine_earns_no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = TwoEngines(monkeypatch)
    setup.submit(1000)
    assert setup.finish().index(100.0) <= 200  # otherwise all 300 short steps would come first


def test_outputs_are_delivered_to_their_own_request(setup: Setup) -> None:
    (_, one), (_, other) = setup.submit(3, first=10), setup.submit(2, first=20)
    setup.engine.run_freely()
    one.wait(lambda: len(one.outputs) == 3)
    other.wait(lambda: len(other.outputs) == 2)
    assert one.outputs == {0: "6 5 10", 1: "6 5 11", 2: "6 5 12"}
    assert other.outputs == {0: "6 5 20", 1: "6 5 21"}


def test_a_request_joins_a_running_session(setup: Setup) -> None:
    setup.submit(2)
    setup.engine.run_steps(1)
    _, late = setup.submit(1)
    setup.engine.run_steps(2)  # the first may have started before the request was submitted
    (session,) = setup.engine.sessions
    assert len(session.jobs) == 1  # the first two are finished, the third is running
    setup.engine.run_freely()
    late.wait(lambda: len(late.outputs) == 1)
    assert len(setup.engine.sessions) == 1


def test_the_running_jobs_fit_the_token_budget(setup: Setup) -> None:
    setup.submit(25)
    setup.engine.run_steps(1)
    (session,) = setup.engine.sessions
    assert len(session.jobs) == BUDGET // 4


def test_a_job_larger_than_the_budget_runs_alone(setup: Setup) -> None:
    _, client = setup.submit(2, beam=20)
    setup.engine.run_freely()
    client.wait(lambda: len(client.outputs) == 2)
    assert [added for session in setup.engine.sessions for added in session.added if added] == [[3], [3]]


def test_a_small_request_does_not_wait_for_a_large_one(setup: Setup) -> None:
    _, large = setup.submit(1000)
    setup.engine.run_steps(1)
    _, small = setup.submit(2)
    setup.engine.run_steps(2 + 3 + 3 + 1)  # the running jobs finish; then the small request gets every second place
    small.wait(lambda: len(small.outputs) == 2)
    assert len(large.outputs) < 50


def test_other_search_options_wait_for_at_most_one_budget(setup: Setup) -> None:
    setup.submit(1000)
    setup.engine.run_steps(1)
    _, other = setup.submit(2, beam=2)
    setup.engine.run_steps(2 + 3 + 1)
    other.wait(lambda: len(other.outputs) == 2)
    assert [session.config.beam for session in setup.engine.sessions[:2]] == [1, 2]
    setup.engine.run_steps(3)
    assert [session.config.beam for session in setup.engine.sessions[:3]] == [1, 2, 1]


class Fairness:
    """A scheduler with an engine of several sessions, whose steps take as long as they have jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.setup, self.now = Setup(queue=100), 0.0
        monkeypatch.setattr(scheduler, "perf_counter", lambda: self.now)
        self.engine = self.setup.engine
        self.engine.several_sessions, self.engine.batch_tokens = True, 32 * 12
        self.engine.work = self.advance

    def advance(self) -> None:
        self.now += max(len(session.jobs) for session in self.engine.sessions)

    def steps_of(self, client: Client) -> int:
        """Run until a request is finished; returns the number of steps."""
        steps = 0
        while not client.outputs:
            self.engine.run_steps(1)
            steps += 1
            self.setup.scheduler.waiting  # noqa: B018  # waits for the scheduler's lock: results are then delivered
        return steps

    def close(self) -> None:
        self.engine.run_freely()
        self.setup.scheduler.close()


@pytest.mark.parametrize("large", [[16] * 4, range(17, 57)])
def test_a_small_request_does_not_wait_for_sessions_of_large_ones(
    monkeypatch: pytest.MonkeyPatch, large: Sequence[int]
) -> None:
    fair = Fairness(monkeypatch)
    for beam in large:
        fair.setup.submit(60, beam=beam)
    fair.engine.run_steps(2)
    _, client = fair.setup.submit(1)
    alone = fair.engine.steps
    assert fair.steps_of(client) <= 2 * alone
    fair.close()


def test_the_cheapest_of_many_small_requests_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = Fairness(monkeypatch)
    for hundredths in range(50):
        fair.setup.submit(3, length_penalty=hundredths / 100)
    fair.engine.run_steps(1)
    _, client = fair.setup.submit(1, length_penalty=1.0)
    assert fair.steps_of(client) <= 4 * fair.engine.steps  # a session that is running, and one of the oldest request
    fair.close()


@pytest.mark.parametrize("steps_before", [0, 1, 5])
def test_a_dropped_request_costs_at_most_one_more_step(setup: Setup, steps_before: int) -> None:
    dropped, client = setup.submit(30)
    setup.engine.run_steps(steps_before)
    before = sum(len(session.stepped) for session in setup.engine.sessions)
    setup.scheduler.drop(dropped)
    _, other = setup.submit(1, first=99)
    setup.engine.run_freely()
    other.wait(lambda: len(other.outputs) == 1)
    after = sum(len(session.stepped) for session in setup.engine.sessions) - before
    assert after <= BUDGET // 4 + setup.engine.steps  # one step of a full session, and those of the other request
    assert len(client.outputs) <= 10 * (steps_before // setup.engine.steps)
    assert setup.metric("transduce_dropped_sentences_total") == 30 - len(client.outputs)


def test_dropping_a_finished_or_unknown_request_has_no_effect(setup: Setup) -> None:
    request, client = setup.submit(1)
    setup.engine.run_freely()
    client.wait(lambda: len(client.outputs) == 1)
    setup.scheduler.drop(request)
    setup.scheduler.drop(ScheduledRequest(setup.translator, SearchConfig(), [Job([1], [])], (), client.deliver))
    assert setup.metric("transduce_dropped_sentences_total") == 0
    _, after = setup.submit(1)
    after.wait(lambda: len(after.outputs) == 1)


def test_a_full_queue_rejects_requests_until_there_is_room(setup: Setup) -> None:
    setup.submit(10)
    setup.engine.run_steps(1)  # all jobs have left the queue
    for _ in range(8):
        setup.submit(1)
    assert setup.scheduler.full
    with pytest.raises(QueueFullError):
        setup.submit(1)
    setup.engine.run_steps(3)
    _, late = setup.submit(1)
    setup.engine.run_freely()
    late.wait(lambda: len(late.outputs) == 1)


def test_requests_in_preparation_count_as_waiting(setup: Setup) -> None:
    reservations = [setup.scheduler.reserve() for _ in range(8)]
    for reservation in reservations:
        reservation.__enter__()
    with pytest.raises(QueueFullError):
        setup.submit(1)
    reservations[0].__exit__(None, None, None)
    setup.submit(1)
    for reservation in reservations[1:]:
        reservation.__exit__(None, None, None)


def test_a_failing_session_only_fails_its_own_requests(setup: Setup) -> None:
    _, failed = setup.submit(30)
    setup.engine.run_steps(1)
    setup.engine.failing = True
    setup.engine.run_steps(1)
    failed.wait(lambda: failed.error is not None)
    setup.engine.failing = False
    _, later = setup.submit(2)
    setup.engine.run_freely()
    later.wait(lambda: len(later.outputs) == 2)
    assert isinstance(failed.error, RuntimeError)
    assert failed.outputs == {}
    assert setup.scheduler.alive


def test_close_finishes_all_submitted_requests() -> None:
    setup = Setup()
    clients = [setup.submit(7, beam=1 + n % 3)[1] for n in range(6)]
    setup.engine.run_freely()
    setup.scheduler.close()
    assert [len(client.outputs) for client in clients] == [7] * 6
    assert not setup.scheduler.alive


# With a real model


@pytest.fixture(scope="module")
def translator(untrained_model: Any, toy_tokenizer: Any) -> Translator:
    return Translator(untrained_model, toy_tokenizer, engine=PlainEngine(untrained_model, batch_tokens=64))


def submit(scheduler: Scheduler, translator: Translator, texts: list[str], **options: Any) -> Client:
    client = Client()
    jobs = [job for text in texts for job in translator.parts(text)]
    config = SearchConfig(max_extra=2, **options)
    with scheduler.reserve():
        scheduler.submit(ScheduledRequest(translator, config, jobs, (), client.deliver))
    return client


@pytest.mark.parametrize("name", ["plain", "native"])
def test_batched_requests_have_the_same_outputs_as_single_ones(
    untrained_model: Any, toy_tokenizer: Any, toy_pairs: Any, name: str
) -> None:
    try:
        engine = pick_engine(name, untrained_model, threads=2)
    except ConfigError as error:
        pytest.skip(str(error))
    translator = Translator(untrained_model, toy_tokenizer, engine=engine)
    sources = [source for source, _ in toy_pairs[:24]]
    expected = {
        beam: [best[0].text for best in translator.hypotheses(sources, beam=beam, max_extra=2)] for beam in (1, 2, 4)
    }
    scheduler = Scheduler(100, Metrics())
    clients = [
        (beam, start, submit(scheduler, translator, sources[start : start + 2], beam=beam))
        for start in range(0, 24, 2)
        for beam in (1, 2, 4)
    ]
    scheduler.close()
    for beam, start, client in clients:
        assert [client.outputs[n] for n in range(2)] == expected[beam][start : start + 2]


def test_samples_depend_on_the_seed_and_not_on_other_requests(translator: Translator, toy_pairs: Any) -> None:
    texts = [source for source, _ in toy_pairs[:12]]
    samples = []
    for others in (0, 5):
        scheduler = Scheduler(100, Metrics())
        for n in range(others):
            submit(scheduler, translator, texts, sample=True, seed=n)
            submit(scheduler, translator, texts[n:], beam=2)
        clients = [submit(scheduler, translator, texts, sample=True, seed=seed) for seed in (7, 7, 8)]
        scheduler.close()
        assert clients[0].outputs == clients[1].outputs != clients[2].outputs
        samples.append(clients[0].outputs)
    assert samples[0] == samples[1]

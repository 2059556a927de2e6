"""The queue and its thread, on an engine whose every step the test allows."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from transduce.engines.choose import pick_engine
from transduce.engines.engine import Job
from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.serve import scheduler
from transduce.serve.lane import Lane
from transduce.serve.metrics import Metrics
from transduce.serve.order import Order
from transduce.serve.scheduler import QueueFullError, Scheduler
from transduce.translator import Translation, Translator

PATIENCE = 30
BUDGET = 40
"""Of the scripted engine: ten jobs of three tokens with one row each."""


class ScriptedEngine:
    """Says the source backwards after a few steps; does no step that the test has not allowed."""

    name = "scripted"
    batch_tokens = BUDGET

    def __init__(self, steps: int = 3) -> None:
        self.steps, self.sessions = steps, []
        self.allowed = threading.Semaphore(0)
        self.taken = threading.Semaphore(0)
        self.fails = False
        self.work: Callable[[], None] = lambda: None

    def takes(self, config: SearchConfig) -> bool:
        return True

    def begin(self, config: SearchConfig) -> "ScriptedSession":
        assert not any(session.busy for session in self.sessions), "one session at a time"
        self.sessions.append(ScriptedSession(self, config))
        return self.sessions[-1]

    def let(self, steps: int) -> None:
        """Allow steps and wait until they are taken."""
        for _ in range(steps):
            self.allowed.release()
            assert self.taken.acquire(timeout=PATIENCE)

    def run_on(self) -> None:
        """Allow everything from now on."""
        self.allowed.release(100_000)


class ScriptedSession:
    def __init__(self, engine: ScriptedEngine, config: SearchConfig) -> None:
        self.engine, self.config = engine, config
        self.jobs: dict[int, Job] = {}
        self.age: dict[int, int] = {}
        self.joined: list[list[int]] = []
        """Lengths of what came in at each step."""
        self.cost: list[int] = []
        """Every job that was part of a step, once for each."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self.jobs |= dict(jobs)
        self.age |= {key: 0 for key, _ in jobs}
        self.joined.append([len(job.tokens) for _, job in jobs])

    def drop(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.jobs.pop(key, None)

    @property
    def busy(self) -> bool:
        return bool(self.jobs)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        assert self.engine.allowed.acquire(timeout=PATIENCE)
        if self.engine.fails:
            self.engine.taken.release()
            raise RuntimeError("the device is gone")
        self.cost += self.jobs
        self.engine.work()
        done = []
        for key in list(self.jobs):
            self.age[key] += 1
            if self.age[key] == self.engine.steps:
                done.append((key, [Hypothesis(self.jobs.pop(key).tokens[::-1], -1.0, -1.0)]))
        self.engine.taken.release()
        return done


class ScriptedTranslator:
    """As much of a translator as the scheduler needs."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine

    def engine_for(self, config: SearchConfig) -> ScriptedEngine:
        return self.engine

    def translations(self, jobs: list[Job], found: list[list[Hypothesis]], align: bool) -> list[list[Translation]]:
        return [[Translation(" ".join(map(str, best[0].tokens)), -1.0, -1.0, [])] for best in found]


class Client:
    """What an order delivers."""

    def __init__(self) -> None:
        self.outputs: dict[int, str] = {}
        self.error: Exception | None = None
        self.changed = threading.Condition()

    def deliver(self, done: Any) -> None:
        with self.changed:
            if isinstance(done, Exception):
                self.error = done
            else:
                self.outputs |= {number: best[0].text for number, best in done}
            self.changed.notify()

    def wait(self, until: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(until, PATIENCE), "nothing was delivered"


class Desk:
    """A scheduler with a scripted engine."""

    def __init__(self, queue: int = 8, steps: int = 3) -> None:
        self.metrics = Metrics()
        self.engine = ScriptedEngine(steps)
        self.translator: Any = ScriptedTranslator(self.engine)
        self.scheduler = Scheduler(queue, self.metrics)

    def order(self, jobs: int, beam: int = 1, first: int = 10, **options: Any) -> tuple[Order, Client]:
        client = Client()
        work = [Job([first + n, 5, 6], []) for n in range(jobs)]
        config = SearchConfig(beam=beam, **options)
        order = Order(self.translator, config, work, False, client.deliver)
        with self.scheduler.place_in_queue():
            self.scheduler.submit(order)
        return order, client

    def count(self, name: str) -> float:
        lines = self.metrics.text().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.engine.fails = False
    desk.engine.run_on()
    desk.scheduler.close()


@pytest.mark.parametrize(
    ("name", "batch_tokens", "budget"),
    [("plain", 4096, 512), ("plain", 64, 64), ("native", 8192, 8192), ("gpu", None, 131_072), ("gpu", 4000, 4000)],
)
def test_a_lane_takes_what_its_engine_works_on_at_once(name: str, batch_tokens: int | None, budget: int) -> None:
    """Of `plain` less: its step is a whole batch."""
    engine: Any = SimpleNamespace(name=name, batch_tokens=batch_tokens, begin=lambda _: None)
    lane = Lane(engine)
    jobs = [Job([5, 6, 7], []) for _ in range(100_000)]
    lane.queue(Order(Any, SearchConfig(beam=1), jobs, False, lambda _: None))
    assert len(lane.next_turn().joining) == budget // 4


class TwoEngines(Desk):
    """One whose steps take long by the scheduler's clock, at work since 500 s, and one whose steps are short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        self.steps: list[float] = []
        """Seconds of each."""
        monkeypatch.setattr(scheduler, "perf_counter", lambda: self.now)
        self.long, self.short = self.engine, ScriptedEngine()
        self.long.work, self.short.work = lambda: self.pass_time(100.0), lambda: self.pass_time(1.0)
        self.order(1000)
        self.long.let(5)
        self.translator = ScriptedTranslator(self.short)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.steps.append(seconds)

    def finish(self) -> list[float]:
        """Let everything run to its end; the steps taken since 500 s, from the first short one."""
        for engine in (self.short, self.long):
            engine.run_on()
        self.scheduler.close()
        return self.steps[self.steps.index(1.0) :]


def test_short_steps_of_one_engine_do_not_wait_for_long_ones_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = TwoEngines(monkeypatch)
    desk.order(30)  # three budgets of three steps each
    assert desk.finish()[:10] == [1.0] * 9 + [100.0]


def test_an_engine_has_no_credit_for_time_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = TwoEngines(monkeypatch)
    desk.order(1000)
    assert desk.finish().index(100.0) <= 200  # all 300 short ones would come first


def test_outputs_come_back_to_the_order_they_belong_to(desk: Desk) -> None:
    (_, one), (_, other) = desk.order(3, first=10), desk.order(2, first=20)
    desk.engine.run_on()
    one.wait(lambda: len(one.outputs) == 3)
    other.wait(lambda: len(other.outputs) == 2)
    assert one.outputs == {0: "6 5 10", 1: "6 5 11", 2: "6 5 12"}
    assert other.outputs == {0: "6 5 20", 1: "6 5 21"}


def test_a_request_joins_what_is_running(desk: Desk) -> None:
    desk.order(2)
    desk.engine.let(1)
    _, late = desk.order(1)
    desk.engine.let(2)  # the first may have begun before the order came
    (session,) = desk.engine.sessions
    assert len(session.jobs) == 1  # the first two are done, the third goes on
    desk.engine.run_on()
    late.wait(lambda: len(late.outputs) == 1)
    assert len(desk.engine.sessions) == 1


def test_no_more_is_on_the_device_than_the_budget(desk: Desk) -> None:
    desk.order(25)
    desk.engine.let(1)
    (session,) = desk.engine.sessions
    assert len(session.jobs) == BUDGET // 4


def test_a_job_larger_than_the_budget_runs_alone(desk: Desk) -> None:
    _, client = desk.order(2, beam=20)
    desk.engine.run_on()
    client.wait(lambda: len(client.outputs) == 2)
    assert [joined for session in desk.engine.sessions for joined in session.joined if joined] == [[3], [3]]


def test_a_small_request_does_not_wait_for_a_large_one(desk: Desk) -> None:
    _, large = desk.order(1000)
    desk.engine.let(1)
    _, small = desk.order(2)
    desk.engine.let(2 + 3 + 3 + 1)  # what is running ends; then the small one has every second place
    small.wait(lambda: len(small.outputs) == 2)
    assert len(large.outputs) < 50


def test_another_way_of_searching_waits_for_one_budget_at_most(desk: Desk) -> None:
    desk.order(1000)
    desk.engine.let(1)
    _, other = desk.order(2, beam=2)
    desk.engine.let(2 + 3 + 1)
    other.wait(lambda: len(other.outputs) == 2)
    assert [session.config.beam for session in desk.engine.sessions[:2]] == [1, 2]
    desk.engine.let(3)
    assert [session.config.beam for session in desk.engine.sessions[:3]] == [1, 2, 1]


@pytest.mark.parametrize("steps_before", [0, 1, 5])
def test_a_dropped_request_costs_at_most_one_more_step(desk: Desk, steps_before: int) -> None:
    gone, client = desk.order(30)
    desk.engine.let(steps_before)
    paid = sum(len(session.cost) for session in desk.engine.sessions)
    desk.scheduler.drop(gone)
    _, other = desk.order(1, first=99)
    desk.engine.run_on()
    other.wait(lambda: len(other.outputs) == 1)
    after = sum(len(session.cost) for session in desk.engine.sessions) - paid
    assert after <= BUDGET // 4 + desk.engine.steps  # one step of a full session, and the other's own
    assert len(client.outputs) <= 10 * (steps_before // desk.engine.steps)
    assert desk.count("transduce_dropped_sentences_total") == 30 - len(client.outputs)


def test_dropping_what_is_done_or_unknown_does_nothing(desk: Desk) -> None:
    order, client = desk.order(1)
    desk.engine.run_on()
    client.wait(lambda: len(client.outputs) == 1)
    desk.scheduler.drop(order)
    desk.scheduler.drop(Order(desk.translator, SearchConfig(), [Job([1], [])], False, client.deliver))
    assert desk.count("transduce_dropped_sentences_total") == 0
    _, after = desk.order(1)
    after.wait(lambda: len(after.outputs) == 1)


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(desk: Desk) -> None:
    desk.order(10)
    desk.engine.let(1)  # on the device now, no longer in the queue
    for _ in range(8):
        desk.order(1)
    assert desk.scheduler.full
    with pytest.raises(QueueFullError):
        desk.order(1)
    desk.engine.let(3)
    _, late = desk.order(1)
    desk.engine.run_on()
    late.wait(lambda: len(late.outputs) == 1)


def test_requests_that_are_being_prepared_have_their_place(desk: Desk) -> None:
    places = [desk.scheduler.place_in_queue() for _ in range(8)]
    for place in places:
        place.__enter__()
    with pytest.raises(QueueFullError):
        desk.order(1)
    places[0].__exit__(None, None, None)
    desk.order(1)
    for place in places[1:]:
        place.__exit__(None, None, None)


def test_a_session_that_fails_takes_only_its_own_requests_along(desk: Desk) -> None:
    _, unlucky = desk.order(30)
    desk.engine.let(1)
    desk.engine.fails = True
    desk.engine.let(1)
    unlucky.wait(lambda: unlucky.error is not None)
    desk.engine.fails = False
    _, lucky = desk.order(2)
    desk.engine.run_on()
    lucky.wait(lambda: len(lucky.outputs) == 2)
    assert isinstance(unlucky.error, RuntimeError)
    assert unlucky.outputs == {}
    assert desk.scheduler.alive


def test_closing_finishes_what_was_accepted() -> None:
    desk = Desk()
    clients = [desk.order(7, beam=1 + n % 3)[1] for n in range(6)]
    desk.engine.run_on()
    desk.scheduler.close()
    assert [len(client.outputs) for client in clients] == [7] * 6
    assert not desk.scheduler.alive


# With a real model


@pytest.fixture(scope="module")
def translator(untrained_model: Any, toy_tokenizer: Any) -> Translator:
    return Translator(untrained_model, toy_tokenizer, engine=PlainEngine(untrained_model, batch_tokens=64))


def ask(scheduler: Scheduler, translator: Translator, texts: list[str], **options: Any) -> Client:
    client = Client()
    jobs = [job for text in texts for job in translator.jobs(text)]
    with scheduler.place_in_queue():
        scheduler.submit(Order(translator, SearchConfig(max_extra=2, **options), jobs, False, client.deliver))
    return client


@pytest.mark.parametrize("name", ["plain", "native"])
def test_joined_requests_get_what_they_would_get_alone(
    untrained_model: Any, toy_tokenizer: Any, toy_pairs: Any, name: str
) -> None:
    try:
        engine = pick_engine(name, untrained_model, threads=2)
    except ConfigError as error:
        pytest.skip(str(error))
    translator = Translator(untrained_model, toy_tokenizer, engine=engine)
    sources = [source for source, _ in toy_pairs[:24]]
    alone = {
        beam: [best[0].text for best in translator.hypotheses(sources, beam=beam, max_extra=2)] for beam in (1, 2, 4)
    }
    scheduler = Scheduler(100, Metrics())
    clients = [
        (beam, start, ask(scheduler, translator, sources[start : start + 2], beam=beam))
        for start in range(0, 24, 2)
        for beam in (1, 2, 4)
    ]
    scheduler.close()
    for beam, start, client in clients:
        assert [client.outputs[n] for n in range(2)] == alone[beam][start : start + 2]


def test_what_is_drawn_depends_on_the_seed_and_not_on_other_requests(translator: Translator, toy_pairs: Any) -> None:
    texts = [source for source, _ in toy_pairs[:12]]
    drawn = []
    for others in (0, 5):
        scheduler = Scheduler(100, Metrics())
        for n in range(others):
            ask(scheduler, translator, texts, sample=True, seed=n)
            ask(scheduler, translator, texts[n:], beam=2)
        clients = [ask(scheduler, translator, texts, sample=True, seed=seed) for seed in (7, 7, 8)]
        scheduler.close()
        assert clients[0].outputs == clients[1].outputs != clients[2].outputs
        drawn.append(clients[0].outputs)
    assert drawn[0] == drawn[1]

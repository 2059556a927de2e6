"""The scheduler and its queues, with an engine that only takes the steps that the test allows."""

import math
from collections.abc import Iterator, Sequence

import pytest
from scripted_engine import BUDGET, Client, ScriptedEngine, ScriptedTranslator, Setup

from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.serve import scheduler
from transduce.serve.limits import QueueFullError
from transduce.serve.scheduler import ScheduledRequest


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
    assert setup.scheduler.step_seconds < 60


def test_close_finishes_all_submitted_requests() -> None:
    setup = Setup()
    clients = [setup.submit(7, beam=1 + n % 3)[1] for n in range(6)]
    setup.engine.run_freely()
    setup.scheduler.close()
    assert [len(client.outputs) for client in clients] == [7] * 6
    assert setup.scheduler.step_seconds == math.inf

"""One engine's queue and session.

A session takes one job of each waiting order in turn, whenever the token budget has room. Orders that want another way
of searching have the next session: while they wait, a session takes no more than its budget once, then it runs out.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from transduce.engines.engine import Engine, Job, Session
from transduce.search.decoder import Hypothesis
from transduce.serve.order import Found, Order

_ROOM = 131_072
"""Token budget, source tokens times the rows of their sentences, of an engine that takes as many as fit."""
_PLAIN_ROOM = 512
"""At most, for `plain`: its step is a whole batch, for whose end all other lanes wait."""


@dataclass(frozen=True)
class Turn:
    """What a lane does next; needs no lock."""

    session: Session
    joining: Sequence[tuple[int, Job]]
    leaving: Sequence[int]

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Work a little; the jobs that are done now."""
        if self.joining:
            self.session.add(sorted(self.joining, key=lambda item: -len(item[1].tokens)))
        if self.leaving:
            self.session.drop(self.leaving)
        return self.session.step() if self.session.busy else []


class Lane:
    """Every call needs the scheduler's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._room = engine.batch_tokens or _ROOM
        if engine.name == "plain":
            self._room = min(self._room, _PLAIN_ROOM)
        self.seconds = 0.0
        """Of the scheduler's thread that it has had: whoever had least is next."""
        self._groups: dict[Hashable, deque[Order]] = {}
        """Orders with jobs in the queue; the group whose turn is next comes first."""
        self._group: Hashable = None
        self._session: Session | None = None
        self._taken = 0
        """Of the budget, by the session since it began."""
        self._load = 0
        """Of the budget, by what is running."""
        self._running: dict[int, tuple[Order, int]] = {}
        """Key to order and number of the job."""
        self._leaving: list[int] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._groups or self._session)

    @property
    def waiting(self) -> int:
        """Orders with jobs in the queue."""
        return sum(map(len, self._groups.values()))

    @property
    def running(self) -> int:
        """Jobs in the session."""
        return len(self._running)

    def queue(self, order: Order) -> None:
        """Let an order wait for its turn."""
        self._groups.setdefault(order.group, deque()).append(order)

    def forget(self, order: Order) -> int:
        """Take an order out of the queue, and out of the session at the next turn; how many jobs were left of it."""
        left = self._unqueue(order)
        for key in [key for key, (owner, _) in self._running.items() if owner is order]:
            self._end(key)
            self._leaving.append(key)
            left += 1
        return left

    def next_turn(self) -> Turn:
        """Fill the session from its group, one job of each order in turn; begin one where none is."""
        if self._session is None:
            self._group, waiting = next(iter(self._groups.items()))
            self._session, self._taken = self._engine.begin(waiting[0].config), 0
        orders = self._groups.pop(self._group, deque())
        joining: list[tuple[int, Job]] = []
        while orders and not (self._groups and self._taken >= self._room):
            order, number = orders[0], orders[0].taken
            job = order.jobs[number]
            cost = order.cost(job)
            if self._running and self._load + cost > self._room:
                break
            self._running[order.first_key + number] = (order, number)
            joining.append((order.first_key + number, job))
            self._load += cost
            self._taken += cost
            order.taken += 1
            orders.popleft()
            if order.taken < len(order.jobs):
                orders.append(order)
        if orders:
            self._groups[self._group] = orders  # behind the others
        leaving, self._leaving = self._leaving, []
        return Turn(self._session, joining, leaving)

    def finish(self, found: list[tuple[int, list[Hypothesis]]]) -> dict[Order, Found]:
        """What is done now, by order; what was forgotten meanwhile is left out."""
        done: dict[Order, Found] = {}
        for key, hypotheses in found:
            if key in self._running:
                order, number = self._end(key)
                done.setdefault(order, []).append((number, hypotheses))
        if self._session and not self._session.busy:
            self._close()
        return done

    def fail(self) -> list[Order]:
        """Give up the session; the orders that were in it."""
        orders = list({id(order): order for order, _ in self._running.values()}.values())
        for order in orders:
            self._unqueue(order)
        with suppress(Exception):  # it has failed already
            if self._session:
                self._session.drop(list(self._running))
        self._running.clear()
        self._load = 0
        self._close()
        return orders

    def _unqueue(self, order: Order) -> int:
        orders = self._groups.get(order.group)
        if orders is None or order not in orders:
            return 0
        orders.remove(order)
        if not orders:
            del self._groups[order.group]
        return len(order.jobs) - order.taken

    def _end(self, key: int) -> tuple[Order, int]:
        order, number = self._running.pop(key)
        self._load -= order.cost(order.jobs[number])
        return order, number

    def _close(self) -> None:
        self._session = None
        self._leaving.clear()  # keys mean nothing to the next session

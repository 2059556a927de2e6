"""The queue and the one thread that translates: sentences of many requests share the device.

Every engine has a lane (`lane.py`), whose session takes sentences in from the requests that wait. Lanes have equal
shares of the thread's time: a step of one may take as long as a hundred of another's.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from transduce.engines.engine import Engine
from transduce.serve.lane import Lane, Turn
from transduce.serve.metrics import Metrics
from transduce.serve.order import Found, Order
from transduce.serve.refusals import place

_log = logging.getLogger(__name__)


class QueueFullError(Exception):
    """As many requests wait as may."""


class Scheduler:
    """Takes orders from any thread; delivers from its own."""

    def __init__(self, queue: int, metrics: Metrics) -> None:
        self._queue, self._metrics = queue, metrics
        self._changed = threading.Condition()
        self._lanes: dict[Engine, Lane] = {}
        self._share = 0.0
        """Seconds that the lane now at work had had before."""
        self._reserved = 0
        """Places of orders that are being prepared."""
        self._keys = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="transduce-scheduler", daemon=True)
        metrics.watch(lambda: self.waiting, lambda: self.running)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Orders in the queue, or being prepared for it."""
        with self._changed:
            return self._reserved + sum(lane.waiting for lane in self._lanes.values())

    @property
    def running(self) -> int:
        """Jobs on the device."""
        with self._changed:
            return sum(lane.running for lane in self._lanes.values())

    @property
    def full(self) -> bool:
        """Whether a place in the queue would be refused now."""
        return self.waiting >= self._queue

    @contextmanager
    def place_in_queue(self) -> Iterator[None]:
        """Within, an order may be prepared and submitted; refused where the queue is full."""
        with self._changed:
            if self.full:
                raise QueueFullError
            self._reserved += 1
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= 1

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def submit(self, order: Order) -> None:
        """Queue an order that has its place."""
        engine = order.translator.engine_for(order.config)
        with self._changed:
            assert not self._closing
            if not order.config.sample:  # what sampling draws depends on the key, which shall not depend on others
                order.first_key = self._keys
                self._keys += len(order.jobs)
            lane = self._lanes.setdefault(engine, Lane(engine))
            if not lane.busy:
                lane.seconds = max(lane.seconds, self._share)  # time in which it had nothing to do is no credit
            lane.queue(order)
            self._changed.notify()

    def drop(self, order: Order) -> None:
        """Spend nothing more on an order; one that is done, or unknown, is passed over."""
        with self._changed:
            for lane in self._lanes.values():
                self._metrics.dropped.inc(lane.forget(order))

    def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or any(lane.busy for lane in self._lanes.values()))
                busy = [lane for lane in self._lanes.values() if lane.busy]
                if not busy:
                    return
                lane = min(busy, key=lambda lane: lane.seconds)
                self._share = lane.seconds
                turn = lane.next_turn()
            self._metrics.steps.inc()
            self._step(lane, turn)

    def _step(self, lane: Lane, turn: Turn) -> None:
        began = perf_counter()
        try:
            found = turn.step()
        except Exception as error:
            _log.error("a session failed: %s", place(error))
            with self._changed:
                failed = lane.fail()
            for order in failed:
                order.deliver(error)
            return
        with self._changed:
            lane.seconds += perf_counter() - began
            done = lane.finish(found)
        for order, outputs in done.items():
            self._deliver(order, outputs)

    def _deliver(self, order: Order, found: Found) -> None:
        try:
            done = order.translated(found)
        except Exception as error:
            _log.error("outputs could not be read: %s", place(error))
            order.deliver(error)
            return
        self._metrics.translated(
            sentences=len(done),
            source_tokens=sum(len(order.jobs[number].tokens) for number, _ in done),
            output_tokens=sum(len(best[0].tokens) for _, best in done if best),
        )
        order.deliver(done)

"""Large texts are split one request at a time, and small ones do not wait for them."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from transduce.search.options import SearchConfig
from transduce.serve.limits import Limits
from transduce.serve.metrics import ServerMetrics
from transduce.serve.scheduler import Scheduler
from transduce.serve.translation_service import TranslationService
from transduce.serve.workers import Workers


def test_large_texts_are_split_one_at_a_time() -> None:
    lock, gate, running, together = threading.Lock(), threading.Event(), 0, []

    def parts(line: str, *_: Any, **__: Any) -> list[Any]:
        nonlocal running
        if line != "small":
            with lock:
                running += 1
                together.append(running)
            gate.wait(600)
            with lock:
                running -= 1
        return []

    async def requests() -> None:
        service = TranslationService(Scheduler(10, ServerMetrics()), Limits(), Workers(10, 600))
        any_model = SimpleNamespace(longest=None)
        model: Any = SimpleNamespace(
            translator=SimpleNamespace(
                config=SearchConfig(), segments=parts, max_source_length=9, any_model=any_model, repairing_engine=print
            )
        )
        large = [asyncio.create_task(service.accept(model, ["x" * 5_000])) for _ in range(4)]
        await asyncio.sleep(0)  # they start first
        await service.accept(model, ["small"])
        gate.set()
        await asyncio.gather(*large)
        service.scheduler.close()

    asyncio.run(requests())
    assert together == [1] * 4

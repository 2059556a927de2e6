"""Large texts are split one request at a time, and small ones do not wait for them."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from transduce.serve import translation_service
from transduce.serve.limits import Limits
from transduce.serve.scheduler import Scheduler
from transduce.serve.served_models import ServedModel
from transduce.serve.translation_service import TranslationService


def test_large_texts_are_split_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, gate, running = threading.Lock(), threading.Event(), 0
    together = []

    def split(_translator: Any, texts: Sequence[str]) -> str:
        nonlocal running
        if texts == ["small"]:
            return "small"
        with lock:
            running += 1
            together.append(running)
        gate.wait(600)
        with lock:
            running -= 1
        return "large"

    async def requests() -> list[Any]:
        service = TranslationService(cast(Scheduler, None), Limits())
        model = cast(ServedModel, type("Model", (), {"translator": None}))
        large = [asyncio.create_task(service._split(model, ["x" * 5_000])) for _ in range(4)]
        await asyncio.sleep(0)  # they start first
        small = await service._split(model, ["small"])
        gate.set()
        return [small, *await asyncio.gather(*large)]

    monkeypatch.setattr(translation_service, "SplitTexts", split)
    assert asyncio.run(requests()) == ["small", *["large"] * 4]
    assert together == [1] * 4

"""What every engine shares."""

import weakref

import pytest
import torch

from transduce.data.batch import Stream
from transduce.fast.choose import pick_engine
from transduce.models.encoder_decoder import DecoderState, EncoderDecoder
from transduce.search.engine import Job, output_limit, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine


def test_an_output_may_be_longer_than_its_input_by_max_extra() -> None:
    config = SearchConfig(max_extra=5)
    assert output_limit(Job([4, 5, 6], []), config, None) == 3 + 5
    assert output_limit(Job([4, 5, 6], []), config, 7) == 7
    assert output_limit(Job([4, 5, 6], []), SearchConfig(max_length=2), 7) == 2


def test_a_prefix_beyond_the_limit_raises_the_limit() -> None:
    assert output_limit(Job([4], list(range(4, 14))), SearchConfig(max_extra=0), 5) == 10


def test_a_batch_that_does_not_fit_is_split(untrained_model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job([5 + i, 6, 7], []) for i in range(7)]
    config = SearchConfig(beam=2, max_extra=2)
    expected = search_all(PlainEngine(untrained_model), jobs, config)
    sizes: list[int] = []
    attempts: list[weakref.ref[torch.Tensor]] = []
    start = EncoderDecoder.start

    def limited(self: EncoderDecoder, source: Stream) -> DecoderState:
        assert not any(attempt() is not None for attempt in attempts), "memory of an attempt that failed is not free"
        sizes.append(len(source.segments))
        if len(source.segments) > 2:
            attempts.append(weakref.ref(source.ids_N))
            raise torch.OutOfMemoryError("injected")
        return start(self, source)

    monkeypatch.setattr(EncoderDecoder, "start", limited)
    found = search_all(PlainEngine(untrained_model), jobs, config)
    assert [best[0].tokens for best in found] == [best[0].tokens for best in expected]
    assert max(sizes) == 7  # it was tried


@pytest.mark.parametrize("name", ["plain", "auto"])
def test_threads_are_heeded_by_every_engine(untrained_model: EncoderDecoder, name: str) -> None:
    before = torch.get_num_threads()
    try:
        pick_engine(name, untrained_model, threads=before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)

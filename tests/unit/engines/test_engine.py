"""What every engine shares."""

from transduce.engines.engine import Job, output_limit
from transduce.search.options import SearchConfig


def test_an_output_may_be_longer_than_its_input_by_max_extra() -> None:
    config = SearchConfig(max_extra=5)
    assert output_limit(Job([4, 5, 6], []), config, None) == 3 + 1 + 5
    assert output_limit(Job([4, 5, 6], []), config, 7) == 7


def test_a_prefix_beyond_the_limit_raises_the_limit() -> None:
    assert output_limit(Job([4], list(range(4, 14))), SearchConfig(max_extra=0), 5) == 10

"""Table 1 and section 3.2.1: what is counted agrees with formulas; no test depends on measured times."""

import math

import pytest
import torch

from transduce.paper.scores import measure_scores
from transduce.paper.table1 import KINDS, dependence, layers_to_reach, measure_table1, path_lengths

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def section() -> object:
    return measure_table1(CPU, lengths=(16, 32), budget=0.0)


def test_every_counted_claim_of_table_1_is_confirmed(section: object) -> None:
    counted = section.claims[:-1]  # the last one is measured
    assert [claim.verdict for claim in counted] == ["confirmed"] * 13
    assert section.claims[-1].claim == "Self-attention is faster than recurrence if n < d"
    assert {"O(n² · d)", "O(n · d²)", "O(k · n · d²)", "O(r · n · d)"} <= {claim.paper for claim in counted}


def test_times_are_measured_for_every_kind_and_length(section: object) -> None:
    times = section.charts[0].lines
    assert times.keys() == {kind.name for kind in KINDS}
    for points in times.values():
        assert [n for n, _ in points] == [16, 32]
        assert all(seconds > 0 for _, seconds in points)


def test_path_lengths_are_their_formulas() -> None:
    paths = path_lengths()
    for n in (16, 32, 64):
        assert [lengths[n] for lengths in paths.values()] == [
            1,
            n - 1,
            n - 1,  # a kernel of width 3 sees one position on either side
            math.ceil(math.log(n, 3)),
            math.ceil((n - 1) / 4),  # a neighbourhood of 9 has four positions on either side
        ]


def test_dependence_is_that_of_the_layer() -> None:
    causal = dependence(lambda x: x.cumsum(0), 5)
    assert causal.equal(torch.ones(5, 5, dtype=torch.bool).tril())
    (attention,) = (kind for kind in KINDS if kind.name == "self-attention")
    assert dependence(attention.make(4, 0, CPU), 64).all()
    shift = dependence(lambda x: x.roll(1, 0) + x, 6)
    assert layers_to_reach([shift.tril()], 6) == 5


def test_the_claims_about_scores_that_do_not_depend_on_speed_are_confirmed() -> None:
    section = measure_scores(CPU, budget=0.0)
    verdicts = {claim.claim.partition(",")[0]: claim.verdict for claim in section.claims}
    assert verdicts["Dot-product attention is more space-efficient"] == "confirmed"
    assert verdicts["The dot product of d_k independent components has variance d_k"] == "confirmed"
    assert verdicts["For large d_k"] == "confirmed"
    widths = [int(row[0]) for row in section.tables[1].rows]
    for width, (_, scaled, unscaled, *_) in zip(widths, section.tables[1].rows, strict=True):
        assert float(scaled) == pytest.approx(1, abs=0.2)
        assert float(unscaled) == pytest.approx(width, rel=0.2)

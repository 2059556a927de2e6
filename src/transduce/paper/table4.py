"""Table 4: English constituency parsing."""

from transduce.paper.printed import TABLE4
from transduce.paper.section import Claim, Section, Table


def table4_section() -> Section:
    """The paper's figures; its test data, the Wall Street Journal, cannot be had freely."""
    return Section(
        title="Table 4: English constituency parsing",
        measured_on="not measured",
        claims=[
            Claim(
                "The Transformer generalizes to constituency parsing",
                "91.3 F1 (WSJ only), 92.7 (semi-supervised)",
                "WSJ section 23 is licensed and not part of any public corpus",
                "not checked",
            )
        ],
        tables=[
            Table("The paper's table", ["parser", "training", "F1 on WSJ 23"], [[*map(str, row)] for row in TABLE4])
        ],
        notes=[],
    )

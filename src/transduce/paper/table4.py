"""Table 4: English constituency parsing."""

from collections.abc import Iterator
from typing import Any

from transduce.paper.section import Claim, Results, Section, Table

PRINTED = (
    ("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    ("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    ("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    ("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    ("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    ("Zhu et al. (2013)", "semi-supervised", 91.3),
    ("Huang & Harper (2009)", "semi-supervised", 91.3),
    ("McClosky et al. (2006)", "semi-supervised", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    ("Transformer (4 layers)", "semi-supervised", 92.7),
    ("Luong et al. (2015)", "multi-task", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)
"""Parser, training, and F1 on WSJ section 23."""


def table4_section(results: Results) -> Section:
    """The paper's figures, and every parser that has been scored. The Wall Street Journal cannot be had freely."""
    scored = list(results.rows("table4").values())
    rows = [
        [row["model"], row["architecture"], row["test"], *(f"{row[key]:.2f}" for key in ("f1", "precision", "recall"))]
        for row in scored
    ]
    return Section(
        title="Table 4: English constituency parsing",
        measured_on=f"{len(rows)} scores of parsers that were trained here" if rows else "no parser is scored yet",
        claims=[
            Claim(
                "The Transformer generalizes to constituency parsing",
                "91.3 F1 (WSJ only), 92.7 (semi-supervised)",
                _best(scored),
                "not checked",
            ),
            *_predecessor_claims(scored),
        ],
        tables=[
            *([Table("Trained here", ["model", "architecture", "test set", "F1", "P", "R"], rows)] if rows else []),
            Table("The paper's table", ["parser", "training", "F1 on WSJ 23"], [[*map(str, row)] for row in PRINTED]),
        ],
        notes=["Section 23 of the Wall Street Journal is licensed and not part of any public corpus."],
    )


def _best(scored: list[dict[str, Any]]) -> str:
    """The best score on every test set."""
    best = {row["test"]: row["f1"] for row in sorted(scored, key=lambda row: row["f1"])}
    if not best:
        return "no parser is scored yet (--model, --test)"
    return ", ".join(f"{f1:.1f} on {test}" for test, f1 in best.items()) + "; WSJ cannot be had freely"


def _predecessor_claims(scored: list[dict[str, Any]]) -> Iterator[Claim]:
    """Whether the Transformer is better than the recurrent model, on every test set on which both were scored."""
    claim = "The Transformer outperforms recurrent sequence-to-sequence models"
    paper = "91.3 against 88.3 F1 (WSJ only)"
    compared = False
    for test in dict.fromkeys(row["test"] for row in scored):
        ours, theirs = (
            [row["f1"] for row in scored if row["test"] == test and row["architecture"] == architecture]
            for architecture in ("encoder_decoder", "recurrent")
        )
        if ours and theirs:
            compared = True
            found = f"{max(ours):.1f} against {max(theirs):.1f}"
            yield Claim.checked(f"{claim}: {test}", paper, found, max(ours) > max(theirs))
    if not compared:
        yield Claim(claim, paper, "needs a score of a recurrent parser on the same test set", "not checked")

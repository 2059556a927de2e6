"""Repairs of outputs, with scripted searches: each way in which required text can be missing."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from transduce.fast.choose import pick_engine
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.likelihood import ModuleReader
from transduce.search.decoder import Hypothesis, length_penalty
from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import SLOTS
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.pipeline import output_text
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.repair import GapFinder, Repairer
from transduce.translation.text import Segment
from transduce.translation.translator import Translator

FIRST, SECOND = SLOTS[:2]
MAIL = "a@b.de"


class ScriptedEngine:
    """An engine whose output is that of a script."""

    name = "scripted"

    def __init__(self, answer: Callable[[str], str] | None, tokenizer: Tokenizer, log_prob: float) -> None:
        self._answer, self._tokenizer = answer, tokenizer
        self.prefixes: list[str] = []
        self.log_prob = log_prob
        self.wanted: Callable[[str], bool] = lambda text: True

    def start_session(self, config: SearchConfig) -> "ScriptedEngine":
        assert config.nbest == 1
        self._jobs: list[tuple[int, Job]] = []
        self._scores = config.max_length == 1
        return self

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self._jobs += jobs

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        key, job = self._jobs.pop()
        prefix = self._tokenizer.decode_all([job.prefix], marked=True)[0]
        if self._scores:
            log_prob = -1.0 if self.wanted(prefix) else -100.0
            return [(key, [Hypothesis(list(job.prefix), log_prob, log_prob)])]
        assert self._answer, "nothing was to be searched for again"
        self.prefixes.append(prefix)
        return [(key, [hypothesis(self._tokenizer, self._answer(prefix), self.log_prob)])]


def hypothesis(tokenizer: Tokenizer, marked: str, log_prob: float = -1.0) -> Hypothesis:
    return Hypothesis(tokenizer.encode_all([marked], marked=True)[0], log_prob, log_prob)


class Case:
    """A translator whose outputs and searches are scripted."""

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.wanted: Callable[[str], bool] = lambda text: True

    def prefer(self, wanted: Callable[[str], bool]) -> None:
        """Let the score of complete outputs be high for those of this kind."""
        self.wanted = wanted

    def part(self, text: str, prefix: str = "", glossary: Any = None, *, slots: bool = True) -> Segment:
        protection = Protection()
        translator = Translator(self.model, self.tokenizer, protection=protection, uses_slots=slots)
        (part,) = translator.segments(text, prefix, glossary)
        return part

    def repaired(
        self, part: Segment, *outputs: str, answer: Callable[[str], str] | None = None, log_prob: float = -1.0
    ) -> list[str]:
        self.engine = ScriptedEngine(answer, self.tokenizer, log_prob)
        self.engine.wanted = self.wanted
        repairer = Repairer(ModuleReader(self.model), self.tokenizer)
        results = [hypothesis(self.tokenizer, output) for output in outputs]
        (best,) = repairer.repair([part], [results], SearchConfig(nbest=1), self.engine)  # type: ignore[arg-type]
        texts = self.tokenizer.decode_all([one.tokens for one in best], marked=True)
        return [output_text(text, part) for text in texts]


@pytest.fixture
def case(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Case:
    return Case(untrained_model, toy_tokenizer)


def test_an_output_with_everything_stays(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu")
    assert case.repaired(part, f"dedu {FIRST} babo", f"{FIRST} babo") == [f"dedu {MAIL} babo", f"{MAIL} babo"]


def test_a_missing_span_is_searched_for_with_a_prefix(case: Case) -> None:
    case.prefer(lambda text: text.endswith("gigo"))
    part = case.part(f"babo {MAIL} dedu")
    assert case.repaired(part, "dedu babo", answer=lambda prefix: f"{prefix} gigo")[0].endswith(f"{MAIL} gigo")
    assert len(case.engine.prefixes) == 1
    assert case.engine.prefixes[0].endswith(FIRST)


@pytest.mark.parametrize("search_wins", [True, False])
def test_the_score_of_the_model_decides_if_the_new_output_is_improbable(case: Case, search_wins: bool) -> None:
    case.prefer(lambda text: text.endswith("gigo") == search_wins)
    part = case.part(f"babo {MAIL} dedu")
    (text,) = case.repaired(part, "dedu babo", answer=lambda prefix: f"{prefix} gigo", log_prob=-50.0)
    assert text.endswith("gigo") == search_wins
    assert text.count(MAIL) == 1


def test_a_span_is_inserted_if_searches_do_not_help(case: Case) -> None:
    (text,) = case.repaired(case.part(f"babo {MAIL} dedu"), "dedu babo", answer=lambda prefix: "gigo")
    assert sorted(text.split()) == [MAIL, "babo", "dedu"]
    assert len(case.engine.prefixes) == 2


def test_several_missing_spans_are_inserted(case: Case) -> None:
    (text,) = case.repaired(case.part(f"babo {MAIL} dedu /usr/bin"), "dedu babo", answer=lambda prefix: "gigo")
    assert sorted(text.split()) == ["/usr/bin", MAIL, "babo", "dedu"]


def test_a_repeated_slot_is_removed(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu")
    (text,) = case.repaired(part, f"dedu {FIRST} babo {FIRST}", answer=lambda prefix: "gigo")
    assert text in (f"dedu {MAIL} babo", f"dedu babo {MAIL}")


@pytest.mark.parametrize("text", ["babo dedu", f"babo {MAIL} dedu"])
def test_slots_of_nothing_are_removed(case: Case, text: str) -> None:
    output = f"dedu {SECOND} {FIRST} babo" if "@" in text else f"dedu {SECOND} babo"
    assert case.repaired(case.part(text), output) == [f"dedu {MAIL} babo" if "@" in text else "dedu babo"]


def test_other_outputs_of_an_nbest_list_are_repaired_by_insertion(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu")
    texts = case.repaired(part, f"{FIRST} dedu", "dedu babo", "dedu")
    assert texts[0] == f"{MAIL} dedu"
    assert [text.count(MAIL) for text in texts] == [1, 1, 1]


def test_nothing_is_inserted_into_a_prefix(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu", prefix="gigo gibo")
    (text,) = case.repaired(part, "gigo gibo dedu", answer=lambda prefix: "gigo gibo")
    assert text.startswith("gigo gibo")
    assert text.count(MAIL) == 1
    assert all(prefix.startswith("gigo gibo") for prefix in case.engine.prefixes)


def test_the_same_span_twice_is_required_twice_without_slots(case: Case) -> None:
    part = case.part(f"{MAIL} babo {MAIL}", slots=False)
    assert not part.slots
    (text,) = case.repaired(part, f"{MAIL} babo", answer=lambda prefix: "gigo")
    assert text.count(MAIL) == 2


def test_a_number_inside_a_longer_one_does_not_count(case: Case) -> None:
    (text,) = case.repaired(case.part("babo 12 dedu"), "dedu 1234 babo", answer=lambda prefix: "gigo")
    assert sorted(text.split()) == ["12", "1234", "babo", "dedu"]


def test_a_term_may_be_capitalised_and_have_an_ending(case: Case) -> None:
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    assert case.repaired(part, "Gigos dedu") == ["Gigos dedu"]
    (text,) = case.repaired(part, "degigo dedu", answer=lambda prefix: "bo")
    assert "gigo" in text.split()


@pytest.mark.parametrize("answer", ["gigo bo dude", "gigo dude", "gigo de"])
def test_a_term_replaces_the_words_that_translate_it(case: Case, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    term, tokenizer = len(case.tokenizer.encode("babo")), case.tokenizer

    def weights(self: GapFinder, outputs: Any, engine: Any) -> list[Any]:
        """The first word of an output attends to the term, the others to the rest of the text."""
        tables = []
        for own, tokens in outputs:
            table_TS = np.full((len(tokens) + 1, len(own.tokens) + 1), 0.01, np.float32)
            first = len(tokenizer.encode(tokenizer.decode(tokens).split()[0]))
            table_TS[:first, :term] = table_TS[first:, term:] = 1
            tables.append(table_TS)
        return tables

    monkeypatch.setattr(GapFinder, "_weights", weights)
    # An output with both is not used; otherwise, that of the search is.
    expected = "gigo dude" if "bo" in answer else answer
    assert case.repaired(part, "bo dude", answer=lambda prefix: answer) == [expected]
    whole = case.part("babo", glossary={"babo": "gigo"})
    assert case.repaired(whole, "bo", answer=lambda prefix: "gigo bo") == ["gigo"]


def test_text_that_is_only_spans_and_punctuation_is_its_own_translation(case: Case) -> None:
    for text in (MAIL, f"{MAIL}, /usr/bin!", "3.5 kg"):
        assert case.repaired(case.part(text), "dedu") == [text]


def test_a_changed_output_has_the_score_of_the_search(case: Case) -> None:
    part = case.part(f"{MAIL}, /usr/bin!")
    engine = pick_engine("plain", case.model)
    config = SearchConfig(beam=3, no_repeat=1, min_length=9)
    results = [[hypothesis(case.tokenizer, "dedu babo")]]
    ((one,),) = Repairer(ModuleReader(case.model), case.tokenizer).repair([part], results, config, engine)
    log_prob = sum(ModuleReader(case.model).token_log_probs([(part.tokens, one.tokens)])[0])
    assert one.log_prob == pytest.approx(log_prob)
    assert one.score == pytest.approx(log_prob / length_penalty(len(one.tokens) + 1.0, config.length_penalty))

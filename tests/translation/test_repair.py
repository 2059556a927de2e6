"""Repairs of outputs, with scripted searches: each way in which required text can be missing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from transduce.errors import DataError
from transduce.fast.choose import pick_engine
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.forced_decoding import Attention, Pairs
from transduce.models.likelihood import ModuleReader
from transduce.search.decoder import Hypothesis, length_penalty
from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import SLOTS
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.pipeline import output_text
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.repair import Repairer
from transduce.translation.stages.search import run_searches
from transduce.translation.text import Segment
from transduce.translation.translator import Translator
from transduce.translation.wording import Wording

FIRST, SECOND = SLOTS[:2]
MAIL = "a@b.de"


class ScriptedEngine:
    """An engine whose output is that of a script."""

    name = "scripted"

    def __init__(self, answer: Callable[[str], str] | None, tokenizer: Tokenizer) -> None:
        self._answer, self._tokenizer = answer, tokenizer
        self.sources: list[str] = []
        self.wanted: Callable[[str], bool] = lambda text: True

    def start_session(self, config: SearchConfig) -> "ScriptedEngine":
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
        source, prefix = self._tokenizer.decode_all([job.tokens, job.prefix], marked=True)
        if self._scores:
            log_prob = -1.0 if self.wanted(prefix) else -100.0
            return [(key, [Hypothesis(list(job.prefix), log_prob, log_prob)])]
        assert self._answer, "nothing was to be searched for again"
        self.sources.append(source)
        return [(key, [hypothesis(self._tokenizer, self._answer(source))])]


class ScriptedReader(ModuleReader):
    """The first word of an output attends to the first word of its source, the others to the rest."""

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer) -> None:
        super().__init__(model)
        self._tokenizer = tokenizer

    def _first_word(self, tokens: Sequence[int]) -> int:
        return len(self._tokenizer.encode(self._tokenizer.decode(tokens).split()[0]))

    def attention_weights(self, pairs: Pairs) -> Iterator[Attention]:
        for source, output in pairs:
            table_TS = np.full((len(output) + 1, len(source) + 1), 0.01, np.float32)
            first, term = self._first_word(output), self._first_word(source)
            table_TS[:first, :term] = table_TS[first:, term:] = 1
            yield table_TS.tolist()


def hypothesis(tokenizer: Tokenizer, marked: str) -> Hypothesis:
    return Hypothesis(tokenizer.encode_all([marked], marked=True)[0], -1.0, -1.0)


class Case:
    """A translator whose outputs and searches are scripted."""

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.wanted: Callable[[str], bool] = lambda text: True
        self.reader = ModuleReader(model)

    def prefer(self, wanted: Callable[[str], bool]) -> None:
        """Let the score of complete outputs be high for those of this kind."""
        self.wanted = wanted

    def part(self, text: str, prefix: str = "", glossary: Any = None, *, slots: bool = True) -> Segment:
        self.translator = Translator(self.model, self.tokenizer, protection=Protection(), uses_slots=slots)
        (part,) = self.translator.segments(text, prefix, wording=Wording.of(glossary))
        return part

    def repaired(self, part: Segment, *outputs: str, answer: Callable[[str], str] | None = None) -> list[str]:
        self.engine = ScriptedEngine(answer, self.tokenizer)
        self.engine.wanted = self.wanted
        repairer = Repairer(self.reader, self.translator.pipeline)
        results = [hypothesis(self.tokenizer, output) for output in outputs]
        engine: Any = self.engine
        (best,) = run_searches(engine, repairer.searches([part], [results], SearchConfig(nbest=1), engine))
        texts = self.tokenizer.decode_all([output.tokens for output in best], marked=True)
        return [output_text(text, part) for text in texts]


@pytest.fixture
def case(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Case:
    return Case(untrained_model, toy_tokenizer)


def test_an_output_with_everything_stays(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu")
    assert case.repaired(part, f"dedu {FIRST} babo", f"{FIRST} babo") == [f"dedu {MAIL} babo", f"{MAIL} babo"]


def test_a_number_that_an_output_lacks_is_searched_for_in_a_slot(case: Case) -> None:
    part = case.part(f"babo 12 dedu {MAIL}")
    (text,) = case.repaired(part, f"dedu babo {FIRST}", answer=lambda source: f"gigo {SECOND} dedu {FIRST}")
    assert text == f"gigo 12 dedu {MAIL}"
    assert case.engine.sources == [f"babo {SECOND} dedu {FIRST}"]


def test_slots_that_outputs_at_their_limit_lack_are_inserted(case: Case) -> None:
    (text,) = case.repaired(case.part(f"babo {MAIL} dedu"), "dedu babo")
    assert sorted(text.split()) == [MAIL, "babo", "dedu"]
    (text,) = case.repaired(case.part(f"babo {MAIL} dedu /usr/bin"), "dedu babo")
    assert sorted(text.split()) == ["/usr/bin", MAIL, "babo", "dedu"]


def test_a_number_is_inserted_if_searches_do_not_help(case: Case) -> None:
    (text,) = case.repaired(case.part("babo 12 dedu"), "dedu babo", answer=lambda source: "gigo")
    assert sorted(text.split()) == ["12", "babo", "dedu"]
    assert len(case.engine.sources) == 2  # with a slot for what is missing, then for all that is required


def test_other_outputs_of_an_nbest_list_are_repaired_by_insertion(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu")
    texts = case.repaired(part, f"{FIRST} dedu", "dedu babo", "dedu")
    assert texts[0] == f"{MAIL} dedu"
    assert [text.count(MAIL) for text in texts] == [1, 1, 1]


def test_nothing_is_inserted_into_a_prefix(case: Case) -> None:
    part = case.part(f"babo {MAIL} dedu", prefix="gigo gibo")
    (text,) = case.repaired(part, "gigo gibo dedu")
    assert text.startswith("gigo gibo")
    assert text.count(MAIL) == 1


def test_the_same_span_twice_is_required_twice_without_slots(case: Case) -> None:
    part = case.part(f"{MAIL} babo {MAIL}", slots=False)
    assert not part.slots
    (text,) = case.repaired(part, f"{MAIL} babo")
    assert text.count(MAIL) == 2


def test_a_number_inside_a_longer_one_does_not_count(case: Case) -> None:
    (text,) = case.repaired(case.part("babo 12 dedu"), "dedu 1234 babo", answer=lambda source: "gigo")
    assert sorted(text.split()) == ["12", "1234", "babo", "dedu"]


def test_a_term_may_be_capitalised_and_have_an_ending(case: Case) -> None:
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    assert case.repaired(part, "Gigos dedu") == ["Gigos dedu"]
    (text,) = case.repaired(part, "degigo dedu", answer=lambda source: "bo")
    assert "gigo" in text.split()


def test_a_term_is_searched_for_with_its_translation_in_the_source(case: Case) -> None:
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    assert case.repaired(part, "bo dude", answer=lambda source: "dude gigo") == ["dude gigo"]
    assert case.engine.sources == ["gigo dedu"]


def test_a_term_that_is_the_beginning_of_another_word_is_searched_for_in_a_slot(case: Case) -> None:
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    answers = {"gigo dedu": "dude gigobabo", f"{FIRST} dedu": f"{FIRST} de"}
    assert case.repaired(part, "bo dude", answer=answers.__getitem__) == ["gigo de"]
    assert case.repaired(part, "Bo dude", answer=answers.__getitem__) == ["Gigo de"]


@pytest.mark.parametrize("slot_wins", [True, False])
def test_the_score_decides_between_a_slot_and_the_words_that_translate_a_term(case: Case, slot_wins: bool) -> None:
    case.reader = ScriptedReader(case.model, case.tokenizer)
    case.prefer(lambda text: text.endswith("gibo") == slot_wins)
    part = case.part("babo dedu", glossary={"babo": "gigo"})
    answers = {"gigo dedu": "bo", f"{FIRST} dedu": f"{FIRST} gibo"}
    expected = "gigo gibo" if slot_wins else "gigo dude"
    assert case.repaired(part, "bo dude", answer=answers.__getitem__) == [expected]


def test_a_term_replaces_the_words_that_translate_it_without_slots(case: Case) -> None:
    case.reader = ScriptedReader(case.model, case.tokenizer)
    part = case.part("babo dedu", glossary={"babo": "gigo"}, slots=False)
    assert case.repaired(part, "bo dude", answer=lambda source: "bo") == ["gigo dude"]
    whole = case.part("babo", glossary={"babo": "gigo"}, slots=False)
    assert case.repaired(whole, "bo", answer=lambda source: "bo") == ["gigo"]


def test_a_translation_of_a_term_that_does_not_fit_the_source_is_in_a_slot(case: Case) -> None:
    long = "gigo " * 300 + "gigo"
    part = case.part("babo dedu", glossary={"babo": long})
    assert case.repaired(part, "bo dude", answer=lambda source: f"de {FIRST}") == [f"de {long}"]
    assert case.engine.sources == [f"{FIRST} dedu"]


def test_terms_that_would_take_long_are_refused(case: Case) -> None:
    with pytest.raises(DataError, match="tokens for the terms of one sentence"):
        case.part("babo babo babo", glossary={"babo": "gigo " * 1000})


def test_text_that_is_only_spans_and_punctuation_is_its_own_translation(case: Case) -> None:
    for text in (MAIL, f"{MAIL}, /usr/bin!", "3.5 kg"):
        assert case.repaired(case.part(text), "dedu") == [text]


def test_a_changed_output_has_the_score_of_the_search(case: Case) -> None:
    part = case.part(f"{MAIL}, /usr/bin!")
    engine = pick_engine("plain", case.model)
    config = SearchConfig(beam=3, no_repeat=1, min_length=9)
    results = [[hypothesis(case.tokenizer, "dedu babo")]]
    repairer = Repairer(ModuleReader(case.model), case.translator.pipeline)
    ((one,),) = run_searches(engine, repairer.searches([part], results, config, engine))
    log_prob = sum(ModuleReader(case.model).token_log_probs([(part.tokens, one.tokens)])[0])
    assert one.log_prob == pytest.approx(log_prob)
    assert one.score == pytest.approx(log_prob / length_penalty(len(one.tokens) + 1.0, config.length_penalty))

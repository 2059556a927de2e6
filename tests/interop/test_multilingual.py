"""M2M-100, NLLB and mBART-50 as translation models: random weights, with the logits and outputs of transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from multilingual_models import LANGUAGES, MODEL, source_ids, write_multilingual
from transformers_models import transformers

from transduce import Translator
from transduce.data.batch import Batch
from transduce.errors import DataError, ModelError
from transduce.files.languages import TargetLanguage
from transduce.interop.export_model import export_model
from transduce.interop.import_model import import_model
from transduce.models.folder import load_model
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS

TEXTS = ["Hello there, how are you?", "A man sleeps.", "größer und kleiner"]


class Multilingual:
    def __init__(self, kind: str, folder: Path) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.kind, self.original, self.folder = kind, folder / "original", folder / "ours"
        self.model, self.tokenizer = write_multilingual(kind, self.original)
        import_model(self.original, self.folder)
        self.saved: Any = load_model(self.folder)


@pytest.fixture(scope="module", params=LANGUAGES)
def multilingual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Multilingual:
    return Multilingual(request.param, tmp_path_factory.mktemp(request.param))


def job(multilingual: Multilingual, text: str) -> Job:
    translator = Translator.load(multilingual.folder, engine="plain")
    source, target = LANGUAGES[multilingual.kind]
    (segment,) = translator.segments(text, to=translator.target(target, source))
    return Job(segment.tokens, [])


def test_tokens_and_logits(multilingual: Multilingual) -> None:
    order, model = multilingual.saved.tokenizer.order, multilingual.saved.model
    output = [9, 44, 8, 30]
    for text in TEXTS:
        ids, tag = source_ids(multilingual.tokenizer, text, *LANGUAGES[multilingual.kind])
        tokens = job(multilingual, text).tokens
        assert [order.originals[token] for token in tokens] == [tag, *ids[0].tolist()[:-1]]
        with torch.inference_mode():
            decoder = torch.tensor([[2, tag, *output]])
            theirs = multilingual.model(input_ids=ids, decoder_input_ids=decoder).logits[0, 1:]
            batch = Batch.of(src=[[*tokens, EOS]], tgt=[[BOS, *(order.ids[token] for token in output)]])
            ours = model.logits(model(batch))[:, order.ids]
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs(multilingual: Multilingual, beam: int) -> None:
    """Without a length penalty and without an end, beam search of transformers has the same scores.

    Ours adds the log-probability of the end marker at the limit, which is taken off again here.
    """
    order = multilingual.saved.tokenizer.order
    translator = Translator.load(multilingual.folder, engine="plain")
    config = SearchConfig(beam=beam, nbest=beam, length_penalty=0.0, max_length=7, min_length=7)
    never = [[marker] for marker in set(order.markers) - {order.markers[EOS]}]
    for text in TEXTS:
        ids, tag = source_ids(multilingual.tokenizer, text, *LANGUAGES[multilingual.kind])
        theirs = multilingual.model.generate(
            ids, forced_bos_token_id=tag, num_beams=beam, length_penalty=0.0, min_new_tokens=8, max_new_tokens=8,
            forced_eos_token_id=None, bad_words_ids=never,
        )  # fmt: skip
        request = job(multilingual, text)
        (found,) = search_all(translator.engine, [request], config)
        outputs = [hypothesis.tokens for hypothesis in found]
        scores = translator.reader.token_log_probs([(request.tokens, output) for output in outputs])
        best = max(range(beam), key=lambda n: sum(scores[n][:-1]))
        assert [order.originals[token] for token in outputs[best]] == theirs[0].tolist()[2:]


def test_native_gives_what_plain_gives(multilingual: Multilingual) -> None:
    source, target = LANGUAGES[multilingual.kind]
    outputs = []
    for engine in ("plain", "native"):
        translator = Translator.load(multilingual.folder, engine=engine)
        assert translator.engine.name == engine
        outputs.append(translator.translate(TEXTS, to=target, source=source, beam=1, max_length=6))
    assert outputs[0] == outputs[1]


def test_an_export_is_the_original(multilingual: Multilingual, tmp_path: Path) -> None:
    sentences = [text for text in TEXTS for _ in range(2)]
    exported = export_model(multilingual.folder, "hf", tmp_path / "export", sentences=sentences)
    assert exported.verification.identical == len(sentences)
    assert exported.verification.consumer.startswith("transformers ")
    theirs, again = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(path).state_dict()
        for path in (multilingual.original, tmp_path / "export")
    )
    assert theirs.keys() == again.keys()
    if multilingual.kind != "mbart":  # whose scale of embeddings becomes a part of the weights
        assert all(torch.equal(x, again[name]) for name, x in theirs.items())
    import_model(tmp_path / "export", tmp_path / "back")
    weights, back = (load_model(path).model.state_dict() for path in (multilingual.folder, tmp_path / "back"))
    assert all(torch.equal(x, back[name]) for name, x in weights.items())


def test_there_is_one_matrix_of_embeddings(multilingual: Multilingual) -> None:
    size = multilingual.saved.model.vocab_size
    assert [name for name, x in multilingual.saved.model.state_dict().items() if x.dim() == 2 and len(x) == size] == [
        "embedding.weight_VD"
    ]
    assert "positions" not in str([*multilingual.saved.model.state_dict()]) or multilingual.kind == "mbart"


def test_languages_of_nllb(tmp_path: Path) -> None:
    write_multilingual("nllb", tmp_path / "original")
    import_model(tmp_path / "original", tmp_path / "ours")
    translator = Translator.load(tmp_path / "ours", engine="plain", beam=1, max_length=3)
    assert {source for source, _ in translator.directions} == {"ast", "de", "en", "fr", "zh-Hans", "zh-Hant"}
    expected = translator.translate("Hello there", to="de", source="en")
    for target, source in (("deu_Latn", "eng_Latn"), ("deu", "en"), (TargetLanguage("de", "en"), None)):
        assert translator.translate("Hello there", to=target, source=source) == expected
    detected = "This is a sentence of English words, for which the language is certain."
    assert translator.translate(detected, to="de") == translator.translate(detected, to="de", source="en")
    with pytest.raises(DataError, match="zh is several languages of this model; choose zh-Hans or zh-Hant"):
        translator.translate("Hello", to="zh", source="en")
    with pytest.raises(DataError, match="the language of the text is not certain; name it"):
        translator.translate("Hello", to="de")
    with pytest.raises(DataError, match="does not translate from en to it; it translates any of 6 languages to any of"):
        translator.translate("Hello", to="it", source="en")


def test_a_vocabulary_of_sentencepiece_alone(tmp_path: Path) -> None:
    """Older folders of mBART-50 have no tokenizer.json: the tags follow the pieces."""
    write_multilingual("mbart", tmp_path / "original")
    import_model(tmp_path / "original", tmp_path / "ours")
    (tmp_path / "original" / "tokenizer.json").unlink()
    import_model(tmp_path / "original", tmp_path / "older")
    ours, older = (load_model(tmp_path / name).tokenizer for name in ("ours", "older"))
    assert ours.symbol_ids == older.symbol_ids
    assert ours.encode_all(TEXTS) == older.encode_all(TEXTS)


@pytest.mark.parametrize(
    ("kind", "file", "change", "message"),
    [
        (
            "mbart",
            "tokenizer_config.json",
            {"tokenizer_class": "MBartTokenizer"},
            "the tokenizer MBartTokenizer cannot",
        ),
        ("nllb", "tokenizer_config.json", {"legacy_behaviour": True}, "legacy_behaviour = True cannot be imported"),
        ("m2m_100", "tokenizer_config.json", {"language_codes": "wmt21"}, "language_codes = 'wmt21' cannot be"),
        ("m2m_100", "config.json", {"pad_token_id": 3}, "pad_token_id = 3 cannot be imported, only 1"),
        ("m2m_100", "config.json", {"vocab_size": 300}, "with those of languages, but the model has 300"),
        ("m2m_100", "config.json", {"encoder_ffn_dim": 5}, "encoder_ffn_dim = 5 and decoder_ffn_dim = 47 cannot be"),
    ],
)
def test_refusals(
    kind: str, file: str, change: dict[str, Any], message: str, multilingual: Multilingual, tmp_path: Path
) -> None:
    if multilingual.kind != kind:
        pytest.skip("of another type")
    shutil.copytree(multilingual.original, tmp_path / "changed")
    path = tmp_path / "changed" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError) as failed:
        import_model(tmp_path / "changed", tmp_path / "ours")
    assert message in str(failed.value)
    assert (tmp_path / "changed" / MODEL).exists()

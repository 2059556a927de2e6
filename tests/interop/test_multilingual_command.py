"""An NLLB of random weights through the commands: import, translate, evaluate, train from it, export; and served."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from commands import complaint
from multilingual_models import write_multilingual
from serving import serve_in_thread

from transduce import Translator
from transduce.models.folder import load_model, read_card

SHORT = ("--beam", "1", "--max-length", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nllb")
    write_multilingual("nllb", path / "original")
    return path


def test_commands(folder: Path, transduce: Any) -> None:
    outcome = transduce("import", "original", "--out", "ours", cwd=folder)
    assert outcome.out.startswith("ours: m2m_100 (Hugging Face)")
    text = "Hello there, how are you?"
    outputs = [
        transduce("translate", "-m", "ours", "--from", source, "--to", target, *SHORT, text, cwd=folder).out
        for source, target in (("en", "de"), ("eng_Latn", "deu_Latn"), ("en", "fr"))
    ]
    assert outputs[0] == outputs[1] != ""
    message = complaint(transduce("translate", "-m", "ours", "--to", "de", "Hi", cwd=folder))
    assert message == "line 1: the language of the text is not certain; name it (--from, or source)"
    assert (
        "any of 6 languages to any of 6 (ast, de, en, fr, zh-Hans, zh-Hant)"
        in transduce("info", "-m", "ours", cwd=folder).out
    )
    message = complaint(transduce("export", "-m", "ours", "--to", "ctranslate2", "--out", "x", cwd=folder))
    assert message == "ours: CTranslate2 has no models with model.decoder_tag = true, only false"
    with serve_in_thread([("nllb", Translator.load(folder / "ours", engine="plain", beam=1))]) as (url, _):
        body = {"text": text, "to": "deu_Latn", "source": "en", "max_length": 4}
        answer = httpx.post(f"{url}/v1/translate", json=body).json()
        assert answer["translations"][0]["outputs"][0]["text"] == outputs[0].rstrip("\n")
        body = {"q": "Hi", "source": "en", "target": "de"}
        assert httpx.post(f"{url}/translate", json=body).json()["translatedText"]


def test_a_run_that_starts_from_it(folder: Path, transduce: Any) -> None:
    if not (folder / "ours").exists():
        transduce("import", "original", "--out", "ours", cwd=folder)
    pairs = [f"Hello {number}\tBonjour {number}" for number in range(24)]
    (folder / "text.en-fr.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    settings = ("start_from=ours", "steps=3", "valid_sentences=2", "warmup=1", "learning_rate=1e-4")
    more = [part for setting in settings for part in ("--set", f"train.{setting}")]
    outcome = transduce(
        "train", "--out", "run", "--train", "text.en-fr.tsv", "--valid", "text.en-fr.tsv", *more, cwd=folder
    )
    assert outcome.code == 0, outcome.err
    facts = read_card(folder / "run" / "model")["facts"]
    assert facts["directions"] == [["en", "fr"]]
    assert facts["source_tags"]
    assert facts["by_sentence"]
    before, after = (load_model(folder / name).model.state_dict() for name in ("ours", "run/model"))
    assert not torch.equal(before["embedding.weight_VD"], after["embedding.weight_VD"])
    assert torch.equal(before["output.bias_V"], after["output.bias_V"])
    assert transduce("translate", "-m", "run", *SHORT, "Hello 5", cwd=folder).out.strip()
    outcome = transduce("export", "-m", "run", "--to", "hf", "--out", "hf", cwd=folder)
    assert "100 of 100 greedy outputs identical" in outcome.out, outcome

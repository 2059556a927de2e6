"""The tokenizer of BLEU is chosen by the target language, or by the script of the references."""

from typing import get_args

import pytest
from sacrebleu.metrics.bleu import BLEU

from transduce.errors import ConfigError
from transduce.training.train_config import BleuTokenizer
from transduce.translation.scores import TokenizerChoice, choose_tokenizer, load_tokenizer


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("th", "char"),
        ("km", "char"),
        ("de", "13a"),
        ("hi", "13a"),
    ],
)
def test_the_language_selects_the_tokenizer_whatever_the_references_are(language: str, tokenizer: str) -> None:
    for references in (["The cat."], ["猫が座った。"], []):
        assert choose_tokenizer("auto", language, references).name == tokenizer


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("我们从来没有这么快乐过。", "zh"),
        ("我們從來沒有這麼快樂過。", "zh"),
        ("他们说日语的“の”很常见，但在中文文章里几乎从来都不会出现这样的字。", "zh"),
        ("猫が水を飲んでいる。", "ja"),
        ("東京都庁舎で記者会見を開いた", "ja"),
        ("コーヒー", "ja"),
        ("나는 어제 서울에 갔습니다.", "ko"),
        ("เมื่อวานฉันไปกรุงเทพฯ", "th"),
        ("ខ្ញុំទៅផ្សារ", "km"),
        ("ຂ້ອຍໄປຕະຫຼາດ", "lo"),
        ("ကျွန်တော် သွားတယ်", "my"),
        ("The character 猫 means cat.", None),
        ("Я был в Москве.", None),
        ("मैं कल दिल्ली गया।", None),
        ("ذهبت إلى السوق.", None),
        ("123, 456!", None),
        ("", None),
    ],
)
def test_the_script_of_the_references_tells_the_language(text: str, language: str | None) -> None:
    assert choose_tokenizer("auto", None, [text]).language == language
    if language:
        assert choose_tokenizer("auto", None, [text]).name == choose_tokenizer("auto", language, []).name


def test_a_setting_has_precedence() -> None:
    assert choose_tokenizer("char", "ja", ["猫"]) == TokenizerChoice("char", "as set", "ja")


def test_the_names_are_those_of_sacrebleu() -> None:
    assert set(get_args(BleuTokenizer)) - {"auto"} <= set(BLEU.TOKENIZERS)


def test_a_failed_download_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from sacrebleu.tokenizers import tokenizer_spm

    def offline(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(tokenizer_spm, "download_file", offline)
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"flores200 .as set. could not be downloaded: no network.*--tokenize char"):
        load_tokenizer(choose_tokenizer("flores200", None, []), "--tokenize ")

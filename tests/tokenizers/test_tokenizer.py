"""The tokenizer: decoding is exact, special tokens have fixed ids, dropout is a function of its seed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import ConfigError, DataError, ModelError
from transduce.tokenizers.symbols import RESERVED, SLOTS, escape, language_tag
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, TokenizerConfig

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Ein Haus, zwei Häuser; a house, two houses.",
] * 5

each_type = pytest.mark.parametrize("model_type", ["bpe", "unigram"])
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
tricky_text = st.text(
    st.sampled_from(
        list("ab \t\n\u2581\ue011es\ue100\ue10f\ue110de\ue111AR\ufffd\u2585\u2028\ufeff\u200d<>/x0é\u0301😀汉")
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {model_type: train(TEXT, model_type) for model_type in ("bpe", "unigram")}


def train(texts: Iterable[str], model_type: str, vocab_size: int = 400) -> Tokenizer:
    return Tokenizer.train(texts, TokenizerConfig(vocab_size=vocab_size, type=model_type))  # type: ignore[arg-type]


@each_type
@example("\u2581").via("the mark SentencePiece writes for a space")
@example("\ue011e\ue011s\ue011").via("our own escapes")
@example(" a  b ").via("spaces at both ends and in a row")
@example("\t\n\r").via("controls")
@example("👩‍👩‍👧 汉字").via("characters never seen")
@example("<s></s><unk><pad><0x41>").via("names of markers and bytes")
@example("e\u0301 \u00e9 ﬁ").via("what a normaliser would change")
@given(text=any_text | tricky_text)
def test_any_text_is_decoded_exactly(tokenizers: dict[str, Tokenizer], model_type: str, text: str) -> None:
    tokenizer = tokenizers[model_type]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {PAD, UNK, BOS, EOS} & set(ids)


@each_type
@example("👩‍👩‍👧 汉字").via("characters never seen, in bytes")
@given(text=st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters="\0\u2581\ufffd"), min_size=1))
def test_the_bytes_of_all_tokens_are_those_of_the_text(
    tokenizers: dict[str, Tokenizer], model_type: str, text: str
) -> None:
    tokenizer = tokenizers[model_type]
    joined = b"".join(tokenizer.raw_bytes(token) for token in [BOS, *tokenizer.encode(text), EOS])
    assert joined == b" " + text.encode()  # SentencePiece puts a space before every text


@given(texts=st.lists(any_text | tricky_text, min_size=1, max_size=4), seed=st.integers(0, 2**40))
def test_any_text_is_decoded_exactly_under_dropout(
    tokenizers: dict[str, Tokenizer], texts: list[str], seed: int
) -> None:
    tokenizer = tokenizers["bpe"]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_with_dropout([*map(escape, texts)], 0.3, seed)] == texts


@each_type
def test_many_texts_are_encoded_like_single_ones(tokenizers: dict[str, Tokenizer], model_type: str) -> None:
    texts = [*TEXT[:3], "", " \u2581"]
    assert tokenizers[model_type].encode_all(texts) == [tokenizers[model_type].encode(text) for text in texts]


@each_type
def test_special_tokens_have_fixed_ids(tokenizers: dict[str, Tokenizer], model_type: str) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert tokenizers[model_type].pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


@each_type
def test_special_tokens_are_ignored_in_decoding(tokenizers: dict[str, Tokenizer], model_type: str) -> None:
    ids = tokenizers[model_type].encode("two houses")
    assert tokenizers[model_type].decode([BOS, *ids, UNK, EOS, PAD, PAD]) == "two houses"


@each_type
def test_training_text_is_encoded_in_pieces_larger_than_bytes(
    tokenizers: dict[str, Tokenizer], model_type: str
) -> None:
    assert len(tokenizers[model_type].encode(TEXT[0])) < len(TEXT[0])


@each_type
def test_the_same_text_gives_the_same_vocabulary(tokenizers: dict[str, Tokenizer], model_type: str) -> None:
    assert train(TEXT, model_type).model == tokenizers[model_type].model


def test_dropout_is_a_function_of_its_seed(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    first = tokenizer.encode_with_dropout(TEXT, 0.3, seed=7)
    other = tokenizer.encode_with_dropout(TEXT, 0.3, seed=8)
    assert tokenizer.encode_with_dropout(TEXT, 0.3, seed=7) == first
    assert other != first
    assert first != tokenizer.encode_all(TEXT)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**50 + 1])
def test_dropout_does_not_depend_on_earlier_calls(tokenizers: dict[str, Tokenizer], seed: int) -> None:
    tokenizer = tokenizers["bpe"]
    tokenizer.encode_with_dropout(TEXT, 0.3, seed=11)
    after_one = tokenizer.encode_with_dropout(TEXT, 0.3, seed)
    tokenizer.encode_with_dropout(TEXT, 0.3, seed=12)
    assert tokenizer.encode_with_dropout(TEXT, 0.3, seed) == after_one


def test_no_dropout_is_the_plain_encoding(tokenizers: dict[str, Tokenizer]) -> None:
    assert tokenizers["bpe"].encode_with_dropout(TEXT, 0.0, seed=7) == tokenizers["bpe"].encode_all(TEXT)


@each_type
@pytest.mark.parametrize(
    "texts", [["a"], ["ab ab"], ["hello world"] * 3, ["汉字"], ["<s> </s> <unk> <pad> <0x41>"] * 9]
)
def test_the_vocabulary_shrinks_on_a_tiny_text_instead_of_failing(model_type: str, texts: list[str]) -> None:
    tokenizer = train(texts, model_type, vocab_size=8000)
    assert 371 <= tokenizer.vocab_size < 600
    for text in [*texts, "something else entirely, 😀"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@each_type
def test_the_vocabulary_is_not_larger_than_requested(model_type: str) -> None:
    assert train(TEXT, model_type, vocab_size=420).vocab_size <= 420


@each_type
def test_text_is_decoded_by_a_vocabulary_of_text_with_few_spaces(model_type: str) -> None:
    tokenizer = train(["汉字" * 2500], model_type)
    for text in ("汉字", "a b", " x "):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@each_type
def test_training_text_may_contain_the_unknown_piece_of_sentencepiece(model_type: str) -> None:
    tokenizer = train([*TEXT, "a bar \u2585 in a chart"], model_type)
    assert tokenizer.decode(tokenizer.encode("\u2585 x")) == "\u2585 x"


def test_a_vocabulary_too_small_for_the_characters_is_refused_with_the_size_that_it_needs() -> None:
    texts = ["".join(map(chr, range(0x4E00 + start, 0x4E14 + start))) for start in range(0, 200, 20)]
    with pytest.raises(DataError, match=r"need a vocabulary of \d+; raise tokenizer\.vocab_size \(400\)"):
        Tokenizer.train(texts * 5, TokenizerConfig(vocab_size=400, character_coverage=1.0))


def test_a_saved_vocabulary_is_loaded_unchanged(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    path = tmp_path / "tokenizer.model"
    tokenizers["bpe"].save(path)
    loaded = Tokenizer.load(path)
    assert loaded.model == tokenizers["bpe"].model
    assert loaded.vocab_size == tokenizers["bpe"].vocab_size
    assert loaded.encode_all(TEXT) == tokenizers["bpe"].encode_all(TEXT)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.model: no such file"):
        Tokenizer.load(tmp_path / "tokenizer.model")


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty"])
def test_a_damaged_vocabulary_is_named(tmp_path: Path, tokenizers: dict[str, Tokenizer], damage: str) -> None:
    model = tokenizers["bpe"].model
    path = tmp_path / "tokenizer.model"
    path.write_bytes({"garbage": b"garbage", "truncated": model[: len(model) // 2], "empty": b""}[damage])
    with pytest.raises(ModelError, match=r"tokenizer\.model"):
        Tokenizer.load(path)


@pytest.mark.parametrize("settings", [{"vocab_size": 390}, {"sample_pairs": 0}])
def test_settings_out_of_range_are_an_error(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        TokenizerConfig(**settings)  # type: ignore[arg-type]


@each_type
def test_reserved_symbols_are_tokens_of_marked_text_only(tokenizers: dict[str, Tokenizer], model_type: str) -> None:
    tokenizer = tokenizers[model_type]
    assert [*tokenizer.symbol_ids] == RESERVED
    ids = tokenizer.encode_all([f"See {SLOTS[3]}, now."], marked=True)[0]
    assert tokenizer.symbol_ids[SLOTS[3]] in ids
    assert tokenizer.decode_all([ids], marked=True) == [f"See {SLOTS[3]}, now."]
    assert tokenizer.decode(ids) == "See , now."
    assert "⟨3⟩" in tokenizer.pieces(ids)
    assert not {*tokenizer.symbol_ids.values()} & set(tokenizer.encode(f"{SLOTS[3]} {language_tag('de')}"))


@each_type
def test_ascii_and_the_digits_of_the_scripts_are_tokens(model_type: str) -> None:
    tokenizer = train([*TEXT, "२ किताबें"], model_type, vocab_size=430)
    for character in [*map(chr, range(33, 127)), *"०१२३४५६७८९"]:
        assert character in "".join(tokenizer.pieces(tokenizer.encode(character)))


@each_type
def test_characters_of_a_small_alphabet_are_tokens(model_type: str) -> None:
    tokenizer = train([*TEXT * 5, "ÄÖÜ ß „x“"], model_type, vocab_size=430)
    assert not any(piece.startswith("<0x") for piece in tokenizer.pieces(tokenizer.encode("ÄÖÜ ß „x“")))


def test_the_rarest_characters_of_a_large_alphabet_are_written_in_bytes() -> None:
    alphabet = [chr(0x4E00 + i) for i in range(200)]
    texts = [*TEXT * 50, *(character * (1 if i < 10 else 200) for i, character in enumerate(alphabet))]
    tokenizer = train(texts, "bpe", vocab_size=600)
    in_bytes = {character for character in alphabet if len(tokenizer.encode(character)) > 2}
    assert in_bytes == {*alphabet[:10]}


def test_user_defined_symbols_are_one_token_each() -> None:
    tokenizer = Tokenizer.train(TEXT, TokenizerConfig(vocab_size=450, symbols=("<br>", "[SEP]")))
    assert tokenizer.pieces(tokenizer.encode("a<br>b[SEP]")) == ["▁a", "<br>", "b", "[SEP]"]


def test_bytes_that_are_not_utf8_are_left_out_of_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    first, *_ = tokenizer.encode("😀")[1:]
    assert tokenizer.decode([*tokenizer.encode("two"), first, *tokenizer.encode("houses")]) == "two houses"
    assert tokenizer.decode(tokenizer.encode("\ufffd")) == "\ufffd"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_a_character_may_be_a_user_defined_symbol(kind: Any) -> None:
    tokenizer = Tokenizer.train(["ba | be|bi", "bo|bu"], TokenizerConfig(vocab_size=450, type=kind, symbols=("|", "b")))
    text = "be|ba | bo"
    pieces = tokenizer.pieces(tokenizer.encode(text))
    assert (pieces.count("|"), pieces.count("b")) == (2, 3)
    assert tokenizer.decode(tokenizer.encode(text)) == text

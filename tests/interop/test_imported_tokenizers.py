"""Imported tokenizers against transformers: the same ids, reordered, and the same text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from mixed_text import MIXED

from transduce.interop.gguf import gguf_tokenizer
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.interop.vocabulary import read_tokenizer
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.symbols import escape
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

tokenizers: Any = pytest.importorskip("tokenizers")
transformers: Any = pytest.importorskip("transformers")

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def byte_level(special: Sequence[str]) -> Any:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(MIXED, trainer)
    return tokenizer


def word_piece_vocabulary() -> list[str]:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=BERT_SPECIAL, limit_alphabet=120, show_progress=False
    )
    tokenizer.train_from_iterator(MIXED[:150], trainer)
    return sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)


def unigram() -> Any:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    tokenizer.normalizer = tokenizers.normalizers.NFKC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=450, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(MIXED[:150], trainer)
    return tokenizer


def assert_same(ours: AnyTokenizer, theirs: Any, order: Any, texts: Sequence[str] = MIXED) -> None:
    """Encoding and decoding of every text, one by one and together, by text and by marked text."""
    expected = [[order.ids[token] for token in theirs(text, add_special_tokens=False).input_ids] for text in texts]
    assert [ours.encode(text) for text in texts] == expected
    assert ours.encode_all(texts, -1) == expected
    assert ours.encode_all([escape(text) for text in texts], marked=True) == expected
    decoded = [
        theirs.decode(theirs(text, add_special_tokens=False).input_ids, skip_special_tokens=True) for text in texts
    ]
    assert [ours.decode(ids) for ids in expected] == decoded
    assert ours.decode_all(expected, marked=True) == [escape(text) for text in decoded]


def reloaded(tokenizer: ImportedTokenizer, folder: Path) -> AnyTokenizer:
    folder.mkdir()
    (folder / tokenizer.file_name).write_bytes(tokenizer.model)
    loaded = load_tokenizer(folder)
    assert loaded.pieces(range(loaded.vocab_size)) == tokenizer.pieces(range(tokenizer.vocab_size))
    assert loaded.model == tokenizer.model
    return loaded


def test_byte_level_bpe(tmp_path: Path) -> None:
    """GPT-2: one token is BOS and EOS."""
    raw = byte_level(["<|endoftext|>"])
    size = raw.get_vocab_size()
    raw.save(str(tmp_path / "tokenizer.json"))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    settings = {"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": 0}
    ours = read_tokenizer(tmp_path, settings, size + 7)  # rows without tokens, as in padded embeddings
    assert ours.order.markers == (0, 0, 0, 0)
    assert ours.vocab_size == size + 7 + 3
    assert_same(reloaded(ours, tmp_path / "saved"), theirs, ours.order)
    for text in MIXED:
        ids = ours.encode(text)
        assert b"".join(map(ours.raw_bytes, ids)).decode() == text
    assert ours.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert ours.pieces(ours.encode(" the")) == ["▁t", "he"]
    assert ours.pieces([ours.vocab_size - 1]) == [f"<unused{size + 6}>"]
    assert ours.decode(ours.encode("one<|endoftext|>two")) == "onetwo"
    assert EOS in ours.encode("one<|endoftext|>two")


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    """The same from `vocab.json` and `merges.txt`."""
    raw = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    raw.model.save(str(tmp_path))
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path, add_prefix_space=False)
    settings = {"model_type": "roberta", "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    ours = read_tokenizer(tmp_path, settings, raw.get_vocab_size())
    assert ours.order.markers == (1, 3, 0, 2)
    assert ours.vocab_size == raw.get_vocab_size()
    assert_same(reloaded(ours, tmp_path / "saved"), theirs, ours.order)


def test_bart_begins_sources(tmp_path: Path) -> None:
    raw = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    raw.model.save(str(tmp_path))
    settings = {
        "model_type": "bart",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    ours = read_tokenizer(tmp_path, settings, raw.get_vocab_size())
    assert ours.order.markers == (1, 3, 2, 2)
    begin, *rest = ours.encode("the fox")
    assert ours.order.originals[begin] == 0
    assert ours.target.encode("the fox") == rest
    assert ours.decode([begin, *rest]) == "the fox"
    assert reloaded(ours, tmp_path / "saved").encode("the fox") == [begin, *rest]


@pytest.mark.parametrize("lower", [True, False])
def test_word_piece(lower: bool, tmp_path: Path) -> None:
    """BERT's `vocab.txt`."""
    vocabulary = word_piece_vocabulary()
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=lower)
    ours = read_tokenizer(tmp_path, {"model_type": "bert", "pad_token_id": 0}, len(vocabulary))
    assert ours.order.markers == (0, 1, 2, 3)
    assert_same(reloaded(ours, tmp_path / "saved"), theirs, ours.order)
    assert UNK in ours.encode("نص")
    assert b"".join(map(ours.raw_bytes, ours.encode("the fox jumps"))) == b" the fox jumps"


def test_unigram(tmp_path: Path) -> None:
    """T5: the decoder starts with <pad>."""
    raw = unigram()
    raw.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"unk_token": {"content": "<unk>"}}))
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), unk_token="<unk>", eos_token="</s>", pad_token="<pad>"
    )
    settings = {"model_type": "t5", "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    ours = read_tokenizer(tmp_path, settings, raw.get_vocab_size() + 3)
    assert ours.order.markers == (0, 2, 0, 1)
    assert ours.order.copies == [BOS]
    assert_same(reloaded(ours, tmp_path / "saved"), theirs, ours.order)


def sentencepiece_model(folder: Path, name: str, lines: Sequence[str], size: int) -> list[str]:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / name), vocab_size=size, hard_vocab_limit=False,
        minloglevel=2, model_type="unigram", normalization_rule_name="nmt_nfkc",
    )  # fmt: skip
    (folder / f"{name}.model").rename(folder / f"{name}.spm")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
    return [model.id_to_piece(token) for token in range(3, model.get_piece_size())]


def marian_folder(folder: Path) -> dict[str, int]:
    """Files as in OPUS-MT: </s> is 0, <unk> is 1, <pad> is last."""
    pieces = sentencepiece_model(folder, "source", MIXED[:120], 400) + sentencepiece_model(
        folder, "target", MIXED[80:], 420
    )
    tokens = [*dict.fromkeys(["</s>", "<unk>", *pieces[5:], ">>fra<<", "<pad>"])]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return vocabulary


def test_sentencepiece_pair(tmp_path: Path) -> None:
    vocabulary = marian_folder(tmp_path)
    theirs = transformers.MarianTokenizer(
        str(tmp_path / "source.spm"), str(tmp_path / "target.spm"), str(tmp_path / "vocab.json")
    )
    pad = vocabulary["<pad>"]
    settings = {
        "model_type": "marian", "pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad,
        "vocab_size": len(vocabulary),
    }  # fmt: skip
    ours = read_tokenizer(tmp_path, settings, len(vocabulary))
    assert ours.order.markers == (pad, 1, pad, 0)
    assert ours.order.copies == [BOS]
    # transformers recognizes markers inside of a text, which SentencePiece here does not
    texts = [text for text in MIXED if "<s>" not in text.lower()] + [">>fra<< The quick brown fox"]
    loaded = reloaded(ours, tmp_path / "saved")
    assert_same(loaded, theirs, ours.order, texts)
    assert ours.order.ids[vocabulary[">>fra<<"]] == ours.encode(">>fra<< fox")[0]
    targets = [[ours.order.ids[token] for token in theirs(text_target=text).input_ids[:-1]] for text in texts[:-1]]
    assert [loaded.target.encode(text) for text in texts[:-1]] == targets
    assert targets != [loaded.encode(text) for text in texts[:-1]]


def test_gguf_vocabulary() -> None:
    """The vocabulary of SmolLM2 splits digits."""
    raw = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    before = tokenizers.pre_tokenizers
    raw.pre_tokenizer = before.Sequence([before.Digits(individual_digits=True), raw.pre_tokenizer])
    content = json.loads(raw.to_str())["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].__getitem__)
    fields = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in content["merges"]],
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3), "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip
    ours = gguf_tokenizer(fields, {"model_type": "llama"})
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=raw)
    assert ours.order.markers == (2, 0, 0, 2)  # documents follow <|endoftext|>, because texts do not begin with BOS
    assert_same(ours, theirs, ours.order)
    begun = gguf_tokenizer({**fields, "tokenizer.ggml.add_bos_token": True}, {"model_type": "llama"})
    assert begun.order.markers == (2, 0, 1, 2)

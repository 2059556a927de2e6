"""Models with separate vocabularies of source and target, exchanged with other toolkits on random weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from commands import content
from engines import FAST, assert_same, native_engine
from mixed_text import MIXED

from transduce.cli.shrink import shrink_model
from transduce.errors import ModelError
from transduce.interop.export_model import export_model, forced_logits
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import SavedModel, load_model, read_model, save_model
from transduce.models.likelihood import ModuleReader
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import TokenizerPair
from transduce.tokenizers.tokenizer import BOS, Tokenizer, TokenizerConfig
from transduce.translation.translator import Translator

SIZES: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 4}
MARIAN: dict[str, Any] = {
    "positions": "marian", "zero_start": True, "norm_epsilon": 1e-6, "activation": "swish", "output_bias": True,
}  # fmt: skip
GREEK = ["αβγ δεζ", "ηθι κλμ νξο", "πρσ τυφ", "χψω αβγ δεζ"] * 10
CYRILLIC = ["абв где", "жзи клм ноп", "рст уфх", "цчш абв где", "жзи ноп"] * 10


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    sizes = (410, 430)
    sides = zip(sizes, (GREEK, CYRILLIC), strict=True)
    return TokenizerPair(*(Tokenizer.train(lines, TokenizerConfig(vocab_size=size)) for size, lines in sides))


def save_random(folder: Path, tokenizer: TokenizerPair, **settings: Any) -> SavedModel:
    torch.manual_seed(4)
    config = EncoderDecoderConfig(**SIZES, **settings, source_vocab_size=tokenizer.vocab_size)
    model = EncoderDecoder(config, tokenizer.target.vocab_size).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape)
    save_model(folder, model, tokenizer, {"max_length": 80})
    return load_model(folder)


@pytest.mark.parametrize(
    ("to", "settings"),
    [
        ("hf", {"activation": "swish", "output_bias": True}),
        ("hf", {"zero_start": True, "output_bias": True, "tie_output": False}),
        ("ctranslate2", {"norm": "pre", "positions": "learned", "max_positions": 90, "activation": "gelu"}),
        ("ctranslate2", MARIAN),
        ("onnx", {"norm": "pre", "tie_output": False, "output_bias": True}),
        ("onnx", {"zero_start": True, "embedding": "plain"}),
        ("marian", MARIAN),
    ],
)
def test_exports(to: str, settings: dict[str, Any], pair: TokenizerPair, tmp_path: Path) -> None:
    """Each is verified by the other toolkit, and (but for ONNX) restored bit for bit."""
    for package in {"hf": ["transformers"], "onnx": ["onnx", "onnxruntime"]}.get(to, []):
        pytest.importorskip(package)
    saved = save_random(tmp_path / "model", pair, **settings)
    written = export_model(tmp_path / "model", to, tmp_path / "out", sentences=GREEK[:8])
    assert written.verification.difference < 1e-5
    if to == "onnx":
        return
    import_model(tmp_path / "out", tmp_path / "back")
    restored = load_model(tmp_path / "back")
    assert (restored.model.config, restored.facts) == (saved.model.config, saved.facts)
    assert restored.tokenizer.model == saved.tokenizer.model
    weights = restored.model.state_dict()
    assert all(torch.equal(x, weights.pop(name)) for name, x in saved.model.state_dict().items())
    assert not weights
    import_model(tmp_path / "out", tmp_path / "foreign", foreign=True)
    foreign = load_model(tmp_path / "foreign")
    source, output = pair.encode(GREEK[1]), pair.target.encode(CYRILLIC[1])
    theirs = forced_logits(foreign.model, foreign.tokenizer.encode(GREEK[1]), output)
    ours = forced_logits(saved.model, source, output)
    assert (ours - theirs)[:, BOS + 1 :].abs().max() < 1e-4
    assert foreign.tokenizer.target.decode(output) == CYRILLIC[1]


def test_argos_has_one_vocabulary(pair: TokenizerPair, tmp_path: Path) -> None:
    save_random(tmp_path / "model", pair)
    with pytest.raises(ModelError, match="Argos Translate has one SentencePiece model"):
        export_model(tmp_path / "model", "argos", tmp_path / "out", source="el", target="ru", sentences=GREEK[:2])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def opus(folder: Path) -> tuple[Any, Any]:
    """A Marian model of transformers whose vocabularies differ in size, in order and in the ids of markers."""
    transformers: Any = pytest.importorskip("transformers")
    folder.mkdir()
    vocabularies = []
    for name, lines, size in (("source", MIXED[:120], 300), ("target", MIXED[80:], 320)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(folder / name), vocab_size=size, hard_vocab_limit=False,
            minloglevel=2, model_type="unigram",
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces = [model.id_to_piece(token) for token in range(3, model.get_piece_size())]
        vocabularies.append(["</s>", "<unk>", "<pad>", *(pieces if name == "source" else reversed(pieces))])
    for file, pieces in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=True):
        (folder / file).write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": True}))
    config = transformers.MarianConfig(
        vocab_size=len(vocabularies[0]), decoder_vocab_size=len(vocabularies[1]), d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_position_embeddings=64, activation_function="swish", scale_embedding=True, pad_token_id=2, eos_token_id=0,
        decoder_start_token_id=2, forced_eos_token_id=None, share_encoder_decoder_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(6)
    model = transformers.MarianMTModel(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.3 * torch.randn(parameter.shape)
    model.final_logits_bias += torch.randn(model.final_logits_bias.shape)
    model.save_pretrained(folder)
    return model, transformers.MarianTokenizer.from_pretrained(folder)


def test_a_hugging_face_model(tmp_path: Path) -> None:
    """Logits and greedy outputs as by transformers, in `plain`; `native` runs it as well."""
    theirs, tokenizer = opus(tmp_path / "original")
    import_model(tmp_path / "original", tmp_path / "ours")
    saved = load_model(tmp_path / "ours")
    assert isinstance(saved.tokenizer, TokenizerPair)
    target = saved.tokenizer.target
    assert isinstance(target, ImportedTokenizer)
    text, output = "The quick brown fox jumps", [9, 33, 120, 5]
    ours = forced_logits(saved.model, saved.tokenizer.encode(text), [target.order.ids[token] for token in output])
    with torch.inference_mode():
        expected = theirs(
            **tokenizer([text], return_tensors="pt"), decoder_input_ids=torch.tensor([[2, *output]])
        ).logits[0]
    assert (ours[:, target.order.ids] - expected).abs().max() < 1e-4

    texts = ["The quick brown fox jumps", "naïve café", "a b c"]
    translations = []
    for text in texts:
        best = theirs.generate(
            **tokenizer([text], return_tensors="pt"), num_beams=1, do_sample=False, max_new_tokens=9, min_new_tokens=1,
            bad_words_ids=[[2], [1]],
        )  # fmt: skip
        translations.append(tokenizer.decode(best[0], skip_special_tokens=True))
    assert len(set(translations)) == len(texts)
    translator = Translator.load(tmp_path / "ours", engine="plain", protect=False, beam=1, max_length=9)
    assert translator.translate(texts) == translations
    native = Translator.load(tmp_path / "ours", engine="native", beam=1, max_length=9)
    assert native.engine.name == "native"
    assert len(native.translate(texts)) == len(texts)


def test_a_model_of_firefox(pair: TokenizerPair, tmp_path: Path) -> None:
    """Two `.spm` files beside a model of Marian are found by their names; otherwise, an error names them."""
    saved = save_random(tmp_path / "model", pair, **MARIAN)
    export_model(tmp_path / "model", "marian", tmp_path / "out", sentences=GREEK[:2])
    folder = tmp_path / "out"
    for old, new in (("srcvocab", "srcvocab.elru"), ("trgvocab", "trgvocab.elru")):
        (folder / f"{old}.spm").rename(folder / f"{new}.spm")
    (folder / "transduce.json").unlink()
    import_model(folder, tmp_path / "ours")
    foreign = load_model(tmp_path / "ours")
    source, output = pair.encode(GREEK[0]), pair.target.encode(CYRILLIC[0])
    ours, theirs = (forced_logits(one.model, source, output) for one in (saved, foreign))
    assert (ours - theirs)[:, BOS + 1 :].abs().max() < 1e-4
    (folder / "trgvocab.elru.spm").unlink()
    with pytest.raises(ModelError, match=r"the folder needs a file srcvocab\.spm and a file trgvocab\.spm"):
        import_model(folder, tmp_path / "again")


def test_ctranslate2_vocabularies_as_text(pair: TokenizerPair, tmp_path: Path) -> None:
    save_random(tmp_path / "model", pair)
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out", sentences=GREEK[:2])
    (tmp_path / "out/transduce.json").unlink()
    import_model(tmp_path / "out", tmp_path / "from-json")
    for side in ("source", "target"):
        file = tmp_path / f"out/{side}_vocabulary.json"
        file.with_suffix(".txt").write_text("\n".join(json.loads(file.read_bytes())), encoding="utf-8")
        file.unlink()
    import_model(tmp_path / "out", tmp_path / "from-text")
    assert content(tmp_path / "from-text") == content(tmp_path / "from-json")


def test_log_probabilities_without_torch_are_those_of_the_module(pair: TokenizerPair, tmp_path: Path) -> None:
    save_random(tmp_path / "model", pair)
    shrink_model(tmp_path / "model", tmp_path / "small")
    stored = read_model(tmp_path / "small")
    pairs = [(pair.encode(GREEK[1]), pair.target.encode(CYRILLIC[1]))]
    (found,) = native_engine(stored).token_log_probs(pairs)
    assert found == pytest.approx(ModuleReader(stored.module()).token_log_probs(pairs)[0], abs=2e-3)


def test_search_of_the_stored_model_is_that_of_the_module(pair: TokenizerPair, tmp_path: Path) -> None:
    """`native` reads the source's embeddings from the file, also as stored in 8 bits."""
    saved = save_random(tmp_path / "model", pair)
    shrink_model(tmp_path / "model", tmp_path / "small")
    jobs, search = [Job(pair.encode(text), []) for text in GREEK[:4]], SearchConfig(beam=2, max_extra=4)
    expected = search_all(FAST["native"](saved.model), jobs, search)
    for name in ("model", "small"):
        assert_same(search_all(FAST["native"](read_model(tmp_path / name)), jobs, search), expected)

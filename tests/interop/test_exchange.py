"""Models of Marian and CTranslate2, exchanged with random weights, against the definitions and those toolkits."""

import json
import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from commands import complaint, content
from engines import FAST, assert_same, plain
from toy_run import as_sets, make_toy_pairs, write_lines

from transduce.errors import ModelError
from transduce.interop.ctranslate2 import read_variables, write_variables
from transduce.interop.export_model import export_model, forced_logits
from transduce.interop.import_model import import_model
from transduce.interop.vocabulary import export_vocabulary, restore_vocabulary
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import SavedModel, load_model, save_model
from transduce.nn.positions import marian_sinusoids
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import language_tag
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer, TokenizerConfig, rename_pieces

SIZES: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "d_ff": 48, "num_heads": 4}
MARIAN: dict[str, Any] = {
    "positions": "marian", "zero_start": True, "norm_epsilon": 1e-6, "activation": "swish", "output_bias": True,
}  # fmt: skip
TEXTS = [source for source, _ in make_toy_pairs(8, seed=5)]


def save_random(folder: Path, tokenizer: Any, facts: dict[str, Any] | None = None, **settings: Any) -> SavedModel:
    """A model folder with random weights that are large enough to show differences."""
    torch.manual_seed(3)
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, **settings), tokenizer.vocab_size).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape)
        if name == "embedding.weight_VD" and settings.get("zero_start"):
            assert not parameter[BOS].any()
    save_model(folder, model, tokenizer, facts or {})
    return load_model(folder)


def assert_restored(original: SavedModel, folder: Path) -> None:
    restored = load_model(folder)
    assert restored.model.config == original.model.config
    assert restored.tokenizer.model == original.tokenizer.model
    assert restored.facts == original.facts
    ours, theirs = original.model.state_dict(), restored.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("to", "settings"),
    [
        ("hf", {"activation": "swish", "output_bias": True}),
        ("hf", {"zero_start": True, "output_bias": True, "tie_output": False}),
        ("hf", {"positions": "learned", "max_positions": 90}),
        ("ctranslate2", {"norm": "pre", "positions": "learned", "max_positions": 90, "activation": "gelu"}),
        ("ctranslate2", {"embedding": "plain", "activation": "gelu_tanh", "output_bias": True}),
        ("ctranslate2", MARIAN),
        ("onnx", {"norm": "pre", "activation": "gelu_tanh", "tie_output": False, "output_bias": True}),
        ("onnx", {"activation": "gelu", "zero_start": True, "embedding": "plain"}),
        ("onnx", {"activation": "swish", "positions": "learned", "max_positions": 90}),
        ("marian", MARIAN),
    ],
)
def test_settings_of_the_family(to: str, settings: dict[str, Any], toy_tokenizer: Any, tmp_path: Path) -> None:
    """Every setting that a target has is exported, verified, and restored bit for bit."""
    for package in {"hf": ["transformers"], "onnx": ["onnx", "onnxruntime"]}.get(to, []):
        pytest.importorskip(package)
    saved = save_random(tmp_path / "model", toy_tokenizer, {"max_length": 80}, **settings)
    written = export_model(tmp_path / "model", to, tmp_path / "out", sentences=TEXTS)
    assert written.verification.difference < 1e-5
    import_model(tmp_path / "out", tmp_path / "back")
    assert_restored(saved, tmp_path / "back")


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "argos", "onnx", "marian"])
def test_one_model_goes_to_all_consumers(to: str, toy_tokenizer: Any, tmp_path: Path) -> None:
    """With Marian's conventions, as the guide recommends; it is restored, from Hugging Face but for rounding."""
    for package in {"hf": ["transformers"], "onnx": ["onnx", "onnxruntime"]}.get(to, []):
        pytest.importorskip(package)
    saved = save_random(tmp_path / "model", toy_tokenizer, {"max_length": 80}, **MARIAN)
    written = export_model(tmp_path / "model", to, tmp_path / "out", source="en", target="de", sentences=TEXTS)
    assert written.verification.difference < 1e-5
    import_model(tmp_path / "out", tmp_path / "back")
    if to != "hf":
        return assert_restored(saved, tmp_path / "back")
    restored = load_model(tmp_path / "back")
    assert restored.model.config == saved.model.config
    for name, x in saved.model.state_dict().items():
        torch.testing.assert_close(restored.model.state_dict()[name], x, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("to", "settings", "reason"),
    [
        ("hf", {"norm": "pre"}, "Hugging Face's Marian has no models with model.norm = pre, only post"),
        ("ctranslate2", {"positions": "rotary"}, "CTranslate2 has no models with model.positions = rotary, only"),
        ("ctranslate2", {"kv_heads": 2}, "no grouped heads"),
        ("onnx", {"activation": "swiglu"}, "the ONNX export has no models with model.activation = swiglu, only"),
        ("marian", {"activation": "swish"}, "train with model.positions = marian, model.zero_start = true, "),
    ],
)
def test_what_a_target_cannot_express_is_refused(
    to: str, settings: dict[str, Any], reason: str, toy_tokenizer: Any, tmp_path: Path
) -> None:
    save_random(tmp_path / "model", toy_tokenizer, **settings)
    with pytest.raises(ModelError, match=reason):
        export_model(tmp_path / "model", to, tmp_path / "out", sentences=TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_tags_of_languages_can_be_typed(tmp_path: Path, toy_pairs: Any) -> None:
    """Tags are written <2de>; renaming is undone exactly; Argos, which has no place for a tag, is refused."""
    config = TokenizerConfig(vocab_size=450, symbols=(language_tag("de"), language_tag("fr")))
    tokenizer = Tokenizer.train((text for pair in toy_pairs for text in pair), config)
    exported = export_vocabulary(tokenizer, ["de", "fr"])
    assert exported.tags == {"de": "<2de>", "fr": "<2fr>"}
    assert restore_vocabulary(exported.source_spm, ["de", "fr"]).model == tokenizer.model
    assert rename_pieces(tokenizer.model, {}) == tokenizer.model
    theirs = sentencepiece.SentencePieceProcessor(model_proto=exported.source_spm)
    assert theirs.encode("<2fr> babo debo") == tokenizer.encode_all([f"{language_tag('fr')} babo debo"], marked=True)[0]

    facts = {"directions": [["en", "de"], ["en", "fr"]], "tagged": True}
    saved = save_random(tmp_path / "model", tokenizer, facts)
    with pytest.raises(ModelError, match="Argos Translate cannot put the tag"):
        export_model(tmp_path / "model", "argos", tmp_path / "out", source="en", target="fr", sentences=TEXTS)
    written = export_model(tmp_path / "model", "ctranslate2", tmp_path / "out", sentences=TEXTS)
    assert "`<2de>`, `<2fr>`" in written.limits[0]
    assert "language:\n- de\n- en\n- fr\n" in (tmp_path / "out" / "README.md").read_text()
    import_model(tmp_path / "out", tmp_path / "back")
    assert_restored(saved, tmp_path / "back")


def test_marian_sinusoids() -> None:
    """As in Marian's source: rates from 1 to exactly 1/10000, sines before cosines."""
    table = marian_sinusoids(7, 6)
    for position in range(7):
        for i in range(3):
            angle = position * math.exp(-i * math.log(10000) / 2)
            assert table[position, i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 3 + i] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("name", FAST)
def test_the_fast_engines_run_marian_models(name: str, toy_tokenizer: Any, tmp_path: Path) -> None:
    """Swish, a bias of the logits, Marian's positions and a zero start, as in `plain`."""
    model = save_random(tmp_path / "model", toy_tokenizer, **MARIAN).model
    assert isinstance(model, EncoderDecoder)
    jobs = [Job(toy_tokenizer.encode(text), []) for text in (TEXTS if name == "native" else ["babo"])]
    search = SearchConfig(beam=2, max_extra=4 if name == "native" else 0)
    assert_same(search_all(FAST[name](model), jobs, search), search_all(plain(name, model), jobs, search))


def test_an_imported_marian_model_is_like_any_other(transduce: Any, toy_tokenizer: Any, tmp_path: Path) -> None:
    """It translates in `native` and `plain`, is shrunk and inspected, and is fine-tuned."""
    save_random(tmp_path / "model", toy_tokenizer, {"search": {"max_extra": 2}}, **MARIAN)
    export_model(tmp_path / "model", "marian", tmp_path / "marian", sentences=TEXTS)
    (tmp_path / "marian" / "transduce.json").unlink()

    def run(*words: str) -> str:
        outcome = transduce(*words, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
        return str(outcome.out)

    assert "transformer (Marian)" in run("import", "marian", "--out", "ours")
    beam = ("--beam", "1", "--max-length", "3")
    expected = run("translate", "-m", "model", "--engine", "plain", *beam, TEXTS[0])
    assert run("translate", "-m", "ours", "--engine", "plain", *beam, TEXTS[0]).strip() == expected.strip()
    native = run("translate", "-m", "ours", "--engine", "native", *beam, TEXTS[0])
    run("shrink", "-m", "ours", "--out", "small")
    assert run("translate", "-m", "small", "--engine", "native", *beam, TEXTS[0]) == native
    run("inspect", "-m", "ours", *beam, "--out", "look.html", TEXTS[0])
    for side in ("src", "tgt"):
        write_lines(tmp_path / f"train.{side}", TEXTS * 10)
    sets = as_sets({"train.steps": 2, "train.save_every": 2, "train.batch_tokens": 256})
    run("train", "--src", "train.src", "--tgt", "train.tgt", "--start-from", "ours", *sets, "--out", "run")
    weights = [load_model(tmp_path / name).model.state_dict()["embedding.weight_VD"] for name in ("ours", "run/model")]
    assert not torch.equal(*weights)
    assert not weights[1][BOS].any()


@pytest.mark.parametrize("has_settings", [True, False])
def test_ctranslate2_vocabularies_as_text(
    has_settings: bool, transduce: Any, toy_tokenizer: Any, tmp_path: Path
) -> None:
    """As older versions wrote them, the first without a `config.json`: it is imported as the same model."""
    save_random(tmp_path / "model", toy_tokenizer)
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "json", sentences=TEXTS)
    (tmp_path / "json/transduce.json").unlink()
    older = shutil.copytree(tmp_path / "json", tmp_path / "text")
    tokens = json.loads((older / "shared_vocabulary.json").read_text(encoding="utf-8"))
    (older / "shared_vocabulary.json").unlink()
    (older / "shared_vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    if not has_settings:
        (older / "config.json").unlink()
    for name in ("json", "text"):
        outcome = transduce("import", name, "--out", f"{name}-ours", cwd=tmp_path)
        assert outcome.code == 0, outcome.err
    assert content(tmp_path / "text-ours") == content(tmp_path / "json-ours")
    if has_settings and (library := pytest.importorskip("ctranslate2")):
        pieces = [[*toy_tokenizer.pieces(toy_tokenizer.encode(text)), "</s>"] for text in TEXTS[:2]]
        outputs = [
            [
                one.hypotheses[0]
                for one in library.Translator(str(tmp_path / name), intra_threads=1).translate_batch(pieces)
            ]
            for name in ("json", "text")
        ]
        assert outputs[0] == outputs[1]
    (older / "shared_vocabulary.txt").write_bytes(b"\xff\xfe")
    message = complaint(transduce("import", "text", "--out", "damaged", cwd=tmp_path))
    assert message.startswith("text/shared_vocabulary.txt: not UTF-8:")


def test_ctranslate2_reads_the_names_of_a_marian_export(toy_tokenizer: Any, tmp_path: Path) -> None:
    """Its converter, written for Marian's own files, finds every weight; only its sinusoids differ from Marian's."""
    pytest.importorskip("yaml")
    converters: Any = pytest.importorskip("ctranslate2.converters")
    save_random(tmp_path / "model", toy_tokenizer, **MARIAN)
    export_model(tmp_path / "model", "marian", tmp_path / "out", sentences=TEXTS)
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {n}\n" for n, name in enumerate(toy_tokenizer.names)]
    (tmp_path / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    converter = converters.MarianConverter(str(tmp_path / "out" / "model.npz"), [str(tmp_path / "vocab.yml")] * 2)
    converter.convert(str(tmp_path / "ct2"))
    (tmp_path / "ct2" / "sentencepiece.model").write_bytes(toy_tokenizer.model)
    import_model(tmp_path / "out", tmp_path / "ours", foreign=True)
    import_model(tmp_path / "ct2", tmp_path / "theirs")
    ours, theirs = load_model(tmp_path / "ours"), load_model(tmp_path / "theirs")
    weights, others = ours.model.state_dict(), theirs.model.state_dict()
    assert weights.keys() == others.keys()
    different = [name for name in weights if not torch.equal(weights[name], others[name])]
    assert different == ["embedding.positions.table_TD"]


def test_a_zero_start_stays_zero_and_makes_converters_work(
    transduce: Any, trained: Any, tmp_path: Path, toy_tokenizer: Any
) -> None:
    """After training with model.zero_start, ct2-transformers-converter reads the Hugging Face export correctly."""
    transformers = pytest.importorskip("transformers")
    converters: Any = pytest.importorskip("ctranslate2.converters")
    assert transformers
    sets = as_sets({"model.zero_start": "true", "model.output_bias": "true", "train.steps": 20, "train.save_every": 20})
    outcome = transduce(*trained.words, *sets, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    saved = load_model(tmp_path / "run" / "model")
    weight_VD = saved.model.state_dict()["embedding.weight_VD"]
    assert not weight_VD[BOS].any()
    assert weight_VD[EOS].any()
    export_model(tmp_path / "run" / "model", "hf", tmp_path / "hf", sentences=TEXTS)
    converters.TransformersConverter(str(tmp_path / "hf")).convert(str(tmp_path / "ct2"))
    for name in ("source.spm", "target.spm"):
        (tmp_path / "ct2" / name).write_bytes((tmp_path / "hf" / name).read_bytes())
    import_model(tmp_path / "ct2", tmp_path / "back")
    back = load_model(tmp_path / "back")
    assert back.model.config.zero_start  # type: ignore[attr-defined]
    for text in TEXTS:
        source = saved.tokenizer.encode(text)
        ours = forced_logits(saved.model, source, source[::-1])
        theirs = forced_logits(back.model, back.tokenizer.encode(text), source[::-1])
        np.testing.assert_allclose(theirs[:, EOS:], ours[:, EOS:], atol=1e-5)


UNKNOWN_VARIABLES: dict[str, Any] = {
    "decoder/scale_outputs": 1, "decoder/alibi": 1, "decoder/sliding_window": 4, "decoder/final_logit_softcapping": 30,
    "encoder/layer_0/self_attention/num_heads_kv": 1, "decoder/layer_0/self_attention/rotary_dim": 4,
    "encoder/layer_0/self_attention/queries_scale": 2, "decoder/activation": 1, "decoder/pre_norm": 1,
    "encoder/scale_embeddings": 0, "decoder/scale_embeddings": 0, "encoder/embeddings_0/multiply_by_sqrt_depth": 0,
    "decoder/project_in/weight": [1], "encoder/embeddings_1/weight": [1], "encoder/layernorm_embedding/gamma": [1],
    "encoder/layer_0/self_attention/relative_position_keys": [1], "encoder/layer_0/self_attention/q_norm/gamma": [1],
    "decoder/layer_0/ffn/linear_0_noact/weight": [1], "decoder/layer_0/input_layer_norm/gamma": [1],
    "decoder/layer_0/self_attention/memory_kv/weight": [1], "encoder/layer_0/ffn/linear_0/weight_zero": [1],
    "invented": 1, "decoder/invented": [1],
}  # fmt: skip
"""Variables of CTranslate2 that a translation model of ours has not, or that differ from those of the other side."""


def test_what_a_ctranslate2_model_has_beside_is_refused_by_name(toy_tokenizer: Any, tmp_path: Path) -> None:
    save_random(tmp_path / "model", toy_tokenizer)
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out", sentences=TEXTS)
    (tmp_path / "out" / "transduce.json").unlink()
    path = tmp_path / "out" / "model.bin"
    name, variables = read_variables(path)
    for variable, value in UNKNOWN_VARIABLES.items():
        changed = variables | {variable: torch.tensor(value, dtype=torch.int8)}
        if variable.endswith("multiply_by_sqrt_depth"):  # in place of the newer option
            del changed["encoder/scale_embeddings"]
        write_variables(path, name, changed, {})
        shown = variable.replace("embeddings_0/multiply_by_sqrt_depth", "scale_embeddings")
        with pytest.raises(ModelError, match=f"a CTranslate2 model with .*{shown}.* cannot be imported"):
            import_model(tmp_path / "out", tmp_path / "back")
    write_variables(path, name, variables, {})
    options = json.loads((tmp_path / "out" / "config.json").read_text())
    unknown = {
        "add_source_bos": True, "multi_query_attention": True, "quantization_type": 1, "decoder_start_token": None,
        "invented": [1],
    }  # fmt: skip
    for option, value in unknown.items():
        (tmp_path / "out" / "config.json").write_text(json.dumps(options | {option: value}))
        with pytest.raises(ModelError, match=f"config.json: a CTranslate2 model with {option} = .* cannot be imported"):
            import_model(tmp_path / "out", tmp_path / "back")


def test_options_of_a_ctranslate2_model_are_honoured(toy_tokenizer: Any, tmp_path: Path) -> None:
    """Those of older versions, and numbers that are missing, mean the same as the ones that are written today."""
    saved = save_random(tmp_path / "model", toy_tokenizer, embedding="plain", norm="pre")
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out", sentences=TEXTS)
    (tmp_path / "out" / "transduce.json").unlink()
    name, variables = read_variables(tmp_path / "out" / "model.bin")
    for side, embeddings in (("encoder", "embeddings_0"), ("decoder", "embeddings")):
        del variables[f"{side}/pre_norm"]  # true
        variables[f"{side}/{embeddings}/multiply_by_sqrt_depth"] = variables.pop(f"{side}/scale_embeddings")
    write_variables(tmp_path / "out" / "model.bin", name, variables, {})
    options = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps(options | {"layer_norm_epsilon": 0.25}))
    import_model(tmp_path / "out", tmp_path / "back")
    config = load_model(tmp_path / "back").model.config
    assert isinstance(config, EncoderDecoderConfig)
    assert (config.embedding, config.norm, config.norm_epsilon) == ("plain", "pre", 0.25)
    assert isinstance(saved.model.config, EncoderDecoderConfig)
    assert saved.model.config.norm_epsilon != 0.25


def test_an_argos_package_without_end_markers_is_refused(toy_tokenizer: Any, tmp_path: Path) -> None:
    """Argos Translate passes sources as they are, so the option tells what the model was trained with."""
    save_random(tmp_path / "model", toy_tokenizer)
    export_model(tmp_path / "model", "argos", tmp_path / "out", source="en", target="de", sentences=TEXTS)
    (package,) = (tmp_path / "out").glob("*.argosmodel")
    with zipfile.ZipFile(package) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "other.argosmodel", "w") as archive:
        for name, data in files.items():
            if not name.endswith("config.json"):
                archive.writestr(name, data)
    with pytest.raises(ModelError, match=r"other.argosmodel: its sources have no end marker \(add_source_eos"):
        import_model(tmp_path / "other.argosmodel", tmp_path / "back")

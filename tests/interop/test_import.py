"""Importing models of other toolkits, with random weights that transformers wrote, against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from commands import complaint
from mixed_text import MIXED
from safetensors.torch import load_file, save_file
from toy_run import write_lines
from transformers_models import (
    assert_close,
    byte_level,
    gpt2,
    imported,
    logits_of_original_tokens,
    randomized,
    transformers,
    whisper,
)

from transduce.data.batch import Batch
from transduce.encoders.text_encoder import TextEncoder
from transduce.errors import ModelError, TransduceError
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.language_model.generator import Generator
from transduce.models.folder import load_model
from transduce.speech.transcriber import Transcriber
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK
from transduce.translation.translator import Translator


def test_an_imported_language_model_is_fine_tuned(transduce: Any, tmp_path: Path) -> None:
    gpt2(tmp_path / "original")
    assert transduce("import", "original", "--out", "ours", cwd=tmp_path).code == 0
    (tmp_path / "corpus.txt").write_text("Once upon a time there was a king.\n" * 20)
    sets = [f"--set=train.{name}" for name in ("steps=2", "save_every=2", "batch_tokens=64")]
    words = ("train", "--text", "corpus.txt", "--start-from", "ours", "--set", "data.max_length=16", *sets)
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    outcome = transduce("generate", "-m", "run", "Once", "--max-tokens", "4", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_gpt2(tmp_path: Path) -> None:
    theirs = gpt2(tmp_path / "original")
    saved = imported(tmp_path / "original", tmp_path / "ours")
    texts = [[5, 9, 200, 17], [30, 31]]
    expected = torch.cat([theirs(input_ids=torch.tensor([text])).logits[0] for text in texts])
    assert_close(logits_of_original_tokens(saved, texts), expected)
    assert (saved.facts["task"], saved.facts["max_length"]) == ("language_model", 32)
    assert saved.facts["imported"] == "gpt2 (Hugging Face)"


def test_gpt2_generates(transduce: Any, tmp_path: Path) -> None:
    """Greedy continuations as by transformers, after <|endoftext|>; texts are scored, but not translated."""
    theirs = gpt2(tmp_path / "original")
    assert transduce("import", "original", "--out", "ours", cwd=tmp_path).code == 0
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "original" / "tokenizer.json"))
    prompt = "The quick brown"
    ids = [theirs.config.eos_token_id, *tokenizer(prompt).input_ids]
    output = theirs.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False, max_new_tokens=12, pad_token_id=0
    )
    words = ("--engine", "plain", "--max-tokens", "12", "--temperature", "0", "--json", prompt)
    outcome = transduce("generate", "-m", "ours", *words, cwd=tmp_path)
    expected = bytes(tokenizer.decode(output[0, len(ids) :], skip_special_tokens=True), "utf-8")
    assert bytes(json.loads(outcome.out)["text"], "utf-8") == expected
    with torch.inference_mode():
        log_probs = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    total = sum(float(log_probs[n, token]) for n, token in enumerate(ids[1:]))
    (tmp_path / "text.txt").write_text(prompt + "\n")
    outcome = transduce("score", "-m", "ours", "text.txt", cwd=tmp_path)
    assert float(outcome.out.split()[0]) == pytest.approx(total, abs=2e-3)
    outcome = transduce("translate", "-m", "ours", "text", cwd=tmp_path)
    assert (
        complaint(outcome)
        == "ours was trained for the task language_model; use it with: transduce generate or transduce score"
    )


def test_shards(tmp_path: Path) -> None:
    """The same weights in two files and an index; files outside of the folder are refused."""
    gpt2(tmp_path / "one")
    weights = load_file(tmp_path / "one" / "model.safetensors")
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((tmp_path / "one" / name).read_bytes())
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in shards.items():
        save_file({name: weights[name] for name in own}, folder / file)
    table = {name: file for file, own in shards.items() for name in own}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    ours, other = imported(folder, tmp_path / "a"), imported(tmp_path / "one", tmp_path / "b")
    for name, x in ours.model.state_dict().items():
        assert torch.equal(x, other.model.state_dict()[name])
    index.write_text(json.dumps({"weight_map": {**table, names[0]: "../one/model.safetensors"}}))
    with pytest.raises(ModelError, match="weight_map must list files of the folder"):
        import_model(folder, tmp_path / "c")


def marian(folder: Path) -> Any:
    folder.mkdir()
    for name, lines in (("source", MIXED[:120]), ("target", MIXED[80:])):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(folder / name), vocab_size=300, hard_vocab_limit=False,
            minloglevel=2, model_type="unigram",
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    models = [sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{n}.spm")) for n in ("source", "target")]
    pieces = [model.id_to_piece(token) for model in models for token in range(3, model.get_piece_size())]
    tokens = [*dict.fromkeys(["</s>", "<unk>", *pieces, "<pad>"])]
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}), encoding="utf-8")
    pad = len(tokens) - 1
    config = transformers.MarianConfig(
        vocab_size=len(tokens), decoder_vocab_size=len(tokens), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_position_embeddings=64, activation_function="swish", scale_embedding=True, pad_token_id=pad,
        eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=None,
    )  # fmt: skip
    model = randomized(transformers.MarianMTModel(config))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    ("name", "options", "directions"),
    [
        ("opus-mt-en-de", (), [["en", "de"]]),
        ("opus-mt-tc-big-en-pt", (), [["en", "pt"]]),
        ("opus-mt-en-ROMANCE", (), None),
        ("model", ("--src-lang", "en", "--tgt-lang", "pt-BR"), [["en", "pt-BR"]]),
    ],
)
def test_languages_of_opus_mt(
    name: str, options: tuple[str, ...], directions: Any, transduce: Any, tmp_path: Path
) -> None:
    """From the name of the folder, or as they are given."""
    marian(tmp_path / name)
    outcome = transduce("import", name, "--out", "ours", *options, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert load_model(tmp_path / "ours").facts.get("directions") == directions
    if directions:
        write_lines(tmp_path / "test.tsv", ["a b\tb a"])
        words = ("--to", directions[0][1], "--max-length", "3")
        outcome = transduce("evaluate", "-m", "ours", "--test", "test.tsv", *words, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
    outcome = transduce("import", name, "--out", "other", "--src-lang", "en", cwd=tmp_path)
    assert complaint(outcome).startswith("--src-lang and --tgt-lang are needed together")


def test_marian_translates(transduce: Any, tmp_path: Path) -> None:
    """From the command line: greedy outputs as by transformers; `info` shows where the model comes from."""
    theirs = marian(tmp_path / "original")
    outcome = transduce("import", "original", "--out", "ours", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("ours: marian (Hugging Face), 0.1 million parameters, task translate")
    facts = json.loads(transduce("info", "-m", "ours", "--json", cwd=tmp_path).out)
    assert facts["imported"] == "marian (Hugging Face)"
    assert facts["max_length"] == 63

    folder = tmp_path / "original"
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )
    texts = ["The quick brown fox jumps", "naïve café", "Größe: 12,5", "a b c"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    expected = []
    for text in texts:
        output = theirs.generate(
            **tokenizer([text], return_tensors="pt"), num_beams=1, do_sample=False, max_new_tokens=9, min_new_tokens=1,
            bad_words_ids=[[theirs.config.pad_token_id], [1]],
        )  # fmt: skip
        expected.append(tokenizer.decode(output[0], skip_special_tokens=True))
    assert len(set(expected)) > 1
    words = ("--beam", "1", "--max-length", "9", "--no-protect", "texts.txt")
    outcome = transduce("translate", "-m", "ours", "--engine", "plain", *words, cwd=tmp_path)
    assert outcome.out.splitlines() == expected
    assert transduce("translate", "-m", "ours", "a b c", cwd=tmp_path).code == 0  # with beam search
    outcome = transduce("translate", "-m", "ours", "--engine", "native", "a b c", cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def t5(folder: Path) -> tuple[Any, Any]:
    """With the SentencePiece model only."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(MIXED), model_prefix=str(folder / "spiece"), vocab_size=300, hard_vocab_limit=False,
        minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    config = transformers.T5Config(
        vocab_size=model.get_piece_size() + 110, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config), model.encode


def bart(folder: Path) -> tuple[Any, Any]:
    """With `vocab.json` and `merges.txt`; every source begins with <s>."""
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    content = json.loads(tokenizer.to_str())["model"]
    vocabulary = tokenizer.get_vocab()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in content["merges"]), encoding="utf-8")
    begin, pad, end = (vocabulary[token] for token in ("<s>", "<pad>", "</s>"))
    config = transformers.BartConfig(
        vocab_size=len(vocabulary), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
        bos_token_id=begin, pad_token_id=pad, eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=None,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config), lambda text: [begin, *tokenizer.encode(text).ids]


@pytest.mark.parametrize("make", [t5, bart])
def test_encoder_decoders_translate(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    theirs, encode = make(folder)
    theirs = randomized(theirs, 0.5)
    theirs.save_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    translator = Translator.load(tmp_path / "ours", device="cpu", engine="plain", protect=False)
    tokenizer = translator.tokenizer
    assert isinstance(tokenizer, ImportedTokenizer)
    settings, order = theirs.config, tokenizer.order
    for text in ["The quick brown fox jumps", "naïve café", "Größe: 12,5", "a b c"]:
        ids = torch.tensor([[*encode(text), settings.eos_token_id]])
        output = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=1, do_sample=False, max_new_tokens=9, min_new_tokens=1,
            bad_words_ids=[[order.markers[marker]] for marker in (PAD, UNK)],
        )[0, 1:].tolist()  # fmt: skip
        own = translator.hypotheses([text], beam=1, max_length=9)[0][0]
        expected = [order.ids[token] for token in output if token != settings.eos_token_id]
        assert own.tokens == tokenizer.pieces(expected)
        target = [order.originals[token] for token in tokenizer.target.encode("the lazy dog")]
        with torch.inference_mode():
            given = torch.tensor([[settings.decoder_start_token_id, *target]])
            log_prob_TV = theirs(input_ids=ids, decoder_input_ids=given).logits[0].log_softmax(-1)
        total = sum(log_prob_TV[n, token] for n, token in enumerate([*target, settings.eos_token_id]))
        assert translator.score([text], ["the lazy dog"])[0].log_prob == pytest.approx(float(total), rel=1e-5)


def test_classifiers(tmp_path: Path) -> None:
    """BERT from `vocab.txt`, and ViT, which has no vocabulary: the same logits; the names of classes are kept."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    labels = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
    config = transformers.BertConfig(vocab_size=len(tokens), max_position_embeddings=20, **sizes, **labels)
    theirs = randomized(transformers.BertForSequenceClassification(config))
    theirs.save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(tokens) + "\n")
    saved = imported(tmp_path / "bert", tmp_path / "a")
    assert (saved.facts["task"], saved.facts["labels"]) == ("classify", ["bad", "fair", "good"])
    ids = saved.tokenizer.encode("A bc ?")
    assert saved.tokenizer.pieces(ids) == ["▁a", "▁b", "c", "<unk>"]
    with torch.inference_mode():
        logits = saved.model.logits(saved.model(Batch.of(text=[[BOS, *ids, EOS]])))
        assert_close(logits, theirs(input_ids=torch.tensor([[3, 6, 7, 8, 2, 4]])).logits)

    config = transformers.ViTConfig(**sizes, **labels, image_size=12, patch_size=4, num_channels=3)
    vit = randomized(transformers.ViTForImageClassification(config))
    vit.save_pretrained(tmp_path / "vit")
    saved = imported(tmp_path / "vit", tmp_path / "b")
    assert saved.facts["labels"] == ["bad", "fair", "good"]
    pixels = torch.randint(0, 256, (1, 12, 12, 3), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = saved.model.logits(saved.model(Batch.of(image=[pixels.flatten().tolist()])))
        assert_close(logits, vit(pixel_values=(pixels / 127.5 - 1).permute(0, 3, 1, 2)).logits)


@pytest.mark.parametrize("pooling", ["cls_token", "mean_tokens", "max_tokens", "lasttoken"])
def test_vectors_of_sentence_transformers(pooling: str, tmp_path: Path) -> None:
    """The way to make one vector of a text, and its limit, are those of the folder; others are refused."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
    config = transformers.BertConfig(vocab_size=len(tokens), max_position_embeddings=20, **sizes)
    theirs = randomized(transformers.BertModel(config))
    folder = tmp_path / "bert"
    theirs.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "1_Pooling").mkdir()
    modes = {
        f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    import_model(folder, tmp_path / "ours")
    encoder = TextEncoder.load(tmp_path / "ours", device="cpu", engine="plain")
    ours = torch.from_numpy(encoder.embed(["a bc a a a a a", "b"]))
    assert (encoder.max_length, encoder.texts_cut) == (4, 1)
    pool = {
        "cls_token": lambda x: x[0], "mean_tokens": lambda x: x.mean(0), "max_tokens": lambda x: x.amax(0),
        "lasttoken": lambda x: x[-1],
    }[pooling]  # fmt: skip
    for vector, ids in zip(ours, ([2, 5, 6, 7, 5, 3], [2, 6, 3]), strict=True):
        with torch.inference_mode():
            expected = pool(theirs(input_ids=torch.tensor([ids])).last_hidden_state[0])
        assert_close(vector, expected / expected.norm())
    modes["pooling_mode_weightedmean_tokens"] = True
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    with pytest.raises(
        ModelError, match=f"1_Pooling: the pooling {pooling} and weightedmean_tokens cannot be imported"
    ):
        import_model(folder, tmp_path / "other")


def test_all_end_markers_end_a_text(tmp_path: Path) -> None:
    """A list in `eos_token_id` is kept whole: greedy outputs end where those of transformers end."""
    theirs = gpt2(tmp_path / "original")
    prompt = torch.tensor([[theirs.config.eos_token_id, 5]])
    free = theirs.generate(prompt, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0)[
        0, 2:
    ].tolist()
    end = free[6]
    path = tmp_path / "original" / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [theirs.config.eos_token_id, end]}))
    import_model(tmp_path / "original", tmp_path / "ours")
    generator = Generator.load(tmp_path / "ours", device="cpu", engine="plain")
    order = generator.tokenizer.order  # type: ignore[attr-defined]
    text = generator.tokenizer.decode([order.ids[5]])
    (found,) = generator.generations([text], max_tokens=12, temperature=0.0)[0]
    assert found.finish_reason == "stop"
    expected = [order.ids[token] for token in free[: free.index(end)]]
    assert list(found.tokens) == generator.tokenizer.pieces(expected)


def test_fill_takes_only_its_own_masks(tmp_path: Path) -> None:
    """The mask symbol of the original may be in a text, but is not one of the masks that are asked for."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
    config = transformers.BertConfig(vocab_size=len(tokens), max_position_embeddings=20, **sizes)
    randomized(transformers.BertForMaskedLM(config)).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(tokens) + "\n")
    import_model(tmp_path / "bert", tmp_path / "ours")
    encoder = TextEncoder.load(tmp_path / "ours", device="cpu")
    (filled,) = encoder.fill("a [MASK] b <mask>", top=1)
    assert filled[0].probability == pytest.approx(encoder.fill("a <mask> b <mask>", top=1)[1][0].probability)
    assert filled[0].text.startswith("a [MASK] b ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefix": [10**6]}, "facts.transcribe has tokens that the vocabulary does not have"),
        ({"seconds": 99}, "facts.transcribe.seconds must be between 1 and 2"),
        ({"languages": ["en"], "language_tokens": []}, "facts.transcribe needs one token for each language"),
        ({"prefix": "text"}, "prefix must be"),
        ({"first_time": 3}, "facts.transcribe.first_time must be above the tokens of facts.transcribe.prefix"),
        ({"translate": 5}, "facts.transcribe.prefix has no place for the language or the task"),
    ],
)
def test_damaged_facts(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs, tokenizer = whisper()
    theirs.save_pretrained(tmp_path / "original")
    tokenizer.save(str(tmp_path / "original" / "tokenizer.json"))
    import_model(tmp_path / "original", tmp_path / "ours")
    card = tmp_path / "ours" / "model.json"
    content = json.loads(card.read_text())
    content["facts"]["transcribe"] |= change
    card.write_text(json.dumps(content))
    with pytest.raises(TransduceError, match=message):
        Transcriber.load(tmp_path / "ours")


def test_refusals(transduce: Any, tmp_path: Path) -> None:
    def refused(path: str, out: str = "ours") -> str:
        return complaint(transduce("import", path, "--out", out, cwd=tmp_path))

    assert refused("missing") == "missing: no such file or folder"
    (tmp_path / "empty").mkdir()
    assert refused("empty") == (
        "empty: neither a .gguf or .argosmodel file nor a folder with a config.json or a model of Marian"
    )
    assert refused("empty", "empty") == "empty exists already; name a folder that does not"
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").touch()
    assert refused("page") == "page is a page, which cannot be imported; use the model that was exported to it"
    gpt2(tmp_path / "original")
    folder = tmp_path / "original"
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "mamba"}))
    assert "models of type 'mamba' cannot be imported; use bart, bert" in refused("original")
    (folder / "config.json").write_text(json.dumps(settings | {"n_embd": "wide"}))
    assert refused("original").startswith("original: ")
    (folder / "config.json").write_text(json.dumps(settings | {"n_embd": 10**6, "n_layer": 1}))
    assert refused("original").startswith("original: ")
    for name, value in (("n_positions", "many"), ("n_layer", 10**9), ("n_layer", 1.5), ("n_head", 0), ("n_head", 5)):
        (folder / "config.json").write_text(json.dumps(settings | {name: value}))
        assert refused("original").startswith("original: ")
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": 77}))
    assert refused("original") == "original: config.json: the model has no end marker (eos_token_id)"
    size = settings["vocab_size"]
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": size + 1}))
    expected = f"original: embedding.weight_VD has {size} rows, but the vocabulary has {size + 1} tokens"
    assert refused("original") == expected
    (folder / "config.json").write_text("[]")
    assert refused("original") == "original/config.json: not a JSON object"
    (folder / "config.json").write_text(json.dumps(settings))
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-5])
    assert refused("original") == "original/model.safetensors: not a safetensors file, or damaged; get it again"
    weights.unlink()
    assert refused("original") == "original/model.safetensors: no such file"
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert refused("original").startswith("original/pytorch_model.bin is a pickle, which can run any program")
    (folder / "pytorch_model.bin").unlink()
    weights.write_bytes(content)
    (folder / "tokenizer.json").write_text("{}")
    assert refused("original").startswith("original/tokenizer.json: the tokenizers library cannot read it")
    (folder / "tokenizer.json").unlink()
    assert refused("original").startswith("original: no vocabulary; it needs tokenizer.json")
    assert not (tmp_path / "ours").exists()

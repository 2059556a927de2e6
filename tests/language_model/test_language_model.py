"""Language models through the command line: train, generate, score."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import complaint, copied_until, inspected_header, metrics
from toy_run import as_sets

from transduce import train
from transduce.data.batch import Batch
from transduce.language_model.generator import Generator
from transduce.tokenizers.tokenizer import BOS

TEXT = "".join(f"{number}: the cat sät on the mat.\n" for number in range(200))
SETTINGS: dict[str, Any] = {
    "tokenizer.type": "char", "tokenizer.vocab_size": 100, "data.max_length": 24,
    "model.layers": 2, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.dropout": 0.0,
    "train.batch_tokens": 240, "train.steps": 120, "train.save_every": 40, "train.log_every": 20, "train.warmup": 20,
    "train.learning_rate": 0.01, "train.device": "cpu", "train.samples": 2, "train.average": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TrainedLanguageModel:
    folder: Path
    words: list[str]
    err: str

    @property
    def run(self) -> Path:
        return self.folder / "run"


@pytest.fixture(scope="module")
def trained_text(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainedLanguageModel:
    folder = tmp_path_factory.mktemp("language")
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text(TEXT[-1000:], encoding="utf-8")
    words = ["train", "--text", "train.txt", "--valid", "valid.txt", *as_sets(SETTINGS)]
    outcome = transduce(*words, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return TrainedLanguageModel(folder, words, outcome.err)


def of_kind(run: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in metrics(run) if record["kind"] == kind]


def test_training_validates_by_the_loss_and_reports_samples(trained_text: TrainedLanguageModel) -> None:
    run = trained_text.run
    valid = of_kind(run, "valid")
    assert [record["criterion"] for record in valid] == ["loss"] * 3
    assert valid[-1]["loss"] < valid[0]["loss"] < math.log(40)
    # A token is a character, and EOS is one more token.
    assert valid[-1]["bits_per_character"] == pytest.approx(valid[-1]["loss"] / math.log(2) * 1001 / 1000)
    best = min(valid, key=lambda record: record["loss"])["step"]
    assert (run / "checkpoints" / "best").readlink().name == f"step-{best}"
    report = (run / "report.html").read_text(encoding="utf-8")
    for text in ("Bits per character on the validation set", "<h2>Samples</h2>", "continuation", "loss of the finish"):
        assert text in report
    (final,) = of_kind(run, "final")
    assert final.keys() >= {"valid_loss", "valid_perplexity", "valid_bits_per_character"}
    first, _ = final["samples"]
    assert first["source"] + first["reference"] == TEXT[-1000:-500]
    card = json.loads((run / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["architecture"], card["facts"]["task"]) == ("decoder_only", "language_model")
    assert card["facts"]["data"] == {
        "train": [["train.txt"]], "documents": 1, "text_tokens": len(TEXT) + 1, "valid_documents": 1
    }  # fmt: skip
    assert "data: 1 document, " in trained_text.err


def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(transduce: Any, trained_text: TrainedLanguageModel) -> None:
    resumed = copied_until(trained_text.run, trained_text.folder / "resumed", 80)
    outcome = transduce(*trained_text.words, "--out", "resumed", cwd=trained_text.folder)
    assert "resuming from resumed/checkpoints/step-80" in outcome.err
    for name in ("model", "optimizer"):
        runs = (trained_text.run, resumed)
        first, second = ((run / f"checkpoints/step-120/{name}.safetensors").read_bytes() for run in runs)
        assert first == second


def train_10_steps(transduce: Any, trained_text: TrainedLanguageModel, out: str, shard: str, processes: int) -> Path:
    words = [*trained_text.words, "--set", "train.steps=10", "--set", "train.save_every=5"]
    words += ["--set", f"train.shard={shard}", "--out", out]
    outcome = transduce(*words, cwd=trained_text.folder, processes=processes)
    assert outcome.code == 0, outcome.err
    return trained_text.folder / out


@pytest.fixture(scope="module")
def by_one_process(transduce: Any, trained_text: TrainedLanguageModel) -> Path:
    return train_10_steps(transduce, trained_text, "one", "false", 1)


@pytest.mark.parametrize("shard", ["false", "true"])
def test_two_processes_train_the_same_model(
    transduce: Any, trained_text: TrainedLanguageModel, by_one_process: Path, shard: str
) -> None:
    run = train_10_steps(transduce, trained_text, f"two-{shard}", shard, 2)
    one, two = ([record["loss"] for record in of_kind(path, "valid")] for path in (by_one_process, run))
    assert len(one) == 2
    assert one == pytest.approx(two, rel=0.01)
    (final,) = of_kind(run, "final")
    assert len(final["samples"]) == 2


@pytest.mark.parametrize("style", ["gpt2", "llama"])
def test_styles_train_and_generate(transduce: Any, trained_text: TrainedLanguageModel, style: str) -> None:
    words = ["train", "--text", "train.txt", "--style", style, "--preset", "tiny", "--out", style]
    sets = {"tokenizer.vocab_size": 420, "data.max_length": 20, "train.steps": 3, "train.batch_tokens": 60}
    outcome = transduce(
        *words, *as_sets(sets | {"train.warmup": 1, "train.learning_rate": 1e-3}), cwd=trained_text.folder
    )
    assert outcome.code == 0, outcome.err
    card = json.loads((trained_text.folder / style / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["model"]["layers"], card["model"]["d_model"]) == (2, 128)
    assert card["model"]["positions"] == {"gpt2": "learned", "llama": "rotary"}[style]
    words = ["generate", "-m", style, "7: the", "--max-tokens", "40", "--seed", "1"]
    first, again = (transduce(*words, cwd=trained_text.folder) for _ in range(2))
    assert first.out == again.out
    assert first.out.startswith("7: the")


def test_a_language_model_is_fine_tuned_with_its_vocabulary(
    transduce: Any, trained_text: TrainedLanguageModel, trained: Any
) -> None:
    (trained_text.folder / "more.txt").write_text("the mat sät on the cat.\n" * 20, encoding="utf-8")
    common = ["--start-from", "run", "--set", "train.learning_rate=1e-3", "--set", "train.steps=2"]
    context = ["--set", "data.max_length=24", "--set", "train.batch_tokens=48"]
    words = ["train", "--text", "more.txt", *common, *context, "--out", "tuned"]
    outcome = transduce(*words, cwd=trained_text.folder)
    assert outcome.code == 0, outcome.err
    files = [(trained_text.folder / run / "model" / "tokenizer.model").read_bytes() for run in ("run", "tuned")]
    assert files[0] == files[1]
    pairs = ["--src", trained.folder / "train.src", "--tgt", trained.folder / "train.tgt"]
    refused = transduce("train", *pairs, *common, "--out", "translator", cwd=trained_text.folder)
    assert "the task translate needs a model of pairs, not of the architecture decoder_only" in complaint(refused)


# Generation


def test_generate_prints_the_prompt_and_its_continuation(transduce: Any, trained_text: TrainedLanguageModel) -> None:
    words = ["generate", "-m", "run", "--temperature", "0", "--max-tokens", "9"]
    outcome = transduce(*words, "7: the cat s", cwd=trained_text.folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "7: the cat sät on the\n"
    several = transduce(*words, "7: the", "8: the", "--num", "2", cwd=trained_text.folder)
    assert several.out == "---\n".join(["7: the cat sät \n"] * 2 + ["8: the cat sät \n"] * 2)


def test_generate_tells_what_the_model_does_not_read(transduce: Any, trained_text: TrainedLanguageModel) -> None:
    prompt = "the cat sat " * 300
    words = ["generate", "-m", "run", "the cat", prompt, "--max-tokens", "2"]
    outcome = transduce(*words, cwd=trained_text.folder)
    assert outcome.code == 0
    assert prompt in outcome.out
    (message,) = outcome.err.splitlines()
    assert re.fullmatch(
        r"transduce: warning: prompt 2 is too long for the context of \d+ tokens; the model does not read its first "
        r"[\d,]+",
        message,
    )


def test_generate_reads_prompts_from_standard_input_and_writes_json(
    transduce: Any, trained_text: TrainedLanguageModel
) -> None:
    words = ["generate", "-m", "run", "--json", "--stop", "mat", "--stop", "xyz", "--num", "2", "--seed", "3"]
    outcome = transduce(*words, "--top-k", "5", stdin="1: the\n2: the cat\n", cwd=trained_text.folder)
    assert outcome.code == 0, outcome.err
    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert [record["prompt"] for record in records] == ["1: the"] * 2 + ["2: the cat"] * 2
    generator = Generator.load(trained_text.run, device="cpu")
    expected = generator.generations(["1: the"], num=2, stop=["mat", "xyz"], seed=3, top_k=5)[0]
    assert [record["text"] for record in records[:2]] == [one.text for one in expected]
    for record in records:
        assert "mat" not in record["text"]
        assert len(record["tokens"]) == len(record["token_log_probs"])
        assert record["finish_reason"] in ("stop", "length")


def test_the_native_engine_generates_almost_the_same(transduce: Any, trained_text: TrainedLanguageModel) -> None:
    words = ["generate", "-m", "run", "--temperature", "0", "--max-tokens", "9", "--json", "--threads", "2"]
    native, plain = (
        transduce(*words, "--engine", engine, "7: the cat s", cwd=trained_text.folder) for engine in ("native", "plain")
    )
    if "engine native needs" in native.err:
        pytest.skip("no C compiler")
    assert (native.code, native.err) == (0, "")
    ours, theirs = json.loads(native.out), json.loads(plain.out)
    assert ours["text"] == theirs["text"] == "ät on the"
    assert ours["token_log_probs"] == pytest.approx(theirs["token_log_probs"], abs=0.1)
    assert ours["token_log_probs"] != theirs["token_log_probs"]  # 8-bit integers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "x"], "name a language model with -m"),
        (["generate", "-m", "nothing", "x"], "nothing: no such folder"),
        (["generate", "-m", "run", "x", "--temperature", "-1"], "temperature must be between 0 and 1000"),
        (["generate", "-m", "run", "\udcff"], "is not UTF-8; set the terminal's encoding to UTF-8"),
        (["generate", "-m", "run", "train.txt"], "train.txt is a file, but prompts are texts; to continue each of its"),
        (["generate", "-m", "run", "x", "--stop", "a", "--stop", ""], "stop must not be empty"),
        (["generate", "-m", "run", "x", "--min-p", "2"], "--min-p must be between 0 and 1"),
        (["generate", "-m", "run", "x", "--engine", "fast"], "engine must be one of auto, plain, native, gpu"),
        (["generate", "-m", "run", "x", "--device", "cpu", "--engine", "gpu"], "engine gpu needs a CUDA GPU"),
        (["score", "-m", "run"], "give the text to score"),
        (["score", "-m", "run", "--src", "a", "--tgt", "b"], "--src is for translation models"),
        (["score", "-m", "run", "valid.txt", "--stride", "25"], "stride must be an integer between 1 and 24"),
        (["score", "-m", "run", "nothing.txt"], "nothing.txt: no such file"),
        (["score", "-m", "run", "/dev/null"], "/dev/null: no text, so there is no perplexity"),
        (["translate", "-m", "run", "x"], "run/model was trained for the task language_model"),
        (["serve", "-m", "run", "--shortlist", "--port", "0"], "--shortlist has no effect on language models"),
        (["train", "--text", "train.txt", "--src", "a", "--out", "new"], "text cannot be given beside pairs"),
        (["train", "--text", "nothing.txt", "--out", "new"], "nothing.txt: no such file"),
        (["train", "--text", "pairs.tsv", "--out", "new"], "pairs.tsv is a file of pairs or rows"),
        (["score", "-m", "run", "pairs.tsv"], "pairs.tsv is a file of pairs or rows"),
        (["score", "-m", "run", "pairs.tsv", "--document"], "pairs.tsv is a file of pairs or rows"),
    ],
)
def test_mistakes_are_one_line(
    transduce: Any, trained_text: TrainedLanguageModel, words: list[str], message: str
) -> None:
    (trained_text.folder / "pairs.tsv").write_text("the cat\tdie Katze\n")
    assert message in complaint(transduce(*words, cwd=trained_text.folder))


def test_options_of_language_models_are_refused_for_translation_models(transduce: Any, trained: Any) -> None:
    words = ["-m", trained.run, "--test", "x.tsv", "--stride", "4"]
    assert "--stride is for language models" in complaint(transduce("score", *words, cwd=trained.folder))
    outcome = transduce("generate", "-m", trained.run, "x", cwd=trained.folder)
    assert "was trained for the task translate; it is not a language model" in complaint(outcome)


# Scores


def defined(generator: Generator, text: str, context: int, stride: int) -> list[float]:
    """The log-probability of each token of a text, each window read from its beginning."""
    ids = [BOS, *generator.tokenizer.encode(text)]
    found: list[float] = []
    for first in range(0, len(ids), stride):
        window = ids[first : first + context + 1]
        with torch.inference_mode():
            log_prob_TV = generator.model.logits(generator.model(Batch.of(text=[window]))).log_softmax(-1)
        found += [
            log_prob_TV[place - 1, window[place]].item()
            for place in range(1, len(window))
            if first + place - 1 >= len(found)
        ]
    return found


def test_score_prints_the_log_probability_of_each_line(transduce: Any, trained_text: TrainedLanguageModel) -> None:
    outcome = transduce("score", "-m", "run", "valid.txt", "--per-token", cwd=trained_text.folder)
    assert outcome.code == 0, outcome.err
    generator = Generator.load(trained_text.run, device="cpu")
    lines = TEXT[-1000:].splitlines()
    expected = [defined(generator, line, 24, 12) for line in lines]
    rows = [tuple(map(float, line.split("\t"))) for line in outcome.out.splitlines()]
    assert rows == [pytest.approx((sum(one), sum(one) / len(one)), abs=2e-3) for one in expected]
    total, tokens = sum(map(sum, expected)), sum(map(len, expected))
    assert f"{len(lines)} texts, {tokens:,} tokens: log-probability {total:.2f}" in outcome.err
    assert f"perplexity {math.exp(-total / tokens):.2f}, {-total / tokens / math.log(2):.3f} bits" in outcome.err


@pytest.mark.parametrize("stride", [6, 24])
def test_a_document_is_scored_in_windows(transduce: Any, trained_text: TrainedLanguageModel, stride: int) -> None:
    words = ["score", "-m", "run", "--document", "--stride", str(stride), "--jsonl", "valid.txt"]
    outcome = transduce(*words, cwd=trained_text.folder)
    record = json.loads(outcome.out)
    generator = Generator.load(trained_text.run, device="cpu")
    assert record["text"] == TEXT[-1000:]
    assert record["token_log_probs"] == pytest.approx(defined(generator, record["text"], 24, stride), abs=1e-3)


def test_rows_are_texts(transduce: Any, trained_text: TrainedLanguageModel, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    arrow = pytest.importorskip("pyarrow")
    texts = ["1: the\n2: the", "cat"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parquet.write_table(arrow.table({"text": texts}), tmp_path / "rows.parquet")
    ours, theirs = (
        transduce("score", "-m", "run", tmp_path / name, cwd=trained_text.folder).out
        for name in ("rows.jsonl", "rows.parquet")
    )
    assert len(ours.splitlines()) == 2
    assert ours == theirs


# Settings


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.architecture=encoder_decoder", "the task language_model needs another model"),
        ("model.architecture=recurrent", "the task language_model needs another model"),
        ("train.bpe_dropout=0.1", "bpe_dropout"),
        ("data.reverse=true", "data.reverse: for pairs of texts; the task language_model has none"),
        ("augment.capitals=0.1", "augment"),
        ("train.batch_tokens=15", "train.batch_tokens is 15, but an example has 256 tokens"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path: Path, assignment: str, message: str) -> None:
    (tmp_path / "train.txt").write_text(TEXT, encoding="utf-8")
    with pytest.raises(Exception, match=message) as error:
        train(tmp_path / "run", text=tmp_path / "train.txt", preset="tiny", sets=[assignment])
    assert type(error.value).__name__ == "ConfigError"
    assert not (tmp_path / "run").exists()


def test_learned_positions_limit_the_context(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(TEXT, encoding="utf-8")
    settings = SETTINGS | {"model.positions": "learned", "model.max_positions": 24, "train.steps": 2}
    train(tmp_path / "run", text=tmp_path / "train.txt", settings=settings)
    generator = Generator.load(tmp_path / "run", device="cpu")
    assert len(generator.generations(["1: the cat"], max_tokens=60, seed=2)[0][0].tokens) > 30
    with pytest.raises(Exception, match="a text of 25 tokens exceeds the 24 learned positions"):
        train(tmp_path / "longer", text=tmp_path / "train.txt", settings=settings | {"data.max_length": 25})


def test_inspect_writes_a_page_of_the_text(transduce: Any, trained_text: TrainedLanguageModel, tmp_path: Path) -> None:
    text = "7: the cat sät"
    outcome = transduce("inspect", "-m", "run", text, "-o", tmp_path / "look.html", cwd=trained_text.folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0] == text
    header = inspected_header(tmp_path / "look.html")
    assert (header["kind"], header["text"]) == ("language_model", text)
    assert len(header["source"]) == len(header["target"]) == len(text) + 1
    (score,) = Generator.load(trained_text.run, device="cpu", engine="plain").score([text])
    assert header["next"]["written"][:-1] == pytest.approx(score.token_log_probs, abs=1e-3)
    assert header["log_prob"] == pytest.approx(score.log_prob, abs=1e-3)
    for words, reason in [
        (["--beam", "2"], "--beam is for translation models"),
        (["--off", "cross.1.1"], "--off is for translation models"),
    ]:
        assert reason in complaint(transduce("inspect", "-m", "run", text, *words, cwd=trained_text.folder))
    assert "at most 24 can be inspected" in complaint(
        transduce("inspect", "-m", "run", text * 9, cwd=trained_text.folder)
    )

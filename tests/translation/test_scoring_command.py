"""Scores fit the language, several validation files and references are all scored, and the criterion can be chosen."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from commands import complaint, copied, metrics, sets
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

JAPANESE = {
    "refs": ["猫が水を飲んでいる。", "私は昨日東京へ行きました。", "この本はとても面白いです。"],
    "hyps": ["猫が水を飲んでいます。", "私は昨日東京に行きました。", "この本は面白いです。"],
}
CHINESE = {"refs": ["我昨天去了北京。", "这本书很有意思。"], "hyps": ["我昨天去北京了。", "这本书非常有意思。"]}
KOREAN = {
    "refs": ["나는 어제 서울에 갔습니다.", "이 책은 매우 재미있습니다."],
    "hyps": ["나는 어제 서울로 갔습니다.", "이 책은 재미있습니다."],
}
THAI = {"refs": ["เมื่อวานฉันไปกรุงเทพฯ", "หนังสือเล่มนี้สนุกมาก"], "hyps": ["เมื่อวานผมไปกรุงเทพฯ", "หนังสือเล่มนี้สนุก"]}
GERMAN = {
    "refs": ["Gestern war ich in Berlin.", "Das Buch ist gut."],
    "hyps": ["Gestern war ich in Bonn.", "Das Buch ist gut."],
}


def write_test_set(folder: Path, lines: dict[str, list[str]]) -> None:
    write_lines(folder / "ref.txt", lines["refs"])
    write_lines(folder / "hyp.txt", lines["hyps"])


def evaluate(transduce: Any, folder: Path, *words: str | Path) -> list[dict[str, Any]]:
    outcome = transduce("evaluate", "--ref", "ref.txt", "--hyp", "hyp.txt", *words, "--json", cwd=folder)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


# evaluate


@pytest.mark.parametrize(
    ("lines", "tokenizer", "language"),
    [
        (JAPANESE, "ja-mecab", "Japanese"),
        (CHINESE, "zh", "Chinese"),
        (KOREAN, "ko-mecab", "Korean"),
        (THAI, "char", "Thai"),
        (GERMAN, "13a", None),
    ],
)
def test_evaluate_chooses_the_tokenizer_by_the_script_and_scores_as_sacrebleu_does(
    transduce: Any, tmp_path: Path, lines: dict[str, list[str]], tokenizer: str, language: str | None
) -> None:
    write_test_set(tmp_path, lines)
    outcome = transduce("evaluate", "--ref", "ref.txt", "--hyp", "hyp.txt", "--json", cwd=tmp_path)
    reason = f"transduce: BLEU with sacreBLEU's tokenizer {tokenizer} (the references are in {language})\n"
    assert (outcome.code, outcome.err) == (0, reason if language else "")
    bleu, chrf, _ = json.loads(outcome.out)
    metric = sacrebleu.BLEU(tokenize=tokenizer)
    assert bleu["value"] == metric.corpus_score(lines["hyps"], [lines["refs"]]).score > 0
    assert bleu["signature"] == str(metric.get_signature())
    assert chrf["value"] == sacrebleu.corpus_chrf(lines["hyps"], [lines["refs"]]).score


@pytest.mark.parametrize("lines", [JAPANESE, CHINESE])
def test_words_of_ter_are_characters_in_chinese_and_japanese(
    transduce: Any, tmp_path: Path, lines: dict[str, list[str]]
) -> None:
    write_test_set(tmp_path, lines)
    ter = evaluate(transduce, tmp_path)[2]
    metric = sacrebleu.TER(normalized=True, asian_support=True)
    assert ter["value"] == metric.corpus_score(lines["hyps"], [lines["refs"]]).score < 60
    assert ter["signature"] == str(metric.get_signature())


def test_evaluate_takes_a_tokenizer(transduce: Any, tmp_path: Path) -> None:
    write_test_set(tmp_path, JAPANESE)
    for tokenizer in ("char", "13a", "intl"):
        bleu = evaluate(transduce, tmp_path, "--tokenize", tokenizer)[0]
        metric = sacrebleu.BLEU(tokenize=tokenizer)
        assert bleu["value"] == metric.corpus_score(JAPANESE["hyps"], [JAPANESE["refs"]]).score
        assert bleu["signature"] == str(metric.get_signature())
    assert "13a" in transduce("evaluate", "--tokenize", "13b", cwd=tmp_path).err


def test_evaluate_chooses_the_tokenizer_by_the_language_of_the_model(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text(encoding="utf-8"))
    card["facts"]["directions"] = [["en", "th"]]
    (model / "model.json").write_text(json.dumps(card), encoding="utf-8")
    files = ["--src", trained.folder / "valid.src", "--ref", trained.folder / "valid.tgt"]
    outcome = transduce("evaluate", "-m", "model", *files, cwd=tmp_path)
    assert "char (the target language is th)" in outcome.err
    assert "tok:char" in outcome.out


@pytest.mark.parametrize(("lines", "module", "extra"), [(JAPANESE, "MeCab", "ja"), (KOREAN, "mecab_ko", "ko")])
def test_a_missing_package_is_named_before_anything_is_translated(
    transduce: Any, trained: Any, tmp_path: Path, lines: dict[str, list[str]], module: str, extra: str
) -> None:
    write_test_set(tmp_path, lines)
    words = ("evaluate", "-m", trained.run, "--src", "hyp.txt", "--ref", "ref.txt")
    outcome = transduce(*words, cwd=tmp_path, before=f"import sys; sys.modules['{module}'] = None")
    assert f"pip install 'transduce[{extra}]', or choose another one, e.g. --tokenize char" in complaint(outcome)


def test_an_empty_line_of_several_references_is_none(transduce: Any, tmp_path: Path) -> None:
    write_test_set(tmp_path, GERMAN)
    write_lines(tmp_path / "second.txt", ["", "Dieses Buch ist gut."])
    references = [GERMAN["refs"], [None, "Dieses Buch ist gut."]]
    for one, metric in zip(
        evaluate(transduce, tmp_path, "--ref", "second.txt"),
        (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()),
        strict=True,
    ):
        assert one["value"] == metric.corpus_score(GERMAN["hyps"], references).score
        assert "nrefs:var" in one["signature"]


def test_several_references_are_scored_together(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_test_set(tmp_path, GERMAN)
    second = ["Ich war gestern in Bonn.", "Dieses Buch ist gut."]
    write_lines(tmp_path / "second.txt", second)
    metric = sacrebleu.BLEU()
    expected = metric.corpus_score(GERMAN["hyps"], [GERMAN["refs"], second]).score
    bleu = evaluate(transduce, tmp_path, "--ref", "second.txt")[0]
    assert (bleu["value"], bleu["signature"]) == (expected, str(metric.get_signature()))
    assert "nrefs:2" in bleu["signature"]
    shutil.copy(tmp_path / "second.txt", tmp_path / "other.txt")
    refs = ("--ref", "ref.txt", "--ref", "second.txt")
    compared = transduce("evaluate", *refs, "--hyp", "hyp.txt", "--hyp", "other.txt", "--json", cwd=tmp_path)
    assert json.loads(compared.out)["comparisons"][0]["value"] == pytest.approx(expected)
    (tmp_path / "short.txt").write_text("Gut.\n")
    short = complaint(transduce("evaluate", "--hyp", "hyp.txt", "--ref", "ref.txt", "--ref", "short.txt", cwd=tmp_path))
    assert "ref.txt has 2 lines, short.txt 1" in short


@pytest.mark.parametrize(
    "words", [("--hyp", "rows.jsonl", "--ref", "ref.txt"), ("--hyp", "hyp.txt", "--ref", "rows.jsonl")]
)
def test_rows_are_not_scored_as_lines(transduce: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    write_test_set(tmp_path, GERMAN)
    write_lines(tmp_path / "rows.jsonl", [json.dumps({"translations": [{"text": line}]}) for line in GERMAN["hyps"]])
    assert complaint(transduce("evaluate", *words, cwd=tmp_path)).startswith("rows.jsonl is a file of pairs or rows")


def test_a_test_set_in_one_file_excludes_other_references(transduce: Any, tmp_path: Path) -> None:
    write_test_set(tmp_path, GERMAN)
    (tmp_path / "test.tsv").write_text("a\tb\nc\td\n")
    outcome = transduce("evaluate", "--test", "test.tsv", "--ref", "ref.txt", "--hyp", "hyp.txt", cwd=tmp_path)
    assert "--test has both sides" in complaint(outcome)


def test_evaluate_shows_its_progress_in_a_terminal(transduce: Any, trained: Any) -> None:
    words = ("evaluate", "-m", "run", "--src", "valid.src", "--ref", "valid.tgt")
    shown = transduce(*words, cwd=trained.folder, before="import sys; sys.stderr.isatty = lambda: True")
    assert "/20" in shown.err
    hidden = transduce(*words, cwd=trained.folder)
    assert "/20" not in hidden.err
    assert shown.out == hidden.out


# Validation while training


def japanese_pairs() -> list[tuple[str, str]]:
    """Sentences of three words, in Latin letters and in Japanese."""
    subjects = {"neko": "猫", "inu": "犬", "kodomo": "子供", "sensei": "先生", "watashi": "私"}
    objects = {"mizu": "水", "ocha": "お茶", "miruku": "ミルク", "suupu": "スープ"}
    verbs = {"nomu": "飲む", "nonda": "飲んだ", "miru": "見る", "mita": "見た"}
    return [
        (f"{s} {o} {v}", f"{subjects[s]}が{objects[o]}を{verbs[v]}。") for s in subjects for o in objects for v in verbs
    ]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Path:
    return write_lines(path, [f"{source}\t{target}" for source, target in pairs])


@pytest.fixture
def japanese(tmp_path: Path) -> list[str]:
    pairs = japanese_pairs()
    write_pairs(tmp_path / "train.tsv", pairs)
    write_pairs(tmp_path / "valid.tsv", pairs[::9])
    changes = {"train.steps": 120, "train.save_every": 60, "train.valid_sentences": 9, "train.samples": 9}
    return ["train", "--train", "train.tsv", "--valid", "valid.tsv", "--preset", "tiny", *as_sets(TINY | changes)]


def test_validation_of_japanese_is_scored_by_its_words(transduce: Any, tmp_path: Path, japanese: list[str]) -> None:
    outcome = transduce(*japanese, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "tokenizer ja-mecab (the references are in Japanese)" in outcome.err
    last = [record for record in metrics(tmp_path / "run") if record["kind"] == "valid"][-1]
    outputs, references = ([sample[key] for sample in last["samples"]] for key in ("output", "reference"))
    assert last["tokenizer"] == "ja-mecab"
    assert last["bleu"] == sacrebleu.corpus_bleu(outputs, [references], tokenize="ja-mecab").score > 0
    assert sacrebleu.corpus_bleu(outputs, [references], tokenize="13a").score == 0


def test_a_missing_package_is_named_before_the_training_text_is_read(
    transduce: Any, tmp_path: Path, japanese: list[str]
) -> None:
    missing = "import sys; sys.modules['MeCab'] = None"
    outcome = transduce(*japanese, "--out", "run", cwd=tmp_path, before=missing)
    expected = "pip install 'transduce[ja]', or choose another one, e.g. --set train.bleu_tokenizer=char"
    assert expected in complaint(outcome)
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
    changes = sets(bleu_tokenizer="char", steps=2, save_every=2)
    other = transduce(*japanese, *changes, "--out", "run", cwd=tmp_path, before=missing)
    assert other.code == 0
    assert "tokenizer char (as set)" in other.err


def test_the_target_language_selects_the_tokenizer(transduce: Any, tmp_path: Path, japanese: list[str]) -> None:
    changes = [*sets(steps=2, save_every=2), "--set", "data.tgt_lang=zh"]
    outcome = transduce(*japanese, *changes, "--out", "run", cwd=tmp_path)
    assert "tokenizer zh (the target language is zh)" in outcome.err


def valid_records(run: Path) -> list[dict[str, Any]]:
    return [record for record in metrics(run) if record["kind"] == "valid"]


def best_step(run: Path) -> int:
    return int((run / "checkpoints" / "best").readlink().name.removeprefix("step-"))


@pytest.mark.parametrize("criterion", ["bleu", "chrf", "loss"])
def test_the_criterion_selects_the_best_checkpoint(
    transduce: Any, trained: Any, tmp_path: Path, criterion: str
) -> None:
    words = (*trained.words, *sets(criterion=criterion, steps=30, save_every=3, keep=10, average=1))
    assert transduce(*words, "--out", "run", cwd=tmp_path).code == 0
    records = valid_records(tmp_path / "run")
    assert {record["criterion"] for record in records} == {criterion}
    assert all(("chrf" in record) == (criterion == "chrf") for record in records)
    sign = -1 if criterion == "loss" else 1
    best = max(records, key=lambda record: (sign * record[criterion], -record["loss"]))
    assert best_step(tmp_path / "run") == best["step"] == records[-1]["best_step"]
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    name = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}[criterion]
    assert f"step of the best checkpoint, by {name}" in report


def test_equal_scores_are_decided_by_the_loss_even_if_the_run_is_resumed(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    # The learning rate is so small that the outputs, and therefore BLEU, stay the same while the loss falls.
    words = (*trained.words, *sets(save_every=2, keep=9, average=1, learning_rate_scale=0.001))
    for run, ends in (("whole", [12]), ("resumed", [4, 12])):
        for steps in ends:
            assert transduce(*words, *sets(steps=steps), "--out", run, cwd=tmp_path).code == 0
        records = valid_records(tmp_path / run)
        assert len({record["bleu"] for record in records}) == 1
        lowest = min(records, key=lambda record: record["loss"])["step"]
        assert best_step(tmp_path / run) == lowest > 2


def test_each_validation_file_is_scored_and_all_together(transduce: Any, trained: Any, tmp_path: Path) -> None:
    easy, unlike = make_toy_pairs(6, seed=2), [(source, "xyz " * 4) for source, _ in make_toy_pairs(5, seed=3)]
    write_pairs(tmp_path / "easy.tsv", easy)
    write_pairs(tmp_path / "unlike.tsv", unlike)
    words = [*trained.words[: trained.words.index("--valid-src")]]
    words += ["--valid", tmp_path / "easy.tsv", "--valid", tmp_path / "unlike.tsv"]
    words += [*trained.words[trained.words.index("--preset") :], *sets(samples=99, steps=20, save_every=10)]
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    for record in valid_records(tmp_path / "run"):
        pairs = [(sample["output"], sample["reference"]) for sample in record["samples"]]
        assert [reference for _, reference in pairs] == [target for _, target in (*easy[:4], *unlike[:4])]
        for name, part in (("easy.tsv", pairs[:4]), ("unlike.tsv", pairs[4:]), (None, pairs)):
            scores = record["files"][name] if name else record
            outputs, references = zip(*part, strict=True)
            assert scores["bleu"] == sacrebleu.corpus_bleu(outputs, [references]).score
        assert f"(easy.tsv {record['files']['easy.tsv']['bleu']:.2f}, unlike.tsv 0.00)" in outcome.err
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    final = metrics(tmp_path / "run")[-1]
    cells = re.sub("<td[^>]*>", "|", report)
    assert f"|easy.tsv|{final['files']['easy.tsv']['bleu']:.2f}<tr>|unlike.tsv|0.00" in cells


def test_a_checkpoint_without_the_loss_of_the_best_step_still_resumes(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    run = copied(trained, tmp_path)
    state = run / "checkpoints" / "step-60" / "state.json"
    manifest = run / "checkpoints" / "step-60" / "manifest.json"
    old = json.loads(state.read_text())
    del old["best_loss"]
    state.write_text(json.dumps(old))
    from transduce.disk import write_manifest

    manifest.unlink()
    write_manifest(state.parent)
    words = (*trained.words, *sets(steps=64, save_every=4), "--out", run)
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "resuming from" in outcome.err

"""`transduce export --to web`: what the folder contains, the package that runs it in Node, and models it refuses."""

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_level_vocabularies import byte_level_tokenizer
from commands import complaint
from fault_injection import FULL
from helpers import needs_node, small_language_model, small_model

from transduce.cli.shrink import shrink_model
from transduce.inspect.heads import head_numbers
from transduce.inspect.inspection import inspect_translation, score_reference
from transduce.inspect.request import HeadRequest, InspectionRequest
from transduce.inspect.serialize import serialize
from transduce.language_model.generator import Generator
from transduce.models.folder import BUNDLED, CARD, save_model
from transduce.translation.translator import Translator
from transduce.web.byte_level import BYTE_LEVEL
from transduce.web.site import PIECE, POLICY, export_site

ROOT = Path(__file__).parents[2]
PROTECTED = "Please visit https://example.com/a?b=1 and write to anna@example.org. See (www.example.com/x)."
TEXTS = [
    "Where is the station?",
    PROTECTED,
    "https://example.com",
    "Dr. Brown met Mr. Smith. They talked.\n\n  Good night!  ",
    "",
]
FACTS = {"directions": [["aa", "bb"]], "by_sentence": True}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "site"
    export_site([("bundled", BUNDLED)], folder)
    return folder


def run_package(folder: Path, code: str, kind: str = "Translator") -> Any:
    """Run code with a translator or generator `t` in Node; returns what it prints as JSON, or the error's message."""
    script = f"""
        import {{ {kind} }} from {json.dumps(str(ROOT / "web/package/src/index.js"))};
        const print = (value) => console.log(JSON.stringify(value));
        try {{
            const t = await {kind}.load({json.dumps(folder.as_uri())} + "/");
            {code}
        }} catch (failure) {{
            print(`${{failure.name}}: ${{failure.message}}`);
        }}"""
    command = ["node", "--input-type=module", "-e", script]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120).stdout)


def assembled(site: Path, name: str) -> bytes:
    manifest = json.loads((site / "model/manifest.json").read_text(encoding="utf-8"))
    pieces = [(site / "model" / piece["name"]).read_bytes() for piece in manifest["files"][name]["pieces"]]
    digests = [piece["sha256"] for piece in manifest["files"][name]["pieces"]]
    assert [hashlib.sha256(piece).hexdigest() for piece in pieces] == digests
    assert max(map(len, pieces)) <= PIECE
    return b"".join(pieces)


def test_a_site_has_the_files_of_the_model_in_pieces(site: Path) -> None:
    for name in ("model.json", "model.safetensors", "tokenizer.model"):
        assert assembled(site, name) == (BUNDLED / name).read_bytes()
    assert (site / "README.md").read_bytes() == (BUNDLED / "README.md").read_bytes()
    assert (site / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_its_page_names_only_files_of_the_site_and_has_a_strict_policy(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    for address in re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page):
        assert (site / address).is_file()
    assert f'content="{POLICY}"' in page
    assert "unsafe-eval'" not in POLICY.replace("wasm-unsafe-eval'", "")
    assert "unsafe-inline" not in POLICY
    shell = json.loads(re.search(r"SHELL = (.*);", (site / "service-worker.js").read_text(encoding="utf-8"))[1])  # type: ignore[index]
    assert all((site / path).exists() for path in shell)


def test_the_command_writes_a_site_of_the_bundled_model(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("export", "--to", "web", "--out", "site", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "a page that translates en to de, de to en, en to fr, fr to en" in outcome.out
    assert (tmp_path / "site/index.html").exists()
    again = transduce("export", "--to", "web", "--out", "site", cwd=tmp_path)
    assert complaint(again) == "site exists already; name a folder that does not"
    refused = transduce("export", "--to", "web", "--out", "other", "--target", "de", cwd=tmp_path)
    assert complaint(refused) == "--target has no effect with --to web; leave it out"


@needs_node
class TestInNode:
    def test_translations_are_those_of_the_translator(self, site: Path) -> None:
        translator = Translator.load(engine="native")
        expected = translator.translate(TEXTS, to="de")
        found = run_package(site, f"""
            const single = await t.translate({json.dumps(TEXTS[0])}, {{ to: "de" }});
            const all = await t.translate({json.dumps(TEXTS)}, {{ to: "de" }});
            const options = {{ to: "fr", nbest: 2, words: true, align: true }};
            const [detail] = await t.translateInDetail(["The cat sleeps."], options);
            const others = await t.alternatives("The cat sleeps.", "Le chat dort.", 3, {{ to: "fr" }});
            print({{ single, all, detail, others, language: await t.detect("Wo ist der Bahnhof?"), facts: t.facts }});
        """)  # fmt: skip
        assert found["single"] == expected[0]
        assert found["all"] == expected
        (sentence,) = found["detail"]["sentences"]
        assert len(sentence["outputs"]) == 2
        assert sentence["outputs"][0]["score"] > sentence["outputs"][1]["score"]
        words = translator.hypotheses(["The cat sleeps."], to="fr", confidence=True)[0][0].word_confidences
        assert sentence["words"] == pytest.approx(words, abs=0.02)
        assert [[4, 7], [3, 7]] in [[[a + (a == 3), b], [c + (c == 2), d]] for (a, b), (c, d) in sentence["aligned"]]
        assert found["others"][0]["text"] == "Le chat dort."
        assert {other["word"] for other in found["others"]} >= {"chat", "chatte"}
        assert found["language"]["language"] == "de"
        assert found["facts"]["directions"][0] == ["en", "de"]

    def test_a_request_can_be_aborted_and_mistakes_are_named(self, site: Path) -> None:
        found = run_package(site, """
            const reason = (work) => work.then(() => "no error", (failure) => `${failure.name}: ${failure.message}`);
            const long = Array(50).fill("The green house of my uncle stands on a hill near the sea.");
            const aborted = await reason(t.translate(long, { to: "de", signal: AbortSignal.timeout(1) }));
            const language = await reason(t.translate("Hello", { to: "xx" }));
            const beam = await reason(t.translate("Hello", { to: "de", beam: 0 }));
            const type = await reason(t.translate(5));
            print({ aborted, language, beam, type, after: await t.translate("Good morning!", { to: "de" }) });
        """)  # fmt: skip
        assert found["aborted"].startswith("TimeoutError: ")
        assert found["language"] == "EngineError: this model does not translate to xx; it translates to de, en, fr"
        assert found["beam"].startswith("EngineError: beam and nbest must be numbers from 1 to 16")
        assert found["type"] == "TypeError: translate takes a string or a list of strings"
        assert found["after"] == "Guten Morgen!"

    def test_terms_and_numbers_come_back_as_required(self, site: Path) -> None:
        text = "The station has 4711 seats, and the Station of OldTown has A380 seats."
        terms = {"station": "Haltepunkt", "OldTown": "Altstadtdorf", "seat": "Hocker"}
        found = run_package(site, f"""
            const options = {{ to: "de", glossary: {json.dumps(terms)}, words: true, align: true }};
            const [detail] = await t.translateInDetail([{json.dumps(text)}], options);
            print({{ detail, plain: await t.translate({json.dumps(text)}, {{ to: "de" }}) }});
        """)  # fmt: skip
        output = found["detail"]["text"]
        assert output.count("Haltepunkt") == 2
        assert all(word in output for word in ("Altstadtdorf", "4711", "A380"))
        assert "Hocker" not in output  # "seats" is another word
        assert len(found["detail"]["sentences"][0]["words"]) == len(output.split())
        assert "Haltepunkt" not in found["plain"]


def parse_inspection(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the tables of an inspection."""
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    tables = {
        name: np.frombuffer(data, np.uint8, math.prod(table["shape"]), 4 + size + table["offset"])
        .reshape(table["shape"])
        .astype(int)
        for name, table in header.pop("tables").items()
    }
    return header, tables


@needs_node
@pytest.mark.parametrize("off", [[], ["cross.1.2", "encoder.6.3"]])
def test_an_inspection_is_that_of_the_server(site: Path, off: list[str]) -> None:
    text, reference, ids = "He reads www.example.com in Berlin.", "Er liest in Berlin.", [100, 200]
    found = run_package(site, f"""
        const bytes = await t.inspect({json.dumps(text)}, {{ to: "de", off: {json.dumps(off)}, beam: 3 }});
        const tokens = await t.reference({json.dumps(text)}, {json.dumps(reference)}, {{ to: "de" }});
        const heads = {{}};
        for (const name of ["encoder.2.3", "decoder.2.3", "cross.2.3"])
            heads[name] = await t.head({json.dumps(text)}, name, 1, {ids}, {{ to: "de" }});
        print({{ data: Buffer.from(bytes).toString("base64"), tokens, heads }});
    """)  # fmt: skip
    translator = Translator.load(engine="plain")
    request = InspectionRequest(text=text, to="de", beam=3, off=off)
    expected, expected_tables = parse_inspection(serialize(inspect_translation(translator, request), translator))
    header, tables = parse_inspection(base64.b64decode(found["data"]))
    for name, table in expected_tables.items():
        assert abs(tables[name] - table).max() <= 1, name  # a weight of 1/255, if rounding goes the other way
    for name in ("kind", "text", "prefix", "off", "beam", "alpha", "translation", "source", "target", "model"):
        assert header[name] == expected[name], name
    for ours, theirs in zip([header["next"], *header["lens"]], [expected["next"], *expected["lens"]], strict=True):
        assert ours["written"] == pytest.approx(theirs["written"], abs=1e-3)
        assert [tokens[0] for tokens in ours["token"]] == [tokens[0] for tokens in theirs["token"]]
        assert np.array(ours["log_prob"]) == pytest.approx(np.array(theirs["log_prob"]), abs=1e-3)
    assert np.array(header["next"]["log_sum"]) == pytest.approx(np.array(expected["next"]["log_sum"]), abs=1e-3)
    tree, winner = header["tree"], header["target"]
    assert tree["log_prob"][1:] == pytest.approx(log_probs_along(tree), abs=1e-5)
    assert tree["outcome"].count("finished") >= 3
    assert [header["tokens"][str(token)] for token in winner] == [expected["tokens"][str(token)] for token in winner]
    assert (header["ablation"] is None) == (not off)
    if off:  # the search runs with activations in 8 bits
        for name in ("full", "rescored"):
            ours, theirs = header["ablation"][name], expected["ablation"][name]
            assert ours == pytest.approx(theirs, abs=0.5), name
    for name, numbers in found["heads"].items():
        known = asdict(head_numbers(translator, HeadRequest(text=text, head=name, query=1, output=ids, to="de")))
        for part, values in known.items():
            assert np.array(numbers[part]) == pytest.approx(np.array(values), abs=2e-3), (name, part)
    scored = score_reference(translator, text, reference, "de")
    assert [(token["piece"], token["rank"], token["best"]) for token in found["tokens"]] == [
        (token.piece, token.rank, token.best) for token in scored
    ]


def log_probs_along(tree: dict[str, Any]) -> list[float]:
    """Log-probabilities of nodes, which never exceed those of their parents."""
    pairs = zip(tree["parent"][1:], tree["log_prob"][1:], strict=True)
    return [min(log_prob, tree["log_prob"][parent]) for parent, log_prob in pairs]


@pytest.fixture(scope="module")
def small_site(tmp_path_factory: pytest.TempPathFactory, toy_tokenizer: Any) -> Path:
    """The site of a tiny model with float32 weights."""
    folder = tmp_path_factory.mktemp("small")
    save_model(folder / "model", small_model(1, toy_tokenizer.vocab_size), toy_tokenizer, FACTS)
    export_site([("toy", folder / "model")], folder / "site")
    return folder / "site"


@needs_node
def test_a_site_may_have_several_models(small_site: Path, toy_tokenizer: Any, tmp_path: Path, transduce: Any) -> None:
    facts = {"directions": [["cc", "en"]], "by_sentence": True}
    save_model(tmp_path / "other", small_model(2, toy_tokenizer.vocab_size), toy_tokenizer, facts)
    save_model(tmp_path / "toy", small_model(1, toy_tokenizer.vocab_size), toy_tokenizer, FACTS)
    outcome = transduce("export", "-m", "toy", "-m", "other", "--to", "web", "--out", "site", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "a page that translates aa to bb, cc to en" in outcome.out
    page = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    assert re.findall(r'name="transduce-model" content="([^"]+)"', page) == ["./models/0/", "./models/1/"]
    code = 'print([t.facts.name, t.facts.directions, await t.translate("dedu babo")]);'
    (first, _, text), (second, directions, _) = (
        run_package(tmp_path / "site/models" / number, code) for number in ("0", "1")
    )
    assert [first, second, directions] == ["toy", "other", [["cc", "en"]]]
    assert text == run_package(small_site, code)[2]
    again = transduce("export", "-m", "toy", "-m", "toy", "--to", "web", "--out", "twice", cwd=tmp_path)
    assert complaint(again) == "two models are named toy; rename the folder of one"
    others = transduce("export", "-m", "toy", "-m", "other", "--to", "hf", "--out", "hf", cwd=tmp_path)
    assert complaint(others) == "several models are only for --to web; leave it out"
    (tmp_path / "terms.tsv").write_text("a\tb\n", encoding="utf-8")
    useless = transduce("export", "-m", "toy", "--to", "web", "--out", "x", "--glossary", "terms.tsv", cwd=tmp_path)
    assert "no model of the page uses a glossary for an unnamed language" in complaint(useless)


LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "shakespeare": {"positions": "learned", "max_positions": 40, "norm": "pre", "activation": "gelu"},
    "llama": {"positions": "rotary", "norm": "pre", "norm_type": "rms", "activation": "swiglu", "bias": False,
              "kv_heads": 2, "tie_output": False},
    "paper": {"norm": "post", "embedding": "scaled"},
    "smollm": {"positions": "rotary", "norm": "pre", "norm_type": "rms", "activation": "swiglu", "bias": False,
               "kv_heads": 2, "embedding": "plain", "output_bias": True},
}  # fmt: skip


def vocabulary_of(kind: str, toy_tokenizer: Any) -> Any:
    if kind != "smollm":
        return toy_tokenizer
    pytest.importorskip("tokenizers")
    return byte_level_tokenizer(kind)


@needs_node
@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_a_language_model_continues_prompts_as_native_does(kind: str, toy_tokenizer: Any, tmp_path: Path) -> None:
    tokenizer = vocabulary_of(kind, toy_tokenizer)
    model = small_language_model(3, tokenizer.vocab_size, **LANGUAGE_MODELS[kind])
    save_model(tmp_path / "model", model, tokenizer, {"task": "language_model", "max_length": 30})
    export_site([("poet", tmp_path / "model")], tmp_path / "site")
    shrink_model(tmp_path / "model", tmp_path / "int8")
    generator = Generator.load(tmp_path / "int8", engine="native", threads=1, temperature=0)
    prompts = ["dedu babo", "", "line\n\nother  line\n"]
    expected = [generator.generate(prompt, max_tokens=50) for prompt in prompts]
    found = run_package(tmp_path / "site", f"""
        const outputs = [];
        for (const prompt of {json.dumps(prompts)}) {{
            let streamed = "";
            const options = {{ temperature: 0, maxTokens: 50, onText: (more) => (streamed += more) }};
            outputs.push([await t.generate(prompt, options), streamed]);
        }}
        const drawn = await Promise.all([1, 1, 2].map((seed) => t.generate("dedu", {{ seed, topP: 0.9 }})));
        print({{ outputs, drawn }});
    """, "Generator")  # fmt: skip
    assert found["outputs"] == [[text, text] for text in expected]
    assert found["drawn"][0] == found["drawn"][1] != found["drawn"][2]
    refused = run_package(tmp_path / "site", "")
    assert refused == "EngineError: poet is a language model: use Generator"


@needs_node
def test_damaged_and_foreign_files_get_one_clear_message(small_site: Path, tmp_path: Path) -> None:
    assert isinstance(run_package(small_site, 'print(await t.translate("dedu babo", {}));'), str)
    manifest = json.loads((small_site / "model/manifest.json").read_text(encoding="utf-8"))

    def damaged(change: Any) -> str:
        folder = tmp_path / "site"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(small_site, folder)
        change(folder / "model", json.loads(json.dumps(manifest)))
        return str(run_package(folder, 'print(`no error: ${await t.translate("dedu babo")}`);'))

    def write(folder: Path, content: Any, **files: bytes) -> None:
        """Write a manifest, with other contents of some files in their only pieces, as a hostile site would."""
        for name, new in files.items():
            name = name.replace("_", ".")
            (folder / "hostile.bin").write_bytes(new)
            piece = {"name": "hostile.bin", "size": len(new), "sha256": hashlib.sha256(new).hexdigest()}
            content["files"][name] = {"size": len(new), "pieces": [piece]}
        (folder / "manifest.json").write_text(json.dumps(content), encoding="utf-8")

    def piece_of(name: str) -> str:
        return str(manifest["files"][name]["pieces"][0]["name"])

    weights, card = assembled(small_site, "model.safetensors"), json.loads(assembled(small_site, "model.json"))

    def with_settings(**settings: Any) -> bytes:
        return json.dumps(card | {"model": card["model"] | settings}).encode()

    flipped = piece_of("model.safetensors")
    cases = {
        "is damaged: it is not the file that was exported": lambda f, m: (f / flipped).write_bytes(weights[:-1] + b"x"),
        "cannot be loaded": lambda f, m: (f / flipped).unlink(),
        "is damaged, or of another version": lambda f, m: (f / "manifest.json").write_text("{"),
        "has no file engine-": lambda f, m: write(f, {**m, "files": {CARD: m["files"][CARD]}}),
        "model.safetensors is damaged: it has no header": lambda f, m: write(f, m, model_safetensors=b"\xff" * 64),
        "does not fit its shape": lambda f, m: write(f, m, model_safetensors=weights[:-64]),
        "does not fit model.json: embedding": lambda f, m: write(f, m, model_json=with_settings(d_model=32)),
        "model.d_ff must be a number from 1": lambda f, m: write(f, m, model_json=with_settings(d_ff=1e9)),
        "no models with model.positions": lambda f, m: write(f, m, model_json=with_settings(positions="rotary")),
        "is no card of a translation model or": lambda f, m: write(f, m, model_json=b"[]"),
        "tokenizer.model is damaged": lambda f, m: write(f, m, tokenizer_model=b"\x0a\xff\xff\xff\x7fabc"),
        "the engine cannot be started": lambda f, m: write(f, m, **{"engine-simd_wasm": b"no module"}),
    }  # fmt: skip
    for expected, change in cases.items():
        message = damaged(change)
        assert expected in message, (expected, message)
        assert message.startswith("EngineError: "), message
        assert "\n" not in message


@needs_node
@pytest.mark.parametrize("kind", ["translate", "llama", "smollm"])
def test_damaged_models_are_refused_in_words_or_loaded(
    kind: str, small_site: Path, toy_tokenizer: Any, tmp_path: Path
) -> None:
    if kind != "translate":
        tokenizer = vocabulary_of(kind, toy_tokenizer)
        model = small_language_model(3, tokenizer.vocab_size, **LANGUAGE_MODELS[kind])
        facts = {"task": "language_model", "max_length": 30, "search": {"temperature": 0.0, "top_k": 0}}
        save_model(tmp_path / "model", model, tokenizer, facts)
        export_site([("poet", tmp_path / "model")], tmp_path / "site")
        small_site = tmp_path / "site"
    for name in ("model.json", "model.safetensors", BYTE_LEVEL if kind == "smollm" else "tokenizer.model"):
        (tmp_path / name).write_bytes(assembled(small_site, name))
    (tmp_path / "engine.wasm").write_bytes(assembled(small_site, "engine-simd.wasm"))
    script, count = Path(__file__).with_name("run_hostile.mjs"), 10_000 if FULL else 150
    command = ["node", str(script), str(tmp_path), str(tmp_path / "engine.wasm"), str(count)]
    outcomes = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert outcomes["failures"] == []
    assert outcomes["refused"] > count / 3
    assert outcomes["loaded"] > count / 10

"""`transduce export --to web`: what the folder contains, the package that runs it in Node, and models it refuses."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from fault_injection import FULL
from helpers import needs_node, small_model

from transduce.models.folder import BUNDLED, CARD, save_model
from transduce.translation.translator import Translator
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
    export_site(BUNDLED, folder)
    return folder


def run_package(folder: Path, code: str) -> Any:
    """Run code with a translator `t` of a folder in Node; returns what it prints as JSON, or the error's message."""
    script = f"""
        import {{ Translator }} from {json.dumps(str(ROOT / "web/package/src/index.js"))};
        const print = (value) => console.log(JSON.stringify(value));
        try {{
            const t = await Translator.load({json.dumps(folder.as_uri())} + "/");
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


@pytest.fixture(scope="module")
def small_site(tmp_path_factory: pytest.TempPathFactory, toy_tokenizer: Any) -> Path:
    """The site of a tiny model with float32 weights."""
    folder = tmp_path_factory.mktemp("small")
    save_model(folder / "model", small_model(1, toy_tokenizer.vocab_size), toy_tokenizer, FACTS)
    export_site(folder / "model", folder / "site", name="toy")
    return folder / "site"


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
        "is no card of a translation model": lambda f, m: write(f, m, model_json=b"[]"),
        "tokenizer.model is damaged": lambda f, m: write(f, m, tokenizer_model=b"\x0a\xff\xff\xff\x7fabc"),
        "the engine cannot be started": lambda f, m: write(f, m, **{"engine-simd_wasm": b"no module"}),
    }  # fmt: skip
    for expected, change in cases.items():
        message = damaged(change)
        assert expected in message, (expected, message)
        assert message.startswith("EngineError: "), message
        assert "\n" not in message


@needs_node
def test_damaged_models_are_refused_in_words_or_loaded(small_site: Path, tmp_path: Path) -> None:
    for name in ("model.json", "model.safetensors", "tokenizer.model"):
        (tmp_path / name).write_bytes(assembled(small_site, name))
    (tmp_path / "engine.wasm").write_bytes(assembled(small_site, "engine-simd.wasm"))
    script, count = Path(__file__).with_name("run_hostile.mjs"), 10_000 if FULL else 150
    command = ["node", str(script), str(tmp_path), str(tmp_path / "engine.wasm"), str(count)]
    outcomes = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert outcomes["failures"] == []
    assert outcomes["refused"] > count / 3
    assert outcomes["loaded"] > count / 10

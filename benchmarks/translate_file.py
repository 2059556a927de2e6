"""A text file translated from the command line: ours, CTranslate2 and transformers with the same weights, in turns.

    python benchmarks/translate_file.py --text lines.en [--lines 10000] [--to de] [--beam 4] [--threads 2] [--rounds 3]

Ours is `transduce translate FILE -o OUT` with the bundled model or another one: splitting into sentences, protected
spans, letters in capitals, 8 bits. The peers are short programs that load the exports of the same model, tokenize the
lines with SentencePiece, translate the longest first in batches, and write the file: int8 for CTranslate2, float32 for
transformers. Each run is a new process: its seconds, CPU seconds and memory include start and loading.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from setting import SEED, SMOKE_MODEL, SMOKE_VOCABULARY, make_parser, print_setting, save_random_model, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.files import read_lines
from transduce.interop.export_model import export_model
from transduce.interop.vocabulary import typed_tag
from transduce.models.folder import find_model, load_model

LAUNCH = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(process.pid, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Prints the CPU seconds and MB of a command; it is a small program, as Linux counts the memory of a parent as well."""


def main() -> None:
    """Export, measure and print; as a peer, translate one file."""
    if sys.argv[1:2] == ["peer"]:
        translate_as_peer(*sys.argv[2:])
        return
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", default="de", help="the target language, if the model has several")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    options = parser.parse_args()
    if not options.text and not options.smoke:
        parser.error("--text is required")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.smoke:
            pairs = demo_corpus(SEED, train=100, valid=0, test=0).train
            options.model = save_random_model(
                folder / "random", SMOKE_MODEL, SMOKE_VOCABULARY, [text for pair in pairs for text in pair]
            )
            lines, options.rounds, options.beam = [pair[0] for pair in pairs[:2]], 1, 1
            options.peers = ["CTranslate2"]
        else:
            lines = list(read_lines(options.text))[: options.lines]
        model = find_model(options.model)
        setting = print_setting(
            model=model.name, lines=len(lines), words=sum(len(line.split()) for line in lines), beam=options.beam,
            threads=options.threads, rounds=options.rounds, seed=SEED,
        )  # fmt: skip
        tag = typed_tag(options.to) if load_model(model).facts.get("tagged") else ""
        source = folder / "lines.txt"
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        to = ["--to", options.to] if tag else []
        search = ["--beam", str(options.beam), "--threads", str(options.threads)]
        systems = {"transduce": [sys.executable, "-m", "transduce", "translate", "-m", str(model), *to, *search]}
        for name in options.peers:
            module, format_name, quantization = PEERS[name]
            if find_spec(module):
                export_model(model, format_name, folder / name, quantization=quantization, sentences=lines[:2])
                arguments = [module, str(folder / name), tag, str(options.beam), str(options.threads)]
                systems[name] = [sys.executable, __file__, "peer", *arguments]
        results = measure(systems, source, folder, options.rounds)
    write_results(options, setting, results)


def measure(systems: dict[str, list[str]], source: Path, folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds, CPU seconds and memory of each system: the medians of the rounds."""
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, command in systems.items():
            out = folder / "out.txt"
            out.unlink(missing_ok=True)
            start = time.perf_counter()
            run = [sys.executable, "-c", LAUNCH, *command, str(source), "-o", str(out)]
            reported = subprocess.run(run, capture_output=True, text=True, check=False)
            assert reported.returncode == 0, f"{name}: {reported.stderr}"
            cpu_seconds, megabytes = map(float, reported.stdout.split()[-2:])
            lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in (source, out)]
            assert lengths[0] == lengths[1], f"{name}: {lengths[1]} lines instead of {lengths[0]}"
            figures[name].append((time.perf_counter() - start, cpu_seconds, megabytes))
    results: dict[str, dict[str, float]] = {}
    for name, rows in figures.items():
        seconds, cpu, megabytes = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(peer[1] / ours[1] for peer, ours in zip(rows, figures["transduce"], strict=True))
        results[name] = {"s": seconds, "CPU s": cpu, "CPU time / ours": ratio, "memory, MB": megabytes}
        print(f"{name:12} {seconds:8.1f} s {cpu:8.1f} CPU s ({ratio:.2f} times ours) {megabytes:6,.0f} MB")
    return results


def translate_as_peer(
    module: str, folder: str, tag: str, beam: str, threads: str, source: str, _out_option: str, out: str
) -> None:
    """Translate a file with another toolkit."""
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    texts = [f"{tag} {line}" if tag else line for line in lines]
    translate = {"ctranslate2": with_ctranslate2, "transformers": with_transformers}[module]
    Path(out).write_text("\n".join(translate(folder, texts, int(beam), int(threads))) + "\n", encoding="utf-8")


def with_ctranslate2(folder: str, texts: Sequence[str], beam: int, threads: int) -> list[str]:
    """`translate_batch`, which sorts the texts by length."""
    import ctranslate2
    import sentencepiece

    translator = ctranslate2.Translator(folder, inter_threads=1, intra_threads=threads)
    encoder, decoder = (
        sentencepiece.SentencePieceProcessor(model_file=f"{folder}/{side}.spm") for side in ("source", "target")
    )
    pieces = encoder.encode(list(texts), out_type=str)
    results = translator.translate_batch(pieces, beam_size=beam, max_batch_size=2048, batch_type="tokens")
    return [" ".join(decoder.decode(result.hypotheses[0]).split()) for result in results]


def with_transformers(folder: str, texts: Sequence[str], beam: int, threads: int) -> list[str]:
    """`generate` of MarianMTModel in batches of 32, the longest first."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    order, outputs = sorted(range(len(texts)), key=lambda i: -len(texts[i])), [""] * len(texts)
    with torch.inference_mode():
        for start in range(0, len(order), 32):
            part = order[start : start + 32]
            batch = tokenizer([texts[i] for i in part], return_tensors="pt", padding=True)
            generated = model.generate(**batch, num_beams=beam, max_new_tokens=batch["input_ids"].shape[1] + 50)
            for i, output in zip(part, tokenizer.batch_decode(generated, skip_special_tokens=True), strict=True):
                outputs[i] = " ".join(output.split())
    return outputs


PEERS = {"CTranslate2": ("ctranslate2", "ctranslate2", "int8"), "transformers": ("transformers", "hf", "float32")}
"""The module, the format of the export and its precision."""


if __name__ == "__main__":
    main()

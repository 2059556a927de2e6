"""Exported models in other toolkits: outputs identical to ours, and BLEU, on the same lines.

    python benchmarks/exported.py --test test.tsv [--lines 1000] [--model FOLDER] [--to de] [--out figures.json]

The model is exported with `transduce export` for CTranslate2 (float32 and int8), transformers and onnxruntime, and each
translates the sources, greedily and with beam 4 (onnxruntime, which has no search, only greedily). Our engine is
`plain`. Lines are translated as a whole.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from setting import SEED, SMOKE_MODEL, SMOKE_VOCABULARY, make_parser, print_setting, save_random_model, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.files import read_lines
from transduce.interop.export_model import SENTENCES, export_model
from transduce.interop.onnx import OnnxRuntime
from transduce.interop.vocabulary import export_vocabulary, typed_tag
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.folder import SavedModel, find_model, load_model
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.symbols import mark
from transduce.translation.scores import bleu

BEAMS = (1, 4)
LENGTH_PENALTY = SearchConfig().length_penalty
LONGEST_OUTPUT = 256
BATCH = 16
Translate = Callable[[Sequence[str], int], list[str]]
"""Translates texts, as a user of the toolkit types them, with a beam."""


def main() -> None:
    """Export, measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", default="de", help="the target language, if the model has several")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not options.test and not options.smoke:
        parser.error("--test is required")
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.smoke:
            pairs: Sequence[Sequence[str]] = demo_corpus(SEED, train=3, valid=0, test=0).train
            texts = [text for pair in demo_corpus(SEED, train=100, valid=0, test=0).train for text in pair]
            model = save_random_model(folder / "random", SMOKE_MODEL, SMOKE_VOCABULARY, texts)
        else:
            pairs = [line.split("\t")[:2] for line in read_lines(options.test)][: options.lines]
            model = find_model(options.model)
        setting = print_setting(model=model.name, lines=len(pairs), beams=BEAMS, threads=options.threads, seed=SEED)
        results = measure(model, pairs, options.to, folder, options.threads)
    write_results(options, setting, results)


def measure(model: Path, pairs: Sequence[Sequence[str]], to: str, folder: Path, threads: int) -> dict[str, Any]:
    """Identical outputs and BLEU of every toolkit; the exports are written to the folder."""
    saved = load_model(model)
    language = to if saved.facts.get("tagged") else None
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    typed = [text if language is None else f"{typed_tag(language)} {text}" for text in sources]
    ours = {beam: translate_ours(saved, sources, language, beam) for beam in BEAMS}
    for beam, outputs in ours.items():
        print(f"plain, beam {beam}: BLEU {bleu(outputs, references):.2f}")
    results: dict[str, dict[str, float]] = {}
    for name, (format_name, quantization, beams, start) in SYSTEMS.items():
        export = export_model(
            model, format_name, folder / name, quantization=quantization, sentences=sources[:SENTENCES]
        )
        print(f"{name}: {export.verification}")
        translate = start(folder / name, saved, threads)
        for beam in beams:
            outputs = translate(typed, beam)
            identical, score = sum(map(str.__eq__, outputs, ours[beam])), bleu(outputs, references)
            search = "greedy" if beam == 1 else f"beam {beam}"
            results.setdefault(name, {}).update({f"identical, {search}": identical, f"BLEU, {search}": score})
            print(f"{name}, beam {beam}: {identical} of {len(outputs)} identical, BLEU {score:.2f}")
    return results


def translate_ours(saved: SavedModel, sources: Sequence[str], language: str | None, beam: int) -> list[str]:
    """The translations of engine `plain`."""
    encoded = saved.tokenizer.encode_all([mark(text, language) for text in sources], marked=True)
    config = SearchConfig(beam=beam, length_penalty=LENGTH_PENALTY, min_length=1)
    results = search_all(PlainEngine(saved.model), [Job(tokens, []) for tokens in encoded], config)
    return saved.tokenizer.target.decode_all([best[0].tokens for best in results])


def ctranslate2(folder: Path, saved: SavedModel, threads: int) -> Translate:
    """CTranslate2's `Translator`, with the SentencePiece models of the export."""
    import ctranslate2 as library

    del saved
    translator = library.Translator(str(folder), inter_threads=1, intra_threads=threads)
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    )

    def translate(texts: Sequence[str], beam: int) -> list[str]:
        results = translator.translate_batch(
            source.encode(list(texts), out_type=str), beam_size=beam, length_penalty=LENGTH_PENALTY,
            max_batch_size=BATCH, max_decoding_length=LONGEST_OUTPUT,
        )  # fmt: skip
        return [target.decode(result.hypotheses[0]) for result in results]

    return translate


def transformers(folder: Path, saved: SavedModel, threads: int) -> Translate:
    """`MarianMTModel.generate`, which reads the length penalty of the export."""
    import transformers as library

    del saved, threads
    library.utils.logging.disable_progress_bar()
    tokenizer = library.MarianTokenizer.from_pretrained(folder)
    model = library.MarianMTModel.from_pretrained(folder).eval()

    def translate(texts: Sequence[str], beam: int) -> list[str]:
        outputs: list[str] = []
        with torch.inference_mode():
            for start in range(0, len(texts), BATCH):
                batch = tokenizer(list(texts[start : start + BATCH]), return_tensors="pt", padding=True)
                generated = model.generate(**batch, num_beams=beam, max_length=LONGEST_OUTPUT)
                outputs += tokenizer.batch_decode(generated, skip_special_tokens=True)
        return outputs

    return translate


def onnxruntime(folder: Path, saved: SavedModel, threads: int) -> Translate:
    """The graphs of the export, one thread and greedy search."""
    import onnxruntime as library

    del threads
    assert isinstance(saved.model, EncoderDecoder)
    vocabulary = export_vocabulary(saved.tokenizer, sorted({target for _, target in saved.facts.get("directions", [])}))
    runtime = OnnxRuntime(library, folder, saved.model, vocabulary.source_pieces or vocabulary.pieces)

    def translate(texts: Sequence[str], beam: int) -> list[str]:
        assert beam == 1
        return saved.tokenizer.target.decode_all(runtime.translate(texts, [LONGEST_OUTPUT] * len(texts)))

    return translate


SYSTEMS: dict[str, tuple[str, Any, Sequence[int], Callable[[Path, SavedModel, int], Translate]]] = {
    "CTranslate2": ("ctranslate2", "float32", BEAMS, ctranslate2),
    "CTranslate2 int8": ("ctranslate2", "int8", BEAMS, ctranslate2),
    "transformers": ("hf", "float32", BEAMS, transformers),
    "onnxruntime": ("onnx", "float32", (1,), onnxruntime),
}
"""The format, the precision, the beams and the toolkit of each row."""


if __name__ == "__main__":
    main()

"""An imported OPUS-MT model beside transformers and CTranslate2 on real text: outputs, BLEU and speed, in turns.

    python benchmarks/opus_mt.py --original opus-mt-en-fr --test newstest2014.en-fr.tsv [--lines 1000]
        [--beam-lines 1000] [--systems plain,native,transformers,float32,int8] [--threads 1] [--out figures.json]

Chunks of lines are translated by every system in turn, in another order each time, greedily and with beam 4 and a
length penalty of 1 (the default of transformers, which divides by n, where transduce divides by (5 + n) / 6). Lines are
translated as a whole, in batches of 16 of similar length; neither side may write <unk>. In beam search, outputs of
transduce may have 50 tokens more than their source, its default: it ends when no hypothesis can still win, so with a
far limit and this penalty, endless repetitions win, which transformers and CTranslate2 do not reach because they stop
by a heuristic. A greedy output that differs is a tie if transformers gives the two tokens at the first difference
logits that differ by less than 1e-3. Speed is that of the CPU time of all threads, so that other work on the machine
counts little; with one thread, nothing waits in it.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from decode import make_engine
from imported import SMOKE, originals, write_original
from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.files import read_lines
from transduce.interop.ctranslate2 import write_model
from transduce.interop.exchange import Exported
from transduce.interop.import_model import import_model
from transduce.interop.vocabulary import export_vocabulary
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.folder import SavedModel, load_model
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS, UNK
from transduce.translation.scores import bleu

BATCH, CHUNK = 16, 48
LONGEST = 256
TIE = 1e-3
Decode = Callable[[Sequence[list[int]], int], list[list[int]]]
"""Translates sources with a beam; both are our ids without markers."""
REFERENCE, PEER = "transduce plain", "transformers"


def main() -> None:
    """Import, measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--original", type=Path, help="a Hugging Face folder of OPUS-MT")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--lines", type=int, default=1000, help="for greedy search")
    parser.add_argument("--beam-lines", type=int, default=1000)
    parser.add_argument("--systems", default="plain,native,transformers,float32,int8")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not options.smoke and not (options.original and options.test):
        parser.error("--original and --test are required")
    torch.set_num_threads(options.threads)
    import transformers as library

    library.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.smoke:
            write_original(folder / "original", SMOKE)
            options.original, options.lines, options.beam_lines = folder / "original", 4, 2
            pairs: Sequence[Sequence[str]] = demo_corpus(SEED, train=4, valid=0, test=0).train
        else:
            longest = max(options.lines, options.beam_lines)
            pairs = [line.split("\t")[:2] for line in read_lines(options.test)][:longest]
        model = library.MarianMTModel.from_pretrained(options.original, dtype=torch.float32).eval()
        import_model(options.original, folder / "imported")
        saved = load_model(folder / "imported")
        setting = print_setting(
            lines=options.lines, **{"lines, beam 4": options.beam_lines}, threads=options.threads, seed=SEED
        )
        systems = {PEER: hugging_face(model, saved)}
        for name in options.systems.split(","):
            if name in ("plain", "native"):
                systems[f"transduce {name}"] = ours(saved, name, options.threads)
            elif name != PEER:
                systems[f"CTranslate2 {name}"] = ctranslate2(saved, folder / name, name, options)
        results: dict[str, dict[str, Any]] = {name: {} for name in systems}
        for beam, lines in ((1, options.lines), (4, options.beam_lines)):
            if lines:
                measure(systems, saved, model, pairs[:lines], beam, results)
    write_results(options, setting, results)


def measure(
    systems: dict[str, Decode],
    saved: SavedModel,
    model: Any,
    pairs: Sequence[Sequence[str]],
    beam: int,
    results: dict[str, dict[str, Any]],
) -> None:
    """Add BLEU, speed and, beside transformers, identical outputs of every system to its results."""
    search = "greedy" if beam == 1 else f"beam {beam}"
    encoded = saved.tokenizer.encode_all([source for source, _ in pairs])
    outputs: dict[str, list[list[int]]] = {name: [] for name in systems}
    seconds = dict.fromkeys(systems, 0.0)
    names = list(systems)
    for number, start in enumerate(range(0, len(encoded), CHUNK)):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            began = time.process_time()
            outputs[name] += systems[name](encoded[start : start + CHUNK], beam)
            seconds[name] += time.process_time() - began
        done = min(start + CHUNK, len(encoded))
        print(f"{search}: {done} lines; " + ", ".join(f"{name} {seconds[name]:.0f} s" for name in names), flush=True)
    for name, own in outputs.items():
        score = bleu(saved.tokenizer.target.decode_all(own), [reference for _, reference in pairs])
        different = [n for n, (a, b) in enumerate(zip(own, outputs[PEER], strict=True)) if a != b]
        row = {
            f"BLEU, {search}": round(score, 2),
            f"lines per CPU second, {search}": round(len(pairs) / seconds[name], 2),
        }
        if name != PEER:
            row[f"identical, {search}"] = len(pairs) - len(different)
        if beam == 1 and name == REFERENCE:
            margins = [margin(model, saved, encoded[n], own[n], outputs[PEER][n]) for n in different]
            print("different lines and margins:", list(zip(different, margins, strict=True)))
            row["ties, greedy"] = sum(value < TIE for value in margins)
        results[name] |= row
        print(f"{name}: {row}", flush=True)


def margin(model: Any, saved: SavedModel, source: list[int], own: list[int], theirs: list[int]) -> float:
    """The difference of the logits of transformers for the two tokens at the first difference of two outputs."""
    order = originals(saved)
    place = next(
        (n for n, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]), min(len(own), len(theirs))
    )
    ids = [[order[token] for token in tokens] for tokens in ([*source, EOS], [BOS, *theirs[:place]])]
    with torch.inference_mode():
        logits_V = model(input_ids=torch.tensor(ids[:1]), decoder_input_ids=torch.tensor(ids[1:])).logits[0, -1]
    a, b = (order[output[place] if place < len(output) else EOS] for output in (own, theirs))
    return abs(float(logits_V[a] - logits_V[b]))


def ours(saved: SavedModel, engine: str, threads: int) -> Decode:
    """An engine of ours."""
    assert isinstance(saved.model, EncoderDecoder)
    chosen = make_engine(engine, saved.model, threads)

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        extra = LONGEST if beam == 1 else SearchConfig.max_extra
        config = SearchConfig(beam=beam, length_penalty=1.0, min_length=0, max_extra=extra, max_length=LONGEST)
        return [best[0].tokens for best in search_all(chosen, [Job(tokens, []) for tokens in sources], config)]

    return decode


def hugging_face(model: Any, saved: SavedModel) -> Decode:
    """`MarianMTModel.generate`."""
    order = originals(saved)
    ids = {theirs: token for token, theirs in reversed(list(enumerate(order)))}
    pad = order[BOS]

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        outputs: dict[int, list[int]] = {}
        places = sorted(range(len(sources)), key=lambda n: len(sources[n]))
        for start in range(0, len(places), BATCH):
            chosen = places[start : start + BATCH]
            longest = max(len(sources[n]) for n in chosen) + 1
            rows = [[order[token] for token in (*sources[n], EOS)] for n in chosen]
            src_BS = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
            with torch.inference_mode():
                generated = model.generate(
                    src_BS, attention_mask=(src_BS != pad).long(), num_beams=beam, do_sample=False, length_penalty=1.0,
                    max_length=None, max_new_tokens=LONGEST, bad_words_ids=[[pad], [order[UNK]]],
                )  # fmt: skip
            for n, output in zip(chosen, generated.tolist(), strict=True):
                tokens = [ids[token] for token in output[1:]]
                outputs[n] = tokens[: tokens.index(EOS)] if EOS in tokens else tokens
        return [outputs[n] for n in range(len(sources))]

    return decode


def ctranslate2(saved: SavedModel, folder: Path, precision: str, options: Any) -> Decode:
    """The imported model, exported for CTranslate2."""
    import ctranslate2 as peer

    folder.mkdir()
    assert isinstance(saved.model, EncoderDecoder)
    vocabulary = export_vocabulary(saved.tokenizer, [])
    write_model(Exported(saved.model, saved.tokenizer, vocabulary, {}, SearchConfig(), None, 511, precision), folder)
    translator = peer.Translator(str(folder), compute_type=precision, intra_threads=options.threads)
    pieces, ids = vocabulary.pieces, {name: n for n, name in enumerate(vocabulary.pieces)}

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        results = translator.translate_batch(
            [[pieces[token] for token in source] for source in sources], beam_size=beam, length_penalty=1.0,
            max_batch_size=BATCH, max_decoding_length=LONGEST,
        )  # fmt: skip
        return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

    return decode


if __name__ == "__main__":
    main()

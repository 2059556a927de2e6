"""Decoding throughput of an imported OPUS-MT model: our engines, Hugging Face generate and CTranslate2, in turns.

    python benchmarks/imported.py [--device cuda] [--rounds 5] [--threads 2] [--out figures.json]

A MarianMTModel with the sizes of OPUS-MT (6 + 6 layers, width 512, vocabulary 58,101) and random weights is written by
transformers, imported by `transduce import`, and exported for CTranslate2 from there. Sources have 30 tokens with their
end marker, outputs exactly 30 tokens; sentences are new in every round. The largest difference of logits is printed.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from decode import case_name, make_engine, measure, ours
from decode_peers import Decode
from setting import SEED, SMOKE_VOCABULARY, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.interop.ctranslate2 import write_model
from transduce.interop.exchange import Exported
from transduce.interop.export_model import forced_logits
from transduce.interop.import_model import import_model
from transduce.interop.vocabulary import export_vocabulary
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.folder import SavedModel, load_model
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer, TokenizerConfig

OPUS = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "ffn": 2048, "heads": 8, "vocabulary": 58_101}
SMOKE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "ffn": 32, "heads": 2, "vocabulary": SMOKE_VOCABULARY}
CASES, SMOKE_CASES = [(1, 1), (1, 4), (32, 1), (32, 4)], [(2, 1), (2, 2)]
"""Sentences at once, and beam."""
ENGINES = {"cpu": ["native", "plain"], "cuda": ["gpu"]}


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=ENGINES, default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="on a CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes, length, cases = (SMOKE, 4, SMOKE_CASES) if options.smoke else (OPUS, 30, CASES)
    rounds = 1 if options.smoke else options.rounds
    setting = print_setting(**sizes, **{"tokens in and out": length}, seed=SEED, rounds=rounds, threads=options.threads)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        original = write_original(folder / "original", sizes)
        import_model(folder / "original", folder / "imported")
        saved = load_model(folder / "imported")
        setting["largest difference of logits"] = difference(original, saved, length)
        print(f"largest difference of logits: {setting['largest difference of logits']:.1e}")
        model = saved.model.to(options.device)
        assert isinstance(model, EncoderDecoder)
        systems = {
            f"transduce {name}": ours(make_engine(name, model, options.threads)) for name in ENGINES[options.device]
        }
        systems["Hugging Face generate"] = hugging_face(original, saved, options.device)
        if find_spec("ctranslate2"):
            for precision in ("int8", "float32") if options.device == "cpu" else ("float16",):
                systems[f"CTranslate2 {precision}"] = ctranslate2(saved, folder / precision, precision, options)
        print("systems:", ", ".join(systems))
        for sentences, beam in cases:
            results[case_name(sentences, beam)] = measure(
                systems, sentences, beam, length, sizes["vocabulary"], rounds, warm_up=not options.smoke
            )
    write_results(options, setting, results)


def write_original(folder: Path, sizes: dict[str, int]) -> Any:
    """A random MarianMTModel that never ends by itself, saved with the files of its tokenizer."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(SEED)
    pad = sizes["vocabulary"] - 1
    config = transformers.MarianConfig(
        vocab_size=sizes["vocabulary"], decoder_vocab_size=sizes["vocabulary"], d_model=sizes["d_model"],
        encoder_layers=sizes["encoder_layers"], decoder_layers=sizes["decoder_layers"], encoder_ffn_dim=sizes["ffn"],
        decoder_ffn_dim=sizes["ffn"], encoder_attention_heads=sizes["heads"], decoder_attention_heads=sizes["heads"],
        max_position_embeddings=512, activation_function="swish", scale_embedding=True, pad_token_id=pad,
        eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        model.model.shared.weight.normal_(std=sizes["d_model"] ** -0.5)
        model.model.shared.weight[pad] = 0
        model.final_logits_bias[0, 0] = -50  # of the end marker
        model.final_logits_bias[0, pad] = -50
    model.save_pretrained(folder)
    texts = [text for pair in demo_corpus(SEED, train=100, valid=0, test=0).train for text in pair]
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=SMOKE_VOCABULARY - 10))
    for name in ("source.spm", "target.spm"):
        tokenizer.save(folder / name)
    known = tokenizer.names[EOS + 1 :]
    fillers = [f"filler{number}" for number in range(sizes["vocabulary"] - len(known) - 3)]
    pieces = ["</s>", "<unk>", *known, *fillers, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}), encoding="utf-8")
    return model


def originals(saved: SavedModel) -> list[int]:
    """The original id of each of our ids."""
    order: list[int] = saved.tokenizer.order.originals  # type: ignore[attr-defined]
    return order


def difference(original: Any, saved: SavedModel, length: int) -> float:
    """The largest difference of logits, for one random pair."""
    order = originals(saved)
    source, output = torch.randint(4, len(order), (2, length), generator=torch.Generator().manual_seed(SEED)).tolist()
    with torch.inference_mode():
        theirs = original(
            input_ids=torch.tensor([[order[token] for token in (*source, EOS)]]),
            decoder_input_ids=torch.tensor([[order[token] for token in (BOS, *output)]]),
        ).logits[0]
    return float((forced_logits(saved.model, source, output)[:, EOS:] - theirs[:, order][:, EOS:]).abs().max())


def hugging_face(original: Any, saved: SavedModel, device: str) -> Decode:
    """The original in transformers, in float32 on a CPU and bfloat16 on a GPU."""
    order = originals(saved)
    ids = {theirs: ours for ours, theirs in reversed(list(enumerate(order)))}
    model = original.to(device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        src_BS = torch.tensor([[order[token] for token in (*source, EOS)] for source in sources], device=device)
        length = src_BS.shape[1]
        with torch.inference_mode():
            result = model.generate(
                src_BS, attention_mask=torch.ones_like(src_BS), num_beams=beam, do_sample=False, max_length=None,
                min_new_tokens=length, max_new_tokens=length,
            )  # fmt: skip
        return [[ids[token] for token in output[1:]] for output in result.tolist()]

    return decode


def ctranslate2(saved: SavedModel, folder: Path, precision: str, options: Any) -> Decode:
    """The imported model, exported for CTranslate2."""
    import ctranslate2 as peer

    folder.mkdir()
    model = saved.model.cpu()
    assert isinstance(model, EncoderDecoder)
    vocabulary = export_vocabulary(saved.tokenizer, [])
    stored = "int8" if precision == "int8" else "float32"
    write_model(Exported(model, saved.tokenizer, vocabulary, {}, SearchConfig(), None, 511, stored), folder)
    saved.model.to(options.device)
    device = {"device": options.device, "compute_type": precision, "intra_threads": options.threads}
    translator, ids = peer.Translator(str(folder), **device), {name: n for n, name in enumerate(vocabulary.pieces)}

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        length = len(sources[0]) + 1
        result = translator.translate_batch(
            [[vocabulary.pieces[token] for token in source] for source in sources], beam_size=beam, length_penalty=0.6,
            max_decoding_length=length, min_decoding_length=length, return_scores=True,
        )  # fmt: skip
        return [[ids[token] for token in one.hypotheses[0]] for one in result]

    return decode


if __name__ == "__main__":
    main()

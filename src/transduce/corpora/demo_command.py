"""`transduce demo`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.loading import ended_by_signals
from transduce.cli.options import SetOption

# The corpus is clean and its sentences are short: no dropout, small batches and a short warmup suit four minutes.
DEMO_SETTINGS = {
    "model.dropout": 0.0,
    "train.batch_tokens": 768,
    "train.steps": 1500,
    "train.warmup": 300,
    "train.save_every": 250,
    "train.valid_sentences": 200,
    "train.average": 3,
}


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")] = Path("runs/demo"),
    set_: SetOption = None,
) -> None:
    """Train, score and use a small model on the demo corpus.

    The corpus is English-German and part of the package; training takes four minutes on a CPU.
    """
    with ended_by_signals():
        from transduce.corpora.demo.corpus import demo_corpus, write_demo_corpus
        from transduce.training.api import train
        from transduce.translation.scores import score
        from transduce.translation.translator import Translator

    text = out.parent / f"{out.name}-text"
    corpus = demo_corpus()
    write_demo_corpus(text, corpus)
    print(f"wrote the demo corpus to {text}: {len(corpus.train):,} training pairs")
    outcome = train(
        out,
        src=text / "train.en",
        tgt=text / "train.de",
        valid_src=text / "valid.en",
        valid_tgt=text / "valid.de",
        preset="tiny",
        settings=DEMO_SETTINGS,
        sets=set_ or (),
    )
    if outcome.stop_signal is not None:
        raise typer.Exit(128 + outcome.stop_signal)

    sources, references = map(list, zip(*corpus.test, strict=True))
    outputs = Translator.load(out).translate(sources)
    print(f"\n{len(sources):,} test sentences, each with a combination of words that is not in the training data:")
    for result in score(outputs, references):
        print(f"  {result.metric:<6}{result.value:6.2f}   {result.signature}")
    print("\nexamples:")
    for source, output in list(zip(sources, outputs, strict=True))[:5]:
        print(f"  {source}\n  → {output}")
    print(f"\nopen {out / 'report.html'} in a browser, or translate:")
    print(f'  echo "{sources[0]}" | transduce translate -m {out}')

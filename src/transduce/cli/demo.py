"""`transduce demo`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.loading import ended_by_signals

# The corpus is clean, its sentences are short: no dropout, small batches and a quick start learn most in four minutes.
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
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. train.steps=200.", metavar="SECTION.KEY=VALUE")
    ] = None,
) -> None:
    """Train an English-German model on the corpus in the package, score it and translate: four minutes on a CPU."""
    with ended_by_signals():
        from transduce.corpora.demo import demo_corpus, write_demo_corpus
        from transduce.evaluation.scores import score
        from transduce.training.api import train
        from transduce.translator import Translator

    text = out.parent / f"{out.name}-text"
    corpus = demo_corpus()
    write_demo_corpus(text, corpus)
    print(f"wrote the demo corpus to {text}: {len(corpus.train):,} pairs to learn from")
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
    print(f"\n{len(sources):,} test sentences, each with a combination of words never seen in training:")
    for one in score(outputs, references):
        print(f"  {one.metric:<6}{one.value:6.2f}   {one.signature}")
    print("\nfor example:")
    for source, output in list(zip(sources, outputs, strict=True))[:5]:
        print(f"  {source}\n  → {output}")
    print(f"\nnow look at {out / 'report.html'}, or translate yourself:")
    print(f'  echo "{sources[0]}" | transduce translate -m {out}')

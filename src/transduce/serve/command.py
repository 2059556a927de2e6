"""`transduce serve`."""

import gc
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import announce, log
from transduce.cli.options import DeviceOption, EngineOption, ThreadsOption, model_option, search_options
from transduce.search.options import SearchOptions

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart")


@search_options("shortlist")
def serve(
    model: Annotated[
        list[str] | None,
        model_option("A run or a model folder, or NAME=FOLDER; may be repeated.", show_default="the bundled model"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 is any free port.", min=0, max=65535)] = 5000,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="Limit on a request, e.g. characters=5000; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File of API keys, one per line.", show_default="$TRANSDUCE_API_KEYS")
    ] = None,
    suggestions: Annotated[
        Path | None, typer.Option(help="File to add suggested translations to, as pairs (.jsonl).", show_default="none")
    ] = None,
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Serve models over HTTP.

    The server has a page that translates and looks inside, LibreTranslate's interface, and its own under /v1; for
    language models, it has OpenAI's /v1/completions.
    """
    from transduce.config import apply_sets, build
    from transduce.errors import ConfigError

    if missing := [name for name in _NEEDED if not find_spec(name)]:
        raise ConfigError(f"serving needs {', '.join(missing)}: pip install 'transduce[serve]'")
    with announce("loading the server"):
        from transduce.fast.native.shortlist import model_shortlist
        from transduce.files.pair_formats import JSONL
        from transduce.models.folder import find_model, read_card
        from transduce.serve.api_keys import ApiKeys
        from transduce.serve.app import make_app
        from transduce.serve.limits import Limits
        from transduce.serve.served_models import ServedModels, parse_model_option, require_different
        from transduce.serve.server import allowed_hosts, listen, serve_on, url_host
        from transduce.translation.translator import Translator

    if suggestions:
        if suggestions.suffix not in JSONL.suffixes:
            raise ConfigError(f"--suggestions {suggestions}: pairs are added as JSON lines; end its name in .jsonl")
        suggestions.open("a").close()  # an error if it cannot be written
    limits = build(Limits, apply_sets({}, limit or [], "--limit"), "--limit")
    known = ApiKeys.read(keys)
    named = [parse_model_option(argument) for argument in model or [str(find_model(None))]]
    require_different([name for name, _ in named])
    generators, translators = {}, []
    for name, folder in named:
        with announce(f"loading the model {name}"):
            if read_card(find_model(folder))["facts"].get("task") == "language_model":
                from transduce.language_model.generator import Generator

                generators[name] = Generator.load(folder, device=device, engine=engine, threads=threads)
            else:
                translator = Translator.load(folder, device=device, engine=engine, threads=threads, **options)
                model_shortlist(translator.any_model)  # read now, as the folder may be replaced later
                if translator.config.shortlist:
                    translator.engine_for(translator.config)  # an error if there is none
                translators.append((name, translator))
    if options.get("shortlist") and not translators:
        raise ConfigError("--shortlist has no effect on language models; leave it out")
    models = ServedModels(translators)
    gc.freeze()  # the objects of torch, which take 0.1 s to examine, stay out of later collections of garbage
    with listen(host, port) as listening:
        address, at = listening.getsockname()[:2]
        described = ", ".join(
            [*(_describe(model.name, model.translator.directions) for model in models.models), *generators]
        )
        line = f"serving {described} on http://{url_host(address)}:{at}"
        app = make_app(models, limits, known, allowed_hosts(listening, host), generators, suggestions)
        serve_on(listening, app, lambda: log(line))


def _describe(name: str, directions: Sequence[tuple[str, str]]) -> str:
    from transduce.files.languages import describe_directions

    return f"{name} ({describe_directions(directions)})" if directions else name

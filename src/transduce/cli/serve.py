"""`transduce serve`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="A run, or a model folder; several as NAME=FOLDER; if none, the bundled model."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 is every one of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 is any that is free.", min=0, max=65535)] = 5000,
    limit: Annotated[
        list[str] | None, typer.Option(help="What one request may ask for, e.g. characters=5000; repeat for more.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys, one a line; or set TRANSDUCE_API_KEYS.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda ...")] = "auto",
) -> None:
    """Serve models over HTTP: LibreTranslate's interface, our own, and the page that looks inside."""
    from transduce.config import apply_sets, build
    from transduce.errors import ConfigError

    if missing := [name for name in _NEEDED if not find_spec(name)]:
        raise ConfigError(f"serving needs {', '.join(missing)}: pip install 'transduce[serve]'")
    from transduce.models.card import find_model
    from transduce.serve.api_keys import ApiKeys
    from transduce.serve.app import make_app
    from transduce.serve.limits import Limits
    from transduce.serve.served_models import ServedModels, parse_model_option
    from transduce.serve.server import allowed_hosts, listen, serve_on, url_host
    from transduce.translator import Translator

    limits = build(Limits, apply_sets({}, limit or []), "--limit")
    known = ApiKeys.read(keys)
    named = [parse_model_option(words) for words in model or [str(find_model(None))]]
    models = ServedModels([(name, Translator.load(folder, device=device)) for name, folder in named])
    with listen(host, port) as listening:
        address, at = listening.getsockname()[:2]
        line = f"transduce: serving {', '.join(name for name, _ in named)} on http://{url_host(address)}:{at}"
        app = make_app(models, limits, known, allowed_hosts(listening, host))
        serve_on(listening, app, lambda: print(line, file=sys.stderr, flush=True))

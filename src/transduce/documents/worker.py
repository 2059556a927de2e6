"""A process that reads and writes documents for a server, so that a hostile file can neither delay nor fill it.

The server starts `python -m transduce.documents.worker` and sends one document after the other. Every message is a JSON
object and bytes (`HEAD` has their sizes). A request has the bytes of a file. Without `outputs`, the response is the
different texts of the file; with the translations of these texts, the response is the translated file. Between the
two, the process keeps nothing.

It ends when the server does, also during work, but not within one call of a C function, such as a match of a regular
expression. At the deadline of a request, the operating system ends it in any state. It has a lower priority than the
server, and limited memory.
"""

import gc
import json
import os
import resource
import signal
import struct
import sys
import threading
import traceback
from collections import Counter
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

from transduce.deadline import Deadline, OutOfTimeError
from transduce.documents.document import AlignedTranslation, Document, ReadOptions
from transduce.documents.read import read_document
from transduce.errors import TransduceError

HEAD = struct.Struct("<QQ")
LEAST_CHARACTERS = 20
"""A text costs as much as this number of characters at least."""
_MOST_MEMORY = 1_500_000_000
"""Bytes of address space."""
_NICENESS = 10
_ENDING_SECONDS = 1.0
"""Time after the deadline at which the process is ended, if its work has not noticed the deadline."""

Fields = dict[str, Any]


class _TooLargeError(Exception):
    """The translation of a document costs more than the limit."""


def message(fields: Fields, data: bytes = b"") -> list[bytes]:
    """What is written for a message."""
    text = json.dumps(fields).encode()
    return [HEAD.pack(len(text), len(data)), text, data]


def respond(request: Fields, data: bytes) -> tuple[Fields, bytes]:
    """The response to a request; an error is a message and an HTTP status."""
    try:
        with Deadline(request["seconds"], request["elements"]).applied():
            document = read_document(request["format"], data, request["name"], ReadOptions(**request["options"]))
            keys = [(text.text, bool(text.tags)) for text in document.texts]
            counts = Counter(keys)
            if "outputs" in request:
                content = _write(document, keys, dict(zip(counts, request["outputs"], strict=True)))
                return {"warning": document.warning}, content
            _check_cost(list(counts), request["characters"])
            return {"texts": [[*key, count] for key, count in counts.items()]}, b""
    except _TooLargeError as error:
        return {"status": 413, "error": str(error)}, b""
    except TransduceError as error:
        return {"status": 400, "error": str(error)}, b""
    except OutOfTimeError:
        return {"status": 503, "error": f"not finished within {request['seconds']:g} s; divide the file"}, b""
    except MemoryError:
        return {"status": 413, "error": "the file needs more memory than is allowed; divide it"}, b""
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]  # not the message, which may contain a client's text
        location = f"{type(error).__name__} at {place.filename}:{place.lineno}"
        return {"status": 500, "error": "internal error", "location": location}, b""


def _check_cost(texts: list[tuple[str, bool]], most: int) -> None:
    characters = sum(len(text) for text, _ in texts)
    if characters > most:
        raise _TooLargeError(f"the file has {characters:,} characters, more than the {most:,} allowed")
    if len(texts) * LEAST_CHARACTERS > most:
        raise _TooLargeError(f"the file has {len(texts):,} texts, more than the {most // LEAST_CHARACTERS:,} allowed")


def _write(document: Document, keys: list[tuple[str, bool]], outputs: dict[tuple[str, bool], Any]) -> bytes:
    translations = {
        key: AlignedTranslation(text, [((a, b), (c, d)) for (a, b), (c, d) in alignment])
        for key, (text, alignment) in outputs.items()
    }
    return document.write([translations[key] for key in keys])


def _read_messages(file: IO[bytes], requests: "SimpleQueue[tuple[Fields, bytes]]") -> None:
    """Read requests; the end of the file is the end of the server."""
    while len(head := file.read(HEAD.size)) == HEAD.size:
        sizes = HEAD.unpack(head)
        requests.put((json.loads(file.read(sizes[0])), file.read(sizes[1])))
    os._exit(0)


def _work(responses: IO[bytes]) -> None:
    requests: SimpleQueue[tuple[Fields, bytes]] = SimpleQueue()
    threading.Thread(target=_read_messages, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        request, data = requests.get()
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + _ENDING_SECONDS)
        response = message(*respond(request, data))
        signal.setitimer(signal.ITIMER_REAL, 0)
        del request, data
        responses.writelines(response)
        responses.flush()


def main() -> None:
    """Answer requests until the server ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the server ends it
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        os.nice(_NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    responses, sys.stdout = sys.stdout.buffer, sys.stderr
    gc.freeze()
    try:
        _work(responses)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()

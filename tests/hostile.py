"""Tries hostile folders and files: each in a process of its own, whose time and memory are measured.

Run as a script, this file reads a JSON list of [action, path] and prints [message, seconds, bytes] for each: None for
what was accepted, the message of a TransduceError, or one that begins with CRASH. The bytes are those by which the
memory of the process grew.
"""

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

CPU_SECONDS, ADDRESS_SPACE = 20, 8 << 30
"""Limits of a case, so that a finding does no harm to the machine."""
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 7, 2**31, 2**63, 10**400, 1e308, float("nan"),
    "", "x" * 100, "\x1b[2J", "\ud800", [], {}, [[]],
]  # fmt: skip
Outcome = tuple[str | None, float, int]


def try_all(transduce: Any, cases: Sequence[tuple[str, Path]], folder: Path) -> list[Outcome]:
    """The outcome of each case, an action and its path; `folder` is the current folder of the processes."""
    requests = json.dumps([[action, str(path)] for action, path in cases])
    before = "import os; os.environ['TOKENIZERS_PARALLELISM'] = 'false'"
    done = transduce(program=Path(__file__), stdin=requests, cwd=folder, before=before)
    assert done.code == 0, done.err
    return [tuple(json.loads(line)) for line in done.out.splitlines()]


def problems(outcome: Outcome, path: Path, *, must_fail: bool = True) -> list[str]:
    """What is wrong with an outcome: anything but one line that names the path, at low cost."""
    message, seconds, memory = outcome
    if message is None:
        return ["accepted"] if must_fail else []
    checks = {
        "crash": message.startswith("CRASH"),
        "no path": str(path) not in message,
        "several lines": "\n" in message,
        "long": len(message) >= 2000,
        "slow": seconds >= 2,
        "memory": memory >= 400e6,
    }
    return [f"{name}: {message:.300} ({seconds:.1f} s, {memory / 1e6:.0f} MB)" for name, bad in checks.items() if bad]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a tree of JSON."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def change_json(path: Path, draw: random.Random) -> None:
    """Replace or remove one value of a JSON file."""
    tree = json.loads(path.read_text())
    *way, key = draw.choice(list(places(tree)))
    table = tree
    for step in way:
        table = table[step]
    if draw.random() < 0.2:
        del table[key]
    else:
        table[key] = draw.choice(STRANGE)
    path.write_text(json.dumps(tree))


def change_bytes(path: Path, draw: random.Random) -> None:
    """Change a few bytes, most of them near the beginning, or cut the file."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 5)):
        start = draw.randrange(min(len(content), draw.choice([100, 4000, len(content)])))
        new = draw.choice([draw.randbytes(1), b"\xff" * 4, bytes(4), (2**31 - 1).to_bytes(8, "little")])
        content[start : start + len(new)] = new
    path.write_bytes(content[: draw.randrange(len(content))] if draw.random() < 0.3 else content)


def change_kind(path: Path, draw: random.Random) -> None:
    """Remove a file, or put something in its place that is no plain file."""
    path.unlink()
    kind = draw.randrange(4)
    if kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.mkdir()


def change_one_file(folder: Path, draw: random.Random) -> None:
    """Damage one file of a folder, or the file itself."""
    path = draw.choice(sorted(folder.iterdir())) if folder.is_dir() else folder
    kind = draw.random()
    if kind < 0.1:
        change_kind(path, draw)
    elif path.suffix == ".json" and kind < 0.9:
        change_json(path, draw)
    else:
        change_bytes(path, draw)


def actions() -> dict[str, Callable[[str], object]]:
    """What is done with a folder; all modules are imported here, once for all cases."""
    import numpy as np

    from transduce.classification.classifier import Classifier
    from transduce.encoders.text_encoder import TextEncoder
    from transduce.interop.import_model import import_model
    from transduce.language_model.generator import Generator
    from transduce.models.folder import load_model
    from transduce.parsing.parser import Parser
    from transduce.speech.sound import SILENCE
    from transduce.speech.transcriber import Transcriber
    from transduce.translation.translator import Translator

    tone, image = np.full(4000, SILENCE, np.uint16), np.zeros((8, 8, 1), np.uint8)

    def import_and_load(path: str) -> None:
        import_model(Path(path), Path(f"{path}-imported"))
        load_model(Path(f"{path}-imported"))

    def transcribe(path: str) -> None:
        Transcriber.load(path, device="cpu").transcript(tone)

    return {
        "translate": lambda path: Translator.load(path, device="cpu").translate(["ba bo", ""]),
        "load": lambda path: Translator.load(path, device="cpu"),
        "generate": lambda path: Generator.load(path, device="cpu").generate("ba", max_tokens=3),
        "fill": lambda path: TextEncoder.load(path, device="cpu").fill("ba <mask>"),
        "embed": lambda path: TextEncoder.load(path, device="cpu").embed(["ba bo", ""]),
        "classify": lambda path: Classifier.load(path, device="cpu").classify(["ba bo", ""]),
        "classify_image": lambda path: Classifier.load(path, device="cpu").classify([image]),
        "parse": lambda path: Parser.load(path, device="cpu").parse(["ba bo"]),
        "transcribe": transcribe,
        "import": import_and_load,
    }


def outcome_of(action: Callable[[str], object], path: str) -> Outcome:
    from transduce.errors import TransduceError

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    start, message, memory = time.process_time(), None, resident()
    try:
        action(path)
    except TransduceError as error:
        message = str(error)
    except BaseException as error:
        message = f"CRASH {error!r}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return message, time.process_time() - start, peak - memory


def resident() -> int:
    """The memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Fork for each case."""
    table = actions()
    for action, path in json.load(sys.stdin):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.dup2(2, 1)
            message, seconds, memory = outcome_of(table[action], path)
            os.write(writer, json.dumps([message and message[:9000], seconds, memory]).encode())
            os._exit(0)
        os.close(writer)
        status = os.wait()[1]
        print(os.read(reader, 65536).decode() or json.dumps([f"CRASH with status {status}", 0, 0]), flush=True)
        os.close(reader)


if __name__ == "__main__":
    main()

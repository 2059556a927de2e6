"""`transduce serve`."""

import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import TIMEOUT, ServerProcess


def test_a_command_line_error_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    for arguments, message in [
        (["-m", "nothing"], "nothing: no such folder"),
        (["-m", "run", "--limit", "beems=4"], "unknown key beems"),
        (["-m", "run", "--limit", "queue=0"], "queue must be above 0"),
        (["-m", "run", "-m", "run"], "two models are named run"),
        (["-m", "run", "--keys", str(tmp_path / "keys")], "contains no API key"),
        (["-m", "run", "--keys", "missing"], "missing"),
        (["-m", "run", "--suggestions", "missing/new.jsonl"], "missing/new.jsonl: No such file or directory"),
        (["-m", "run", "--suggestions", "new.tsv"], "--suggestions new.tsv: pairs are added as JSON lines; end its"),
        (["-m", "run", "--host", "256.0.0.1"], "cannot listen on 256.0.0.1"),
    ]:
        outcome = transduce("serve", *arguments, cwd=trained.folder)
        assert outcome.code == 2, (arguments, outcome)
        assert outcome.err.startswith("transduce: ")
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_environment_variable_without_keys_does_not_open_the_server(
    transduce: Any, trained: Any, value: str
) -> None:
    before = f"import os; os.environ['TRANSDUCE_API_KEYS'] = {value!r}"
    outcome = transduce("serve", "-m", "run", "--port", "0", before=before, cwd=trained.folder)
    message = "transduce: TRANSDUCE_API_KEYS contains no API key; unset it to serve without keys\n"
    assert (outcome.code, outcome.err) == (2, message)


def test_without_the_extra_the_error_names_the_package_to_install(trained: Any) -> None:
    code = "import sys; sys.modules['fastapi'] = None; sys.argv = ['transduce', 'serve', '-m', 'run']; "
    code += "from transduce.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "transduce: serving needs fastapi: pip install 'transduce[serve]'\n"


def test_the_server_needs_no_writable_file_system(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """No file may be written, as on a read-only file system."""
    environment = transduce.environment | {"PYTHONDONTWRITEBYTECODE": "1"}

    def write_nothing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    read, write = os.pipe()  # the log is a pipe because files cannot be written
    command = [sys.executable, "-m", "transduce", "serve", "--port", "0", "-m", "toy=run"]
    with subprocess.Popen(
        command, cwd=trained.folder, env=environment, stderr=write, preexec_fn=write_nothing
    ) as process:
        os.close(write)
        with os.fdopen(read) as stderr:
            address = re.search(r"http://\S+", stderr.readline())[0]
            body = {"q": (None, "babo " * 4000), "source": (None, "en"), "target": (None, "de")}
            response = httpx.post(f"{address}/translate", files=body, timeout=TIMEOUT)
            assert response.status_code == 200
            assert httpx.post(f"{address}/v1/translate", json={"text": "babo", "align": True}).status_code == 200
            process.terminate()
            assert process.wait(TIMEOUT) == 0


def test_an_ipv6_address_is_printed_as_a_valid_url(transduce: Any, trained: Any, tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    arguments = ["--host", "::1", "-m", trained.run]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        assert server.address.startswith("http://[::1]:")
        assert httpx.get(f"{server.address}/health").status_code == 200
        assert httpx.get(f"{server.address}/health", headers={"host": "evil.example"}).status_code == 421


def test_several_models_are_served_by_name(transduce: Any, trained: Any, tmp_path: Path) -> None:
    arguments = ["-m", f"de={trained.run}", "-m", f"fr={trained.run}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        assert server.address.startswith("http://127.0.0.1:")
        for name in ("de", "fr"):
            response = httpx.post(
                f"{server.address}/v1/translate", json={"text": "babo", "model": name}, timeout=TIMEOUT
            )
            assert response.json()["model"] == name
        languages = httpx.get(f"{server.address}/languages").json()
        assert [line["targets"] for line in languages] == [["de", "fr"], [], []]
        assert server.process.poll() is None

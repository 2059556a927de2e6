"""`transduce doctor`."""

import json
from dataclasses import asdict

import typer

from transduce.cli.messages import wrapped
from transduce.cli.options import JsonOption


def doctor(as_json: JsonOption = False) -> None:
    """Print what this machine offers, what will be used, and why the rest is not.

    A sentence is translated with the bundled model. The exit code is 1 if something does not work that should; what is
    only missing, such as a GPU, is not a problem.
    """
    from transduce.environment import examine

    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1, ensure_ascii=False))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            line = f"{finding.name:<{width}}  {'PROBLEM: ' * finding.problem}{finding.text}"
            print(wrapped(line, indent=width + 2))
    if any(finding.problem for finding in findings):
        raise typer.Exit(1)

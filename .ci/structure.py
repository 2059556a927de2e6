"""Checks the structure of the package: no import cycles, no empty names, no function over 100 lines.

    python .ci/structure.py [FOLDER]

Prints one line per finding and exits with 1 if there are any. Imports count if they run when a module is loaded; those
inside functions and below `if TYPE_CHECKING` do not.
"""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "transduce"
EMPTY_NAMES = {"one", "own", "some", "asked", "given"}
MOST_LINES = 100


def check(package: Path) -> list[str]:
    trees = {path: ast.parse(path.read_bytes(), str(path)) for path in sorted(package.rglob("*.py"))}
    findings = [finding for path, tree in trees.items() for finding in (*_names(path, tree), *_lengths(path, tree))]
    return findings + list(_cycles(package, trees))


def _names(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
            name = node.name or ""
        else:
            continue
        if name in EMPTY_NAMES:
            yield f"{path}:{node.lineno}: variable {name}: name it after what it holds, such as span or request"


def _lengths(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES:
                yield f"{path}:{node.lineno}: function {node.name} has {lines} lines: split it, at most {MOST_LINES}"


def _cycles(package: Path, trees: dict[Path, ast.Module]) -> Iterator[str]:
    """One import of each cycle that is found is left out of the search for further ones."""
    modules = {_module(package, path): path for path in trees}
    lines = {name: dict(_imports(name, path, trees[path], modules)) for name, path in modules.items()}
    imported = {name: set(targets) for name, targets in lines.items()}
    while True:
        try:
            TopologicalSorter(imported).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][::-1]  # each module imports the next
            importer, target = cycle[0], cycle[1]
            imported[importer].discard(target)
            place, path = f"{modules[importer]}:{lines[importer][target]}", " -> ".join(cycle)
            yield f"{place}: import cycle {path}: move what they share into a module below them"
        else:
            return


def _module(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: Path, tree: ast.Module, modules: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Yields the modules of the package that the module imports while it loads, with the line."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                target = f"{source}.{alias.name}"
                target = target if target in modules else source
                if target in modules and target != name:
                    yield target, node.lineno


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that run when a module is loaded, those inside `if`, `try`, `with` and classes included."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _statements(node.orelse)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def main() -> int:
    findings = check(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

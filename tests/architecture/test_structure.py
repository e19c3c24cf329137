"""The structure of the package: one name for one thing, no import circles, a docstring for every module."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tui"


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its dotted name, parsed."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return found


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a module; walking the trees takes most of the time of these tests."""
    return tuple(ast.walk(modules()[module]))


def imported(module: str) -> Iterator[str]:
    """Yield the package's modules that one imports anywhere, including in functions and under TYPE_CHECKING."""
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tui":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


def test_no_two_modules_share_a_name() -> None:
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.name].append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert not {name: owners for name, owners in places.items() if len(owners) > 1}


def test_imports_make_no_circle() -> None:
    """Remove, again and again, the modules that import none of the others left or that none left imports: a circle stays."""
    left = {module: set(imported(module)) - {module} for module in modules()}
    while True:
        wanted = set().union(*left.values())
        free = {module for module, others in left.items() if not others or module not in wanted}
        if not free:
            break
        left = {module: others - free for module, others in left.items() if module not in free}
    assert not left


def test_every_module_says_what_it_is_for() -> None:
    assert not [module for module, tree in modules().items() if not ast.get_docstring(tree)]


def test_loop_variables_say_what_they_hold() -> None:
    vague = [
        f"{module}:{name.lineno}"
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name) and name.id == "one"
    ]
    assert not vague

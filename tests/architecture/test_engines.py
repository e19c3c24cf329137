"""Nothing outside of the engines' packages names an engine, so that adding one is adding a package."""

import ast
from pathlib import Path

from tui.engines.registry import ENGINES, grammars

TUI = Path(__file__).parent.parent.parent / "tui"
ELSEWHERE = ("engines", "simulator")
"""The simulator plays a vLLM server."""


def literals(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def test_only_the_packages_of_engines_name_one() -> None:
    names = {engine.name for engine in ENGINES} | {engine.title for engine in ENGINES}
    names |= {title for engine in ENGINES for title in engine.command.titles}
    names |= {f"{engine.metrics.prefix}" for engine in ENGINES}
    found = [
        f"{path.relative_to(TUI)}:{line}: {text!r}"
        for path in TUI.rglob("*.py")
        if path.relative_to(TUI).parts[0] not in ELSEWHERE
        for line, text in literals(path)
        if text in names
    ]
    assert found == []


def test_every_engine_registers_what_is_asked_of_it() -> None:
    assert [grammar.engine for grammar in grammars()] == [engine.name for engine in ENGINES]
    for engine in ENGINES:
        assert engine.command.patterns
        assert engine.command.options["port"]
        assert engine.start_markers
        assert engine.important

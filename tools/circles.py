"""Report circles of imports in src: modules that know one another, directly or not.

    python tools/circles.py            every circle, and the imports that close it
    python tools/circles.py server     only circles with a module whose name contains a word

Imports under TYPE_CHECKING and inside functions count: a circle of knowledge stays a circle when
the interpreter never meets it. Exits with 1 if there is one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
Graph = dict[str, set[str]]
"""Module -> modules of the same tree it imports."""


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules that `tree` imports, anywhere in it; `from package import name` may be either."""
    found: set[str] = set()
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= submodules & modules
            if not submodules <= modules:
                found.add(node.module)
    return found & modules


def statements_of(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of `tree`, nested ones too. Expressions, most of a tree, hold no import."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, blocks, ())


def graph_of(source: Path) -> Graph:
    paths = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    modules = set(paths)
    return {
        name: imports_of(ast.parse(path.read_text()), modules) - {name}
        for name, path in paths.items()
    }


def circles_of(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module, largest first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in on_stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = []
            while not members or members[-1] != name:
                members.append(stack.pop())
                on_stack.discard(members[-1])
            if len(members) > 1:
                circles.append(sorted(members))

    sys.setrecursionlimit(10_000)
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(circles, key=lambda members: (-len(members), members))


def main() -> int:
    graph = graph_of(SOURCE)
    circles = [
        members
        for members in circles_of(graph)
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:] for name in members)
    ]
    for members in circles:
        print(f"a circle of {len(members)} modules:")
        for name in members:
            print(f"  {name} -> {', '.join(sorted(graph[name] & set(members)))}")
    print(f"{len(circles)} circles")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main())

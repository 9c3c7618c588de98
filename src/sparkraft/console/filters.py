"""Filters of records: a subset of CEL, parsed here and compiled to closures.

Operators `&& || ! == != < <= > >= in`, literals (numbers, text in single or double quotes, true,
false, null, lists), fields by `.name` and `[index]`, functions `has(a.b)` and `size(a)`, and
methods of text: `contains`, `startsWith`, `endsWith`, `matches`. A regular expression is RE2's, so
its time is linear in the text.

As in CEL, a missing field or a wrong type is an error, and `true || error` is true in either order.
Not done: arithmetic, `? :`, other macros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import re2

TEXT_MAX = 2_000
"""Characters of a filter: they are part of a page's address."""

DEPTH_MAX = 30
"""Nested parentheses, lists and negations: parsing and evaluation are recursive."""

Value = Any
Node = Callable[[Mapping[str, Value]], Value]


class FilterSyntaxError(ValueError):
    """The text is not a filter; the message names the position."""


class FilterError(Exception):
    """A filter cannot be evaluated for a record, as with a missing field or a wrong type."""


def compile_filter(text: str) -> Callable[[Mapping[str, Value]], bool]:
    """Return a predicate on the variables of a record, such as {"record": {...}}.

    Raises:
        FilterSyntaxError: see its message.
    """
    if len(text) > TEXT_MAX:
        raise FilterSyntaxError(f"a filter has at most {TEXT_MAX} characters")
    node = _Parser(text).parse()

    def predicate(variables: Mapping[str, Value]) -> bool:
        return _boolean(node(variables))

    return predicate


_TOKENS = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-!<>()\[\].,]))""",
    re.VERBOSE,
)

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}

_WORDS = {"true": True, "false": False, "null": None}


class _Parser:
    """Recursive descent over the tokens; each method returns the closure of what it parsed."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._either()
        kind, found, at = self._tokens[self._at]
        if kind != "end":
            raise FilterSyntaxError(f"unexpected {found!r} at {at}")
        return node

    # tokens

    def _accept(self, *signs: str) -> str | None:
        kind, found, _ = self._tokens[self._at]
        if found not in signs or kind == "text":
            return None
        self._at += 1
        return found

    def _expect(self, sign: str) -> None:
        _, found, at = self._tokens[self._at]
        if self._accept(sign) is None:
            raise FilterSyntaxError(f"expected {sign!r} at {at}, got {found or 'the end'!r}")

    def _name(self) -> str:
        kind, found, at = self._tokens[self._at]
        if kind != "name":
            raise FilterSyntaxError(f"expected a name at {at}")
        self._at += 1
        return found

    # expressions, weakest operator first

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterSyntaxError(f"more than {DEPTH_MAX} nested expressions")
        node = self._both()
        while self._accept("||"):
            node = _absorbing(node, self._both(), decisive=True)
        self._depth -= 1
        return node

    def _both(self) -> Node:
        node = self._comparison()
        while self._accept("&&"):
            node = _absorbing(node, self._comparison(), decisive=False)
        return node

    def _comparison(self) -> Node:
        left = self._unary()
        sign = self._accept(*_COMPARISONS)
        if sign is None:
            return left
        compare, right = _COMPARISONS[sign], self._unary()
        return lambda variables: compare(left(variables), right(variables))

    def _unary(self) -> Node:
        sign = self._accept("!", "-")
        if sign is None:
            return self._postfix(self._primary())
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterSyntaxError(f"more than {DEPTH_MAX} nested expressions")
        inner = self._unary()
        self._depth -= 1
        if sign == "!":
            return lambda variables: not _boolean(inner(variables))
        return lambda variables: -_number(inner(variables))

    def _primary(self) -> Node:
        kind, found, at = self._tokens[self._at]
        if self._accept("("):
            node = self._either()
            self._expect(")")
            return node
        if self._accept("["):
            items = self._items("]")
            return lambda variables: [item(variables) for item in items]
        self._at += 1
        if kind == "number":
            number = float(found) if re.search(r"[.eE]", found) else int(found)
            return lambda _: number
        if kind == "text":
            text = _unescaped(found)
            return lambda _: text
        if kind == "name":
            return self._named(found, at)
        raise FilterSyntaxError(f"unexpected {found or 'end'!r} at {at}")

    def _named(self, name: str, at: int) -> Node:
        if name in _WORDS:
            word = _WORDS[name]
            return lambda _: word
        if self._accept("("):
            arguments = self._items(")")
            if name not in {"has", "size"} or len(arguments) != 1:
                raise FilterSyntaxError(f"unknown function {name!r} at {at}")
            return _has(arguments[0]) if name == "has" else _size(arguments[0])
        return lambda variables: _member(variables, name)

    def _postfix(self, node: Node) -> Node:
        while True:
            if self._accept("."):
                name = self._name()
                is_call = self._accept("(") is not None
                node = self._method(node, name) if is_call else _field(node, name)
            elif self._accept("["):
                index = self._either()
                self._expect("]")
                node = _indexed(node, index)
            else:
                return node

    def _method(self, subject: Node, name: str) -> Node:
        arguments = self._items(")")
        if name == "size" and not arguments:
            return _size(subject)
        if name not in _METHODS or len(arguments) != 1:
            raise FilterSyntaxError(f"unknown method {name!r}; there are {', '.join(_METHODS)}")
        method, argument = _METHODS[name], arguments[0]
        return lambda variables: method(_text(subject(variables)), _text(argument(variables)))

    def _items(self, closing: str) -> list[Node]:
        items: list[Node] = []
        while not self._accept(closing):
            if items:
                self._expect(",")
            items.append(self._either())
        return items


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while text[at:].strip():
        found = _TOKENS.match(text, at)
        if found is None:
            raise FilterSyntaxError(f"unexpected character at {at}: {text[at : at + 10]!r}")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)
        at = found.end()
    yield "end", "", len(text)


def _unescaped(quoted: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise FilterSyntaxError(f"unknown escape \\{found[1]}")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", replaced, quoted[1:-1], flags=re.DOTALL)


# ---- evaluation


def _absorbing(left: Node, right: Node, *, decisive: bool) -> Node:
    """`||` (decisive: True) or `&&`: a decisive side makes an error of the other irrelevant."""

    def evaluate(variables: Mapping[str, Value]) -> bool:
        try:
            if _boolean(left(variables)) is decisive:
                return decisive
        except FilterError:
            if _boolean(right(variables)) is decisive:
                return decisive
            raise
        return _boolean(right(variables))

    return evaluate


def _boolean(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise FilterError(f"expected true or false, got {_type(value)}")


def _number(value: Value) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise FilterError(f"expected a number, got {_type(value)}")


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    raise FilterError(f"expected text, got {_type(value)}")


def _type(value: Value) -> str:
    return "null" if value is None else type(value).__name__


def _equal(left: Value, right: Value) -> bool:
    """As in CEL: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def evaluate(left: Value, right: Value) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        return compare(_number(left), _number(right))

    return evaluate


def _contained(item: Value, container: Value) -> bool:
    if isinstance(container, Mapping):
        return isinstance(item, str) and item in container
    if isinstance(container, list):
        return any(_equal(item, each) for each in container)
    raise FilterError(f"`in` needs a list or a map, got {_type(container)}")


_COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": _contained,
}


def _matches(text: str, pattern: str) -> bool:
    try:
        return re2.search(pattern, text) is not None
    except re2.error as error:
        raise FilterError(f"{pattern!r} is not a regular expression") from error


_METHODS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "matches": _matches,
}


def _member(container: Value, name: str) -> Value:
    if isinstance(container, Mapping) and name in container:
        return container[name]
    raise FilterError(f"unknown name {name!r}")


def _field(node: Node, name: str) -> Node:
    return lambda variables: _member(node(variables), name)


def _indexed(node: Node, index: Node) -> Node:
    def evaluate(variables: Mapping[str, Value]) -> Value:
        container, key = node(variables), index(variables)
        if not isinstance(container, list):
            return _member(container, _text(key))
        at = _number(key)
        if isinstance(at, int) and 0 <= at < len(container):
            return container[at]
        raise FilterError(f"element {key} does not exist")

    return evaluate


def _has(node: Node) -> Node:
    def evaluate(variables: Mapping[str, Value]) -> bool:
        try:
            node(variables)
        except FilterError:
            return False
        return True

    return evaluate


def _size(node: Node) -> Node:
    def evaluate(variables: Mapping[str, Value]) -> int:
        value = node(variables)
        if isinstance(value, (str, list, Mapping)):
            return len(value)
        raise FilterError(f"size() needs text, a list or a map, got {_type(value)}")

    return evaluate

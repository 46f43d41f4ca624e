"""Python source as statements: what each binds and uses, and as text that only its meaning changes."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORT = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Scope:
    """The names that the statements of a module bind, or those of a function around another one."""

    label: str  # "own:", or "own:make."
    package: str = ""  # of its module, for relative imports
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    loose: list[ast.stmt] = field(default_factory=list)  # statements that bind nothing
    around: "Scope | None" = None

    def statements(self, name: str) -> list[ast.stmt]:
        """Return the statements that bind a name here."""
        return self.bound.get(name, [])

    def owner_of(self, name: str) -> "Scope | None":
        """Return the scope that binds a name, this one or one around it; None if none does."""
        if self.statements(name):
            return self
        return None if self.around is None else self.around.owner_of(name)


def scope_of(body: list[ast.stmt], label: str, package: str, around: Scope | None = None) -> Scope:
    """Return what some statements bind."""
    scope = Scope(label, package, around=around)
    for statement in body:
        names = {*_bound_by(statement)}
        for name in names:
            scope.bound.setdefault(name, []).append(statement)
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_for_scripts = "__name__" in (name for name, *_ in uses(statement))
        if not names and not is_text and not is_for_scripts:
            scope.loose.append(statement)
    return scope


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds where it stands."""
    if isinstance(node, DEFINITION):
        yield node.name
    elif isinstance(node, IMPORT):
        yield from (bound_name(node, alias) for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _bound_by(child)


def bound_name(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """Return the name that a part of an import binds: `import a.b` binds a."""
    return alias.asname or (alias.name.partition(".")[0] if isinstance(statement, ast.Import) else alias.name)


def uses(node: ast.AST) -> Iterator[list[str]]:
    """Yield the names in a piece of source, each with the attributes after it: ["helpers", "net"]."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        yield [node.id, *attributes]
        return
    for child in ast.iter_child_nodes(node):
        yield from uses(child)


def canonical(node: ast.AST) -> str:
    """Return a piece of source as text in which comments, docstrings, layout and Python's version play no part."""
    parts = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment") or value is None or value == []:
            continue
        several = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(node, DEFINITION) and ast.get_docstring(node, clean=False) is not None:
            several = several[1:]
        texts = (canonical(one) if isinstance(one, ast.AST) else repr(one) for one in several)
        parts.append(f"{name}={','.join(texts)}")
    return f"{type(node).__name__}({';'.join(parts)})"

"""Public functions say what they take, give and raise; formulas name their source."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from plugrad.ops import Ops

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "core/plugrad",
    *sorted(ROOT.glob("backends/plugrad_*")),
    *sorted(ROOT.glob("plugins/plugrad_*")),
]
NOT_COUNTED = {"plugrad_rllib", "tests"}
"""Packages of older names, and the tests that a template brings along."""
OPS = ("ops.py", "numpy_ops.py", "numpy_loss_ops.py")
"""Files of ops: one line each is enough there."""
DOCUMENTED = 0.9
RETURNS_NOTHING = {
    "None",
    "NoReturn",
    "Never",
    "Iterator[None]",
    "Generator[None]",
    "Generator[None, None, None]",
}
FORMULAS = (
    # losses
    "marwil_loss",
    "dqn_loss",
    "td_errors",
    "ppo_loss",
    "Ops.huber",
    "noise_and_signal",
    # returns
    "returns_to_go",
    "n_step_returns",
    "lambda_returns",
    "generalized_advantage_estimation",
    "vtrace",
    "transitions",
    # distributions
    "Categorical",
    "MultiCategorical",
    "DiagGaussian",
    "SquashedGaussian",
    # optimizers, clipping
    "Adam",
    "AdamW",
    "SGD",
    "RMSprop",
    "clip_gradients",
    # networks
    "QNetwork",
    "lstm",
    "orthogonal",
    "TargetNetwork.update",
    # experience
    "RunningMoments.merge",
    "PrioritizedReplayBuffer",
    "SumTree",
)
"""Functions and classes that compute what a paper or a book defines."""
SOURCE = re.compile(
    r"arXiv:(\d{4}\.\d{4,5}|[a-z-]+/\d{7})"
    r"|doi:10\.\d{4,9}/\S+"
    r"|\"[^\"]+\"[:,] .{0,60}?(eq\.|equation|algorithm|exercise|section|theorem) [\d.]+",
    re.DOTALL,
)
"""An arXiv number, a DOI, or a book with its equation: `Author, "Title", 2018, equation 7.1`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Documented:
    """A function of the sources.

    Args:
        package: the file's folder below its package, or its own name where it lies at the top.
        path: of the file, from the repository's root.
        name: `function` or `Class.method`.
        node: its definition.
        is_public: it has no leading underscore, nor have its class and file.
    """

    package: str
    path: Path
    name: str
    node: Function
    is_public: bool

    @property
    def docstring(self) -> str:
        """Its own, without indentation."""
        return inspect.cleandoc(ast.get_docstring(self.node) or "")

    @property
    def parameters(self) -> list[str]:
        """All but `self` and `cls`."""
        args = self.node.args
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        rest = [each for each in (args.vararg, args.kwarg) if each is not None]
        bound = "." in self.name and "staticmethod" not in self.decorators
        return [each.arg for each in named[1 if bound else 0 :] + rest]

    @property
    def decorators(self) -> set[str]:
        """Their names, without arguments."""
        return {ast.unparse(each).split("(")[0] for each in self.node.decorator_list}

    @property
    def counts(self) -> bool:
        """Whether the bar is for it: not for tests, ops, overloads, and commands, whose docstring is their help."""
        is_test = self.node.name.startswith(("test_", "pytest_")) or "pytest.fixture" in self.decorators
        is_op = self.path.name in OPS
        is_command = bool(self.decorators & {"click.command", "click.group"})
        return (
            self.is_public
            and len(self.parameters) > 1
            and not (is_test or is_op or is_command or self.decorators & {"overload", "typing.overload"})
        )

    def missing(self) -> list[str]:
        """What its docstring, or the one that it says to see, does not say."""
        if self.overrides_documented():
            return []
        seen = self.seen()
        texts = [self.docstring, *(each.docstring for each in seen)]
        described = {name for text in texts for name in entries(text, "Args")}
        # A hook is declared by a method of the learner, and all that answer it take the learner.
        described |= {"learner" for each in seen if "learner_method" in each.decorators}
        missing = [f"Args: {name}" for name in self.parameters if name not in described]
        if self.returns_something() and not any(
            re.search(r"^(Returns|Yields):", text, re.M) for text in texts
        ):
            missing.append("Returns")
        raised = {name for text in texts for name in entries(text, "Raises")}
        if self.raises() and not raised:
            missing.append("Raises")
        return missing

    def overrides_documented(self) -> bool:
        """Whether its docstring says to see a method of another distribution, `click.Command.parse_args`."""
        named = re.findall(r"[Ss]ee\s+`(?!plugrad)(\w+)\.(\w+\.\w+)`", self.docstring)
        return any(
            find_spec(module) and callable(attrgetter(path)(import_module(module))) for module, path in named
        )

    def seen(self) -> list["Documented"]:
        """The functions that its docstring says to see: "See `Class.method`"."""
        names = re.findall(r"[Ss]ee\s+`(?:\w+\.)*?(\w+\.\w+|\w+)`", self.docstring)
        return [each for name in names for each in by_name().get(name, []) if each != self]

    def returns_something(self) -> bool:
        """Whether it is annotated with more than None."""
        return self.node.returns is not None and ast.unparse(self.node.returns) not in RETURNS_NOTHING

    def raises(self) -> bool:
        """Whether its own body raises an error, other than one that it caught or that says "to be overridden"."""
        return any(
            isinstance(each, ast.Raise)
            and each.exc is not None
            and "NotImplementedError" not in ast.unparse(each.exc)
            for each in own_nodes(self.node)
        )


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function but those of functions within it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from own_nodes(child)


def entries(docstring: str, section: str) -> set[str]:
    """The names in a section of a docstring in Google's style, without stars."""
    found = re.search(rf"^{section}:\n((?:    .*(?:\n|$)|\n)+)", docstring, re.M)
    lines = re.findall(r"^    (\*{0,2}\w[\w., *]*?)(?: \(.*?\))?:(?:\s|$)", found[1], re.M) if found else []
    return {name.strip().lstrip("*") for line in lines for name in line.split(",")}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """All files of core, backends and plugins, but those of older names."""
    paths = [path for source in SOURCES for path in sorted(source.rglob("*.py"))]
    counted = [path for path in paths if not NOT_COUNTED & set(path.relative_to(ROOT).parts)]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in counted]


def functions_in(path: Path, tree: ast.Module) -> Iterator[Documented]:
    source = next(each for each in SOURCES if each in path.parents)
    parts = path.relative_to(source).with_suffix("").parts
    package = f"{source.name}/{parts[0]}" if len(parts) > 1 and source.name == "plugrad" else source.name
    hidden = any(part.startswith("_") and part != "__init__" for part in parts)

    def walk(node: ast.AST, prefix: str, is_public: bool) -> Iterator[Documented]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                name = prefix + child.name
                yield Documented(
                    package, path.relative_to(ROOT), name, child, is_public and not child.name.startswith("_")
                )
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{child.name}.", is_public and not child.name.startswith("_"))
            elif isinstance(child, ast.If | ast.Try):
                yield from walk(child, prefix, is_public)

    yield from walk(tree, "", not hidden)


@cache
def functions() -> list[Documented]:
    """All of core, backends and plugins."""
    return [each for path, tree in trees() for each in functions_in(path, tree)]


@cache
def by_name() -> dict[str, list[Documented]]:
    """`{"Class.method" or "module.function": [...]}`; of hooks also without the method's leading underscore."""
    found: dict[str, list[Documented]] = {}
    for each in functions():
        for name in {each.name, each.name.replace("Spec._", "Spec."), f"{each.path.stem}.{each.name}"}:
            found.setdefault(name, []).append(each)
    return found


def report() -> tuple[str, float]:
    """What is missing, file by file, with a figure per package; and the part that is documented."""
    counted = [each for each in functions() if each.counts]
    lacking = [each for each in counted if each.missing()]
    lines = []
    for package in sorted({each.package for each in counted}):
        total, less = (sum(each.package == package for each in some) for some in (counted, lacking))
        lines.append(f"{package}: {total - less} of {total}")
        lines += [
            f"    {each.path}:{each.node.lineno} {each.name}: {', '.join(each.missing())}"
            for each in lacking
            if each.package == package
        ]
    part = 1 - len(lacking) / len(counted)
    return "\n".join([*lines, f"all: {len(counted) - len(lacking)} of {len(counted)}, {part:.3f}"]), part


def test_public_functions_say_what_they_take_give_and_raise():
    text, part = report()
    assert part >= DOCUMENTED, text


def test_what_a_docstring_says_to_see_exists():
    """A method that moved to another class leaves such words behind."""
    gone = [
        f"{each.path}:{each.node.lineno} {each.name}: see `{name}`"
        for each in functions()
        for name in re.findall(r"[Ss]ee\s+`(?:plugrad[\w.]*\.)?([A-Z]\w+\.\w+)`", each.docstring)
        if name not in by_name()
    ]
    assert gone == []


def test_each_op_has_a_line_in_the_protocol():
    """Implementations have the names of the protocol, or say themselves what they do."""
    ops = [each for each in functions() if each.path.name in OPS and each.is_public]
    assert len({each.path for each in ops}) >= 4
    unsaid = [f"{each.path} {each.name}" for each in ops if not (each.docstring or hasattr(Ops, each.name))]
    assert unsaid == []


def definitions(name: str) -> list[tuple[Path, str]]:
    """The file of each function or class of this name, and the text in which its source may stand.

    That is its own docstring, its class's and its file's.
    """
    found = []
    for path, tree in trees():
        nodes: list[Any] = [tree]
        for part in name.split("."):
            named = [each for each in nodes[-1].body if getattr(each, "name", None) == part]
            nodes += named[:1]
        if len(nodes) == 1 + len(name.split(".")):
            found.append((path, "\n".join(ast.get_docstring(each) or "" for each in nodes)))
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_names_its_source(name: str) -> None:
    found = definitions(name)
    assert found, f"no function or class {name}: say here what it is called now"
    for path, text in found:
        assert SOURCE.search(text), f"{path}: {name} says no arXiv number, DOI, or book with its equation"


def test_what_is_not_documented_is_noticed() -> None:
    whole = """Do it.

    Args:
        a: one.
        *b, c: others (here).

    Raises:
        ValueError: never.
    """
    assert entries(inspect.cleandoc(whole), "Args") == {"a", "b", "c"}
    node = ast.parse("def f(a, b, d) -> int:\n    raise ValueError(a)").body[0]
    assert isinstance(node, Function)
    assert Documented("", Path("f.py"), "f", node, True).missing() == [
        "Args: a",
        "Args: b",
        "Args: d",
        "Returns",
        "Raises",
    ]


if __name__ == "__main__":
    print(report()[0])

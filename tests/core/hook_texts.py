"""What is written from the specifications of hooks: the Learner's methods, and the reference in docs/hooks.md.

    python tests/core/hook_texts.py

reads `core/plugrad/hooks/*_spec.py` and writes `*_methods.py` beside them and the sections of the page.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "core/plugrad/hooks"
PAGE = ROOT / "docs/hooks.md"
COMMAND = "python tests/core/hook_texts.py"
SECTIONS = {
    "Backend hooks": ("backend", "gradient"),
    "Algorithm hooks": ("algorithm",),
    "Learner hooks": ("learner",),
    "Listener hooks": ("listener",),
}
"""The page's sections, with the files `<name>_spec.py` of each."""
WITH_METHODS = ("backend", "gradient", "algorithm", "learner")
WIDTH = 110
PROSE = 120
MODULES_OWN = {
    "Config": "self.config.get_config_for_module(module_id)",
    "ConfigView": "self.config_view(module_id)",
}
"""What a `config` that is None stands for, by its type."""


@dataclass(frozen=True)
class Spec:
    """One specification.

    Args:
        node: its source.
    """

    node: ast.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def arguments(self) -> dict[str, str]:
        """Annotations by name, without `self`."""
        return {each.arg: ast.unparse(each.annotation) for each in self.node.args.args[1:] if each.annotation}

    @property
    def returns(self) -> str:
        assert self.node.returns is not None
        return ast.unparse(self.node.returns)

    @property
    def form(self) -> dict[str, str] | None:
        """The arguments of its `@learner_method(...)` as source; None: it has no method."""
        for each in self.node.decorator_list:
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "learner_method":
                given = {word.arg: ast.unparse(word.value) for word in each.keywords if word.arg}
                return {"name": ast.literal_eval(each.args[0]) if each.args else self.name, **given}
        return None

    @property
    def documentation(self) -> dict[str, str]:
        """The docstring's sections, dedented: "" is what stands before the first."""
        text = inspect.cleandoc(ast.get_docstring(self.node) or "")
        parts = re.split(r"^(Args|Returns|Raises|Example):\n", text, flags=re.M)
        named = zip(parts[1::2], parts[2::2], strict=True)
        return {"": parts[0].strip(), **{name: textwrap.dedent(part).strip() for name, part in named}}

    @property
    def described(self) -> dict[str, str]:
        """`{argument: what it is}`, without the learner."""
        return {name: text for name, text in entries(self.documentation.get("Args", "")) if name != "learner"}


def specs(file: str) -> list[Spec]:
    """All of `<file>_spec.py`, in order."""
    (cls,) = [each for each in _tree(file).body if isinstance(each, ast.ClassDef)]
    return [Spec(each) for each in cls.body if isinstance(each, ast.FunctionDef)]


def entries(text: str) -> Iterator[tuple[str, str]]:
    """`name: text` of a section, whose further lines are indented."""
    for each in re.findall(r"^(\w+):[ \n](.*(?:\n .*)*)", text, flags=re.M):
        yield each[0], " ".join(each[1].split())


def _tree(file: str) -> ast.Module:
    return ast.parse((HOOKS / f"{file}_spec.py").read_text(encoding="utf-8"))


# --- the methods ----------------------------------------------------------------------------------------------------


def methods_file(file: str) -> str:
    """The text of `<file>_methods.py`."""
    body = "\n".join(method(each) for each in specs(file) if each.form is not None)
    name = f"{file.capitalize()}Methods"
    summary = f"The Learner's methods that are hooks of `{file}_spec`."
    code = f'class {name}(HookCaller, Protocol):\n    """{summary}"""\n\n{body}'
    head = f'"""{summary}\n\nWritten by `{COMMAND}`: change the specifications, not this file.\n"""\n'
    return f"{head}\n{_imports(file, code)}\n\n\n{code}"


def method(spec: Spec) -> str:
    """The source of one method, indented."""
    form = dict(spec.form or {})
    name, is_adaptable = form.pop("name"), form.pop("adaptable", "False") == "True"
    star = ["*"] if form.pop("keyword_only", "False") == "True" else []
    parameters = [
        "**kwargs: Any" if each == "kwargs" else _parameter(each, kind, form.get(each))
        for each, kind in spec.arguments.items()
        if each != "learner"
    ]
    lines = ["@adaptable"] if is_adaptable else []
    lines += _call(f"def {name}(", ["self", *star, *parameters], f") -> {spec.returns}:", 4)
    lines += textwrap.indent(f'"""{_method_docstring(spec)}', "    ").split("\n")
    lines += ["    " + line for line in _body(spec, form)]
    return "\n".join(f"    {line}".rstrip() for line in lines) + "\n"


def _parameter(name: str, kind: str, default: str | None) -> str:
    if default is None:
        return f"{name}: {kind}"
    optional = default == "None" and kind != "Any" and "None" not in kind
    return f"{name}: {kind}{' | None' if optional else ''} = {default}"


def _method_docstring(spec: Spec) -> str:
    parts = dict(spec.documentation)
    parts.pop("Example", None)
    arguments = re.sub(r"^learner:.*\n?(?: .*\n?)*", "", parts.pop("Args", ""), flags=re.M)
    arguments = re.sub(r"^kwargs:", "**kwargs:", arguments, flags=re.M).strip()
    text = parts.pop("")
    for name, part in {"Args": arguments, **parts}.items():
        if part:
            text += f"\n\n{name}:\n{textwrap.indent(part, '    ')}"
    return f'{text}\n"""' if "\n" in text else f'{text}"""'


def _body(spec: Spec, form: dict[str, str]) -> list[str]:
    lines = []
    if form.get("config") == "None":
        lines.append(f"config = {MODULES_OWN[spec.arguments['config']]} if config is None else config")
    given = [f'"{spec.name}"', *(f"{each}={each}" for each in spec.arguments if each != "learner")]
    if spec.returns == "None":
        return lines + _call("self._provide(", given, ")", 8)
    if spec.returns in ("Any", "Tensor"):
        return lines + _call("return self._provide(", given, ")", 8)
    if spec.returns in ("bool", "float"):
        inner = _call(f"return {spec.returns}(self._provide(", given, "))", 8)
        if len(inner) == 1:
            return lines + inner
        nested = _call("self._provide(", given, ")", 12)
        return [*lines, f"return {spec.returns}(", *(f"    {line}" for line in nested), ")"]
    return [*lines, *_call(f"answer: {spec.returns} = self._provide(", given, ")", 8), "return answer"]


def _call(begin: str, arguments: list[str], end: str, indent: int) -> list[str]:
    """Arguments in brackets as the formatter breaks them: on one line, on a line of their own, on one each."""
    whole = ", ".join(arguments)
    if indent + len(begin + whole + end) <= WIDTH:
        return [begin + whole + end]
    if indent + 4 + len(whole) <= WIDTH:
        return [begin, f"    {whole}", end]
    return [begin, *(f"    {each}," for each in arguments), end]


def _imports(file: str, code: str) -> str:
    where = {
        "Protocol": "typing",
        "HookCaller": "plugrad.hooks.hook_caller",
        "adaptable": "plugrad.deprecation",
    }
    for node in _tree(file).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            where.update({each.name: node.module for each in node.names})
    used = {each.id for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Name)} & where.keys()
    modules: dict[str, list[str]] = {}
    for name in sorted(used, key=lambda each: (not each.isupper(), each[0].islower(), each)):
        modules.setdefault(where[name], []).append(name)
    blocks = [
        [each for each in sorted(modules) if each.startswith("plugrad") is own] for own in (False, True)
    ]
    return "\n\n".join("\n".join(_import(each, modules[each]) for each in block) for block in blocks)


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return f"from {module} import (\n" + "".join(f"    {each},\n" for each in names) + ")"


# --- the page -------------------------------------------------------------------------------------------------------


def page(present: str) -> str:
    """The whole page; what stands before the hooks of each section is kept as it is."""
    head, *parts = re.split(r"^## ", present, flags=re.M)
    texts = [head]
    for part in parts:
        title = part.partition("\n")[0]
        intro = re.split(r"^### ", part, flags=re.M)[0].rstrip()
        hooks = [section(each) for file in SECTIONS.get(title, ()) for each in specs(file)]
        texts.append("\n\n".join([f"## {intro}", *hooks]) + "\n\n" if hooks else f"## {part}")
    return "".join(texts).rstrip() + "\n"


def section(spec: Spec) -> str:
    """What the page says of one hook."""
    documentation = spec.documentation
    paragraphs = [f"### `{spec.name}({', '.join(spec.arguments)})`"]
    paragraphs += [_wrapped(each) for each in documentation[""].split("\n\n")]
    items = [_item(f"`{name}`: {text}") for name, text in spec.described.items()]
    if "Returns" in documentation:
        items.append(_item(f"Returns: {documentation['Returns']}"))
    items += [_item(f"Raises `{name}`: {text}") for name, text in entries(documentation.get("Raises", ""))]
    paragraphs += ["\n".join(items)] if items else []
    paragraphs += [facts(spec), f"```python\n{documentation['Example']}\n```"]
    return "\n\n".join(paragraphs)


def facts(spec: Spec) -> str:
    """Who answers, and what may be done with the answer."""
    # Here, so that broken methods can be written anew.
    from plugrad import Learner
    from plugrad.hooks.dispatch import hook_methods
    from plugrad.hooks.manager import implementations
    from plugrad.learner.learner import CORE

    one = "firstresult=True" in " ".join(ast.unparse(each) for each in spec.node.decorator_list)
    default = any(spec.name in implementations(plugin) for plugin in CORE)
    traced = re.search(r"\btraced\b", ast.get_docstring(spec.node) or "", flags=re.I) is not None
    wrappable = not one or spec.name in hook_methods(Learner).values()
    words = [
        f"Core default: {_yes(default)}.",
        f"Traced: {_yes(traced)}.",
        f"Can be wrapped: {_yes(wrappable)}.",
    ]
    return " ".join(["One answer." if one else "All are called.", *words])


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _item(text: str) -> str:
    return _wrapped(f"- {text}", later="  ")


def _wrapped(text: str, later: str = "") -> str:
    """Code in backticks stays on one line."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), " ".join(text.split()))
    lines = textwrap.wrap(
        whole, PROSE, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


def written() -> Iterator[tuple[Path, str]]:
    """Each file and its text."""
    for file in WITH_METHODS:
        yield HOOKS / f"{file}_methods.py", methods_file(file)
    yield PAGE, page(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path, text in written():
        path.write_text(text, encoding="utf-8")

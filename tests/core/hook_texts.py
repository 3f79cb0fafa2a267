"""The reference in docs/hooks.md, written from the specifications of hooks.

    python tests/core/hook_texts.py

reads the classes of `core/plugrad/hooks/*_spec.py` and writes the sections of the page.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plugrad import CONTRACT_VERSION, Learner
from plugrad.contract import since_version
from plugrad.hooks.algorithm_spec import AlgorithmSpec
from plugrad.hooks.backend_spec import Capability
from plugrad.hooks.build_spec import AlgorithmBuildSpec
from plugrad.hooks.learner_spec import LearnerSpec
from plugrad.hooks.listener_spec import ListenerSpec
from plugrad.hooks.manager import (
    BACKEND_SPECIFICATIONS,
    has_one_answer,
    hook_methods,
    implementations,
    specifications,
)
from plugrad.learner.learner import CORE
from plugrad.ops import Ops

PAGE = Path(__file__).parents[2] / "docs/hooks.md"
COMMAND = "python tests/core/hook_texts.py"
SECTIONS: Mapping[str, tuple[type[Any], ...]] = {
    "Backend hooks": BACKEND_SPECIFICATIONS,
    "Algorithm hooks": (AlgorithmBuildSpec, AlgorithmSpec),
    "Learner hooks": (LearnerSpec,),
    "Listener hooks": (ListenerSpec,),
}
"""The page's sections, with the classes of each."""
VERSIONS = "Contract versions"
"""The section that says what each version brought."""
PROSE = 120

Specification = Callable[..., Any]


def documentation(spec: Specification) -> dict[str, str]:
    """The docstring's sections, dedented: "" is what stands before the first."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", inspect.getdoc(spec) or "", flags=re.M)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {"": parts[0].strip(), **{name: textwrap.dedent(part).strip() for name, part in named}}


def entries(text: str) -> Iterator[tuple[str, str]]:
    """`name: text` of a section, whose further lines are indented."""
    for each in re.findall(r"^\**(\w+):[ \n](.*(?:\n .*)*)", text, flags=re.M):
        yield each[0], " ".join(each[1].split())


def page(present: str) -> str:
    """The whole page; what stands before the hooks of each section is kept as it is."""
    head, *parts = re.split(r"^## ", present, flags=re.M)
    texts = [head]
    for part in parts:
        title = part.partition("\n")[0]
        intro = re.split(r"^### ", part, flags=re.M)[0].rstrip()
        hooks = [section(*each) for each in specifications(SECTIONS.get(title, ())).items()]
        if title == VERSIONS:
            intro = re.split(r"^- Version ", part, flags=re.M)[0].rstrip()
            hooks = ["\n".join(versions())]
        texts.append("\n\n".join([f"## {intro}", *hooks]) + "\n\n" if hooks else f"## {part}")
    return "".join(texts).rstrip() + "\n"


def section(hook: str, spec: Specification) -> str:
    """What the page says of one hook."""
    documented = documentation(spec)
    arguments = [name for name in inspect.signature(spec).parameters if name != "self"]
    paragraphs = [f"### `{hook}({', '.join(arguments)})`"]
    paragraphs += [_wrapped(each) for each in documented[""].split("\n\n")]
    described = dict(entries(documented.get("Args", "")))
    described.pop("learner", None)
    items = [_item(f"`{name}`: {text}") for name, text in described.items()]
    if "Returns" in documented:
        items.append(_item(f"Returns: {documented['Returns']}"))
    items += [_item(f"Raises `{name}`: {text}") for name, text in entries(documented.get("Raises", ""))]
    paragraphs += ["\n".join(items)] if items else []
    paragraphs += [facts(hook, spec), f"```python\n{documented['Example']}\n```"]
    return "\n\n".join(paragraphs)


def versions() -> list[str]:
    """What each version of the contract brought, the newest first."""
    found: dict[int, list[str]] = {}
    for name, version in since().items():
        found.setdefault(version, []).append(f"{name.partition(' ')[0]} `{name.partition(' ')[2]}`")
    newer = [_item(f"Version {n}: {', '.join(found.get(n, ()))}.") for n in range(CONTRACT_VERSION, 1, -1)]
    return [*newer, "- Version 1: all others."]


def since() -> dict[str, int]:
    """`{"hook ops": version}` of all hooks, ops and capabilities."""
    hooks = {f"hook {name}": since_version(spec) for name, spec in specifications().items()}
    ops = {f"op {name}": since_version(op) for name, op in vars(Ops).items() if not name.startswith("_")}
    return {**hooks, **ops, **{f"capability {each.name}": each.since for each in Capability}}


def facts(hook: str, spec: Specification) -> str:
    """Who answers, and what may be done with the answer."""
    one = has_one_answer(spec)
    default = any(hook in implementations(plugin) for plugin in CORE)
    traced = re.search(r"\btraced\b", inspect.getdoc(spec) or "", flags=re.I) is not None
    wrappable = not one or hook in hook_methods(Learner).values()
    words = [
        f"Core default: {_yes(default)}.",
        f"Traced: {_yes(traced)}.",
        f"Can be wrapped: {_yes(wrappable)}.",
    ]
    if since_version(spec) > 1:
        words.append(f"Since contract version {since_version(spec)}.")
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


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

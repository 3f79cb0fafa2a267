"""docs/certificates.md: which backend passes which scenario of the author suite, made of the certificates.

`python tests/certificates_page.py` writes the page; `tests/core/test_certificates.py` compares the two.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/certificates.md"
SUITE = ROOT / "core/plugrad/testing/backend_suite"
BACKENDS = ("torch", "tf2", "jax", "numpy", "toy")
PARTS = {
    "modules": "Modules and their states",
    "updates": "Updates and optimizers",
    "programs": "Compiled programs",
    "ops": "Ops",
}
"""Files of the suite in the order of the page, with their headings."""
HEAD = """# Who passes what

`plugrad certify NAME` runs one suite on any backend, plugrad's own or a stranger's, and writes a certificate. This page
is made of the certificates of the release. `numpy` is the reference, and `toy` is the backend that
[write a backend](write-a-backend.md) builds in a distribution of its own.

A backend declares what it can do. A scenario of a capability that it does not declare is not run.

## Capabilities

"""
COUNTS = """
## Scenarios

A number says how many cases of a scenario pass. A dash says that the backend does not declare what the scenario needs.
Nothing fails: a backend with a failure has no certificate.
"""
Certificates = Mapping[str, Mapping[str, Any]]


def page_text(certificates: Certificates) -> str:
    """The page's Markdown, of `{backend: certificate}`."""
    capabilities = sorted({name for each in certificates.values() for name in each["capabilities"]})
    rows = [
        [f"`{name}`", *(_verdict(each["capabilities"][name]) for each in certificates.values())]
        for name in capabilities
    ]
    rows.append(["version", *(_version(name, each) for name, each in certificates.items())])
    rows.append(["cases that pass", *(_passed(each["tests"].values()) for each in certificates.values())])
    parts = [HEAD + _table(["", *certificates], rows), COUNTS]
    for part, heading in PARTS.items():
        scenarios = list(_scenarios(part))
        rows = [
            [_words(name), *(_cases(each["tests"], name) for each in certificates.values())]
            for name in scenarios
        ]
        parts.append(f"\n### {heading}\n\n{_table(['scenario', *certificates], rows)}")
    return "".join(parts)


def _scenarios(part: str) -> Iterator[str]:
    """The names of the tests in a file of the suite, in its order."""
    for node in ast.parse((SUITE / f"{part}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def _cases(tests: Mapping[str, str], name: str) -> str:
    found = [outcome for each, outcome in tests.items() if each.partition("[")[0] == name]
    passed, left_out = found.count("passed"), sum(each.startswith("skipped: not proven") for each in found)
    if passed + left_out != len(found) or not found:
        raise ValueError(f"{name}: {found}")
    return f"{passed}" if passed else "–"


def _passed(outcomes: Any) -> str:
    found = list(outcomes)
    return f"{found.count('passed')} of {len(found)}"


def _verdict(verdict: str) -> str:
    return "–" if verdict == "not declared" else verdict


def _version(name: str, certificate: Mapping[str, Any]) -> str:
    found = str(certificate["versions"].get(name, ""))
    return found if name != "toy" else f"numpy {found}"


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ").replace(" users ", " user's ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def read_certificates() -> Certificates:
    """The certificates of the release, in the order of the page."""
    folder = ROOT / "tests/data/certify"
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in BACKENDS}


if __name__ == "__main__":
    PAGE.write_text(page_text(read_certificates()))

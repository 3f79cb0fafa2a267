"""Runs RLlib's own examples after `plugrad migrate`, without RLlib, and writes down which of them run.

    python tests/rllib_examples.py NAME=EXAMPLES [NAME=EXAMPLES ...] FOLDER [PART_OF_A_NAME ...] > LIST.json

EXAMPLES is a folder such as SITE-PACKAGES/ray/rllib/examples, and NAME says in the list what it is of; an example that
is in several of them is that of the first. RLlib 2.60's wheel has about half of its repository's examples, 2.52's most
of the others; those of `algorithms/*/` are in the repository alone.

The examples are copied to FOLDER as a package `rllib_examples`, in which they import each other, and migrated there.
Its folders import what is asked of them alone, so that an example needs what it uses and no more.
Each one that is a program is run for two iterations in a process where `ray.rllib` cannot be imported, without env
runners and learners of their own where it takes the options, and without a least return of a first part of it, such as
`--stop-reward-pretraining`; trials of Ray Tune, too, which need the extra `tune`. Those of the old
API stack are left out. Offline examples read what lies in FOLDER/tests/data, such as `cartpole/cartpole-v1_large`: no
wheel has RLlib's, so record it (`config.offline_data(output=...)`).
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from plugrad_rllib.migrate.rewrite import migrate

SECONDS = 150
"""The longest time that an example may take."""
RUN = """
import runpy, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "ray.rllib" or name.startswith("ray.rllib."):
            raise ImportError(f"{name} is blocked")

def two_iterations():
    # of each trial of Ray Tune, and one trial for each setting
    from ray import tune

    begin = tune.Tuner.__init__

    def begin_two(self, *args, **given):
        for name, setting, value in [
            ("run_config", "stop", {"training_iteration": 2}),
            ("tune_config", "num_samples", 1),
        ]:
            if name in given:
                setattr(given[name], setting, value)
        begin(self, *args, **given)

    tune.Tuner.__init__ = begin_two

sys.meta_path.insert(0, Blocked())
sys.argv[:] = sys.argv[1:]
if sys.argv.pop() == "tune":
    two_iterations()
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def migrated(sources: dict[str, Path], folder: Path) -> dict[str, dict[str, Any]]:
    """Write the examples, migrated, as a package below a folder.

    Args:
        sources: `{what the examples are of: their folder}`.
        folder: where the package is written.

    Returns:
        `{program: {"of", "names", "notes", "imported"}}`: what it imports of RLlib, the notes of migrate on it, and
        those on the other examples that it imports.
    """
    programs, named = {}, {}
    found = {
        str(path.relative_to(examples)): (source, path)
        for source, examples in reversed(sources.items())
        for path in examples.rglob("*.py")
    }
    for name, (of, path) in sorted(found.items()):
        if name.startswith("_old_api_stack"):
            continue
        source = path.read_text()
        text, notes = migrate(lazy(source) if path.name == "__init__.py" else source)
        target = folder / "rllib_examples" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(re.sub(r"\bray\.rllib\.examples\b", "rllib_examples", text))
        named[name] = [f"{note.line}: {note.text}" for note in notes]
        if "__main__" in source:
            programs[name] = {"of": of, "names": names_of_rllib(source), "notes": named[name]}
    for name, facts in programs.items():
        others = sorted(imported_by(folder, name) - {name})
        facts["imported"] = {each: named[each] for each in others if named.get(each)}
    return programs


def imported_by(folder: Path, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The files of the migrated examples that one of them imports, and those that they import."""
    found = {name}
    path = folder / "rllib_examples" / name
    for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rllib_examples.")):
            continue
        for each in node.names:
            other = _file_of(folder, node.module or "", each.name)
            if other is not None and other not in seen | found:
                found |= imported_by(folder, other, seen | found)
    return found


def _file_of(folder: Path, module: str, name: str) -> str | None:
    """The file that has a name of a module; a package says in NAMES where its own come from (see `lazy`)."""
    place = folder / module.replace(".", "/")
    if place.is_dir():
        assigned = [
            ast.literal_eval(node.value)
            for node in ast.parse((place / "__init__.py").read_text()).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAMES"
        ]
        if not assigned or name not in assigned[0]:
            return None
        return _file_of(folder, *assigned[0][name])
    return str(place.with_suffix(".py").relative_to(folder / "rllib_examples"))


def names_of_rllib(source: str) -> list[str]:
    """What a program imports of RLlib, but for other examples."""
    imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return sorted(
        f"{node.module}:{each.name}"
        for node in imports
        if re.match(r"ray\.rllib\.(?!examples\b)", node.module or "")
        for each in node.names
    )


def lazy(source: str) -> str:
    """A package that imports of other examples what it is asked for, and what it reads itself and can be imported."""
    tree = ast.parse(source)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names, kept = {}, []
    for node in tree.body:
        imported = (
            [each.asname or each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
        )
        if imported and node.module.startswith("ray.rllib.examples") and not read & set(imported):
            names |= {each.asname or each.name: (node.module, each.name) for each in node.names}
        elif imported:
            kept += ["try:", f"    {ast.unparse(node)}", "except ImportError:", "    pass"]
        else:
            kept.append(ast.unparse(node))
    return (
        "\n".join(kept) + "\n\n\n"
        f"NAMES = {names!r}\n\n\n"
        "def __getattr__(name):\n"
        "    from importlib import import_module\n\n"
        "    if name not in NAMES:\n"
        "        raise AttributeError(name)\n"
        "    module, attribute = NAMES[name]\n"
        "    return getattr(import_module(module), attribute)\n"
    )


def outcome(folder: Path, name: str) -> str:
    """What becomes of a program that is asked for two iterations: "runs", or the last line of its error."""
    module = "rllib_examples." + name.removesuffix(".py").replace("/", ".")
    options = ["--stop-iters", "2"]
    text = (folder / f"{module.replace('.', '/')}.py").read_text()
    for option in ("--num-env-runners", "--num-learners"):
        options += [option, "0"] if f'"{option}"' in text else []
    options += [f"{option}=0" for option in re.findall(r'"(--stop-reward-[a-z-]+)"', text)]
    try:
        done = _run(folder, module, options)
        asked = re.search(r"(?:Must set|command line argument) `?(--[\w-]+)(=\w+|)", done.stderr)
        if asked:
            done = _run(folder, module, [*options, asked[1] + (asked[2] or "=2")])
        elif "unrecognized arguments: --stop-iters" in done.stderr:
            done = _run(folder, module, [])
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS} s"
    if done.returncode == 0:
        return "runs"
    blocked = re.search(
        r'  File "([^"]+)", line (\d+), in .*\n +.*\bray\.rllib.*\n(?: +[~^]+\n)?  File "<string>".*find_spec',
        done.stderr,
    )
    if blocked:
        return f"needs RLlib: {names_imported(Path(blocked[1]), int(blocked[2]))}"
    lines = [each for each in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception|Exit)\b", each)]
    last = (lines or done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
    return re.sub(r" \(/[^)]*\)", "", last)  # where a package lies on this machine


def names_imported(path: Path, line: int) -> str:
    """What the import on a line of a program names."""
    imports = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return ", ".join(each.name for node in imports if node.lineno == line for each in node.names)


def _run(folder: Path, module: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    path = folder / f"{module.replace('.', '/')}.py"
    kind = "tune" if "tune.Tuner(" in path.read_text() else "plain"
    command = [sys.executable, "-c", RUN, module, *options, kind]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    given = dict(each.split("=") for each in arguments if "=" in each)
    folder, *parts = (each for each in arguments if "=" not in each)
    found = {}
    for name, facts in migrated({of: Path(each) for of, each in given.items()}, Path(folder)).items():
        if not parts or any(part in name for part in parts):
            found[name] = {"outcome": outcome(Path(folder), name), **facts}
            print(f"{name}: {found[name]['outcome']}", file=sys.stderr, flush=True)
    print(f"{sum(each['outcome'] == 'runs' for each in found.values())} of {len(found)} run", file=sys.stderr)
    sys.stdout.write(json.dumps(found, indent=1, sort_keys=True) + "\n")

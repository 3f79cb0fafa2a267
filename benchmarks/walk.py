"""How far a batch walks: plugrad's own frames on the way of an update, a build, a save and a load, by revision.

    python benchmarks/walk.py HEAD~20 .
    python benchmarks/walk.py --stack .        # the deepest stack of an update, and the calls of each function

A revision is what git knows by a name; `.` is the working tree. Nothing is timed.

- *The learner*: PPO on torch, `compile="none"`, one module with one hidden layer, one minibatch per update. The update
  is the second one; build, save and load are the second of the process: what is cached once does not count.
- *Frames* are those of plugrad, its backends and its plugins: functions, generators, comprehensions, and code that is
  generated for them. Bodies of modules do not count. `PLUGRAD_DEBUG=1` is set.
- *An unwrapped hook*: the frames from `learner.hook(...)` to the provider's own, that one included, over the hooks that
  an update calls: the most, and the mean.
- *A user's error*: a loss, `configure_optimizers_for_module`, a listener or a wrapper raises; the frames of plugrad
  above that line in the traceback, without and with `PLUGRAD_DEBUG`.
- *Too long*: functions above 60 lines without the docstring, or above McCabe 12 (ruff).
"""

import argparse
import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from house import checked_out
from report import table

ROOTS = ("core", "backends", "plugins")
MOST_LINES = 60
MOST_BRANCHES = 12


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", default=["."])
    parser.add_argument(
        "--stack", action="store_true", help="the deepest stack, and the calls of each function"
    )
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)  # what this script calls itself with
    given = parser.parse_args()
    if given.trace:
        print(json.dumps(walks(given.trace)))
        return
    found, long = {}, {}
    with ExitStack() as stack:
        for name in given.revisions:
            folder = stack.enter_context(checked_out(name))
            found[name] = measured(folder)
            long[name] = too_long(folder)
    print(as_table(found, long))
    if given.stack:
        for name, each in found.items():
            print(f"\n{name}: the deepest stack\n")
            print("\n".join(f"{n + 1:3} {line}" for n, line in enumerate(each["stack"])))
            print(f"\n{name}: files of an update\n")
            print("\n".join(f"  {file}" for file in each["files"]))
            print(f"\n{name}: calls\n")
            print("\n".join(f"{number:4} {function}" for function, number in each["called"]))
    for name, functions in long.items():
        print(f"\n{name}: too long or too branched: {len(functions)}")
        print("\n".join(f"  {each}" for each in functions))


def measured(folder: Path) -> dict[str, Any]:
    """Call `walks` in processes that import plugrad from a folder: once with PLUGRAD_DEBUG and once without."""
    found: list[dict[str, Any]] = []
    for debug in ("1", "0"):
        roots = [str(folder / root) for root in ROOTS]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(roots),
            "PYTHONWARNINGS": "ignore",
            "PLUGRAD_DEBUG": debug,
        }
        command = [sys.executable, __file__, "--trace", str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    with_debug, without = found
    return {**with_debug, "filtered": without["errors"]}


class Walk:
    """Counts the calls of functions of some folder while it is set as profile function.

    Args:
        folder: the revision's.
    """

    def __init__(self, folder: Path) -> None:
        self._roots = tuple(f"{(folder / root).resolve()}/" for root in ROOTS)
        self.calls: Counter[CodeType] = Counter()
        self.files: set[str] = set()
        self.stack: list[str] = []
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call: what `sys.setprofile` calls."""
        if event != "call" or not self.counts(frame) or _goes_on(frame):
            return
        self.calls[frame.f_code] += 1
        self.files.add(frame.f_globals["__name__"])
        stack = [each for each in stack_of(frame) if self.counts(each)]
        if len(stack) > self.depth:
            self.depth, self.stack = len(stack), [self.name(each.f_code) for each in reversed(stack)]

    def counts(self, frame: FrameType) -> bool:
        """Whether a frame is plugrad's: of its files, or generated for one of its modules."""
        code = frame.f_code
        if code.co_name == "<module>":
            return False
        if code.co_filename.startswith(self._roots):
            return True
        module = str(frame.f_globals.get("__name__", ""))
        return code.co_filename.startswith("<") and module.split(".")[0].startswith("plugrad")

    def name(self, code: CodeType) -> str:
        """`file:line function`."""
        file = code.co_filename
        for root in self._roots:
            file = file.removeprefix(str(Path(root).parent) + "/")
        return f"{file}:{code.co_firstlineno} {code.co_qualname}"


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator goes on after a yield: RESUME, with another number than at the beginning."""
    code = frame.f_code
    return bool(code.co_flags & inspect.CO_GENERATOR and code.co_code[frame.f_lasti + 1] & 3)


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def walked(folder: Path, call: Callable[[], Any]) -> Walk:
    """Walk with a call."""
    walk = Walk(folder)
    sys.setprofile(walk)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk


def walks(folder: Path) -> dict[str, Any]:
    """All figures of one revision; plugrad is the one of the folder."""
    import plugrad
    from plugrad.testing.tiny_learners import OBSERVATIONS, TWO_ACTIONS, tiny_batch
    from plugrad_ppo import PPOConfig

    assert Path(plugrad.__file__).is_relative_to(folder.resolve()), plugrad.__file__
    config = PPOConfig().framework("torch", compile="none").debugging(seed=1)
    config = config.environment(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]}).training(minibatch_size=8, num_epochs=1)
    batch = tiny_batch(8)
    learner = config.build_learner()
    build = walked(folder, config.build_learner)
    learner.update(batch)
    update = walked(folder, lambda: learner.update(batch))
    with tempfile.TemporaryDirectory() as saves:
        learner.save_to_path(saves)
        save = walked(folder, lambda: learner.save_to_path(saves))
        learner.restore_from_path(saves)
        load = walked(folder, lambda: learner.restore_from_path(saves))
    shapes = {"update": update, "config to learner": build, "save": save, "load": load}
    return {
        "walks": {
            what: {
                "depth": walk.depth,
                "files": len(walk.files),
                "calls": walk.calls.total(),
                "functions": len(walk.calls),
            }
            for what, walk in shapes.items()
        },
        "hooks": hook_frames(folder, learner, batch),
        "errors": frames_above(folder, config, batch),
        "stack": update.stack,
        "files": sorted(update.files),
        "called": [(update.name(code), number) for code, number in update.calls.most_common(60)],
    }


def hook_frames(folder: Path, learner: Any, batch: Any) -> dict[str, float]:
    """The frames from the call of an unwrapped hook to its provider, over the hooks that an update calls."""
    providers = {}
    for name, (_, function, *_) in learner._hooks._providers.items():
        # What `contextmanager` and other decorators return has one code for all functions.
        code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
        if code is not None:
            providers[code] = name
    # A provider with the method's defaults or `**kwargs` is a function of its own with the same code.
    for name, method in vars(learner).items():
        code = getattr(getattr(method, "__func__", None), "__code__", None)
        if code is not None and name.lstrip("_") in learner._hooks._providers and code.co_name != "call":
            providers.setdefault(code, name.lstrip("_"))
    seen: dict[str, int] = {}
    methods = {name.lstrip("_"): name for name in dir(type(learner))}

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code not in providers:
            return
        name = providers[frame.f_code]
        between, above = 1, frame.f_back
        outermost = 1
        while above is not None and between < 8:
            between += 1
            is_way = above.f_code.co_name in (
                methods.get(name, name),
                "_provide",
                "provide",
                "call",
                "<listcomp>",
            )
            if not is_way:
                break
            outermost = between
            above = above.f_back
        seen[name] = max(seen.get(name, 0), outermost)

    sys.setprofile(look)
    try:
        learner.update(batch)
    finally:
        sys.setprofile(None)
    return {"hooks": len(seen), "most": max(seen.values()), "mean": sum(seen.values()) / len(seen)}


def frames_above(folder: Path, config: Any, batch: Any) -> dict[str, int]:
    """The frames of plugrad above a user's line that raises, as the traceback shows them."""
    from plugrad import hookimpl
    from plugrad_ppo import PPOLearner

    def fail() -> None:
        raise ZeroDivisionError("the user's own")

    class Loss(PPOLearner):
        def compute_loss_for_module(self, **given: Any) -> Any:
            fail()

    class Listener:
        @hookimpl
        def update_ended(self, results: Any) -> None:
            fail()

    class Wrapper:
        @hookimpl(wrapper=True)
        def compute_losses(self, batch: Any) -> Any:
            fail()
            return (yield)

    class Optimizers(PPOLearner):
        def configure_optimizers_for_module(self, module_id: Any, config: Any = None) -> None:
            fail()

    subjects: dict[str, Callable[[], Any]] = {
        "loss": lambda: _built(Loss, config).update(batch),
        "optimizers": lambda: _built(Optimizers, config),
        "listener": lambda: _built(PPOLearner, config, Listener()).update(batch),
        "wrapper": lambda: _built(PPOLearner, config, Wrapper()).update(batch),
    }
    walk = Walk(folder)
    return {what: _above(walk, call) for what, call in subjects.items()}


def _built(cls: type[Any], config: Any, *plugins: Any) -> Any:
    learner = cls(config=config, plugins=plugins)
    learner.build()
    return learner


def _above(walk: Walk, call: Callable[[], Any]) -> int:
    try:
        call()
    except ZeroDivisionError as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        last = max(n for n, frame in enumerate(frames) if frame.f_code.co_name == "fail")
        return sum(walk.counts(frame) for frame in frames[:last])
    raise AssertionError("the user's line did not raise")


# --- functions --------------------------------------------------------------------------------------------------------


def too_long(folder: Path) -> list[str]:
    """`file:line function: lines` of functions above `MOST_LINES`, and what ruff says is too branched."""
    found = []
    for path in sorted(each for root in ROOTS for each in (folder / root).rglob("*.py")):
        if "templates" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > MOST_LINES:
                    found.append(f"{path.relative_to(folder)}:{node.lineno} {node.name}: {lines} lines")
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "C901",
        "--output-format",
        "concise",
    ]
    settings = ["--config", f"lint.mccabe.max-complexity = {MOST_BRANCHES}"]
    done = subprocess.run([*command, *settings, *ROOTS], cwd=folder, capture_output=True, text=True)
    return [*found, *(line for line in done.stdout.splitlines() if re.search(r" C901 ", line))]


# --- output -----------------------------------------------------------------------------------------------------------


def as_table(found: Mapping[str, Mapping[str, Any]], long: Mapping[str, list[str]]) -> str:
    """Make a Markdown table with a column for each revision."""
    first = next(iter(found.values()))
    rows: list[tuple[str, ...]] = [
        (f"{what}: {which}", *(str(each["walks"][what][which]) for each in found.values()))
        for what, walk in first["walks"].items()
        for which in walk
    ]
    for which in first["hooks"]:
        rows.append(
            (f"unwrapped hooks: {which}", *(f"{each['hooks'][which]:.3g}" for each in found.values()))
        )
    for title, key in (("", "filtered"), (", PLUGRAD_DEBUG=1", "errors")):
        for what in first["errors"]:
            rows.append(
                (f"above an error in a {what}{title}", *(str(each[key][what]) for each in found.values()))
            )
    rows.append(("functions too long or branched", *(str(len(long[name])) for name in found)))
    return table(("", *found), rows)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()

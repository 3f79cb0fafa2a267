"""What is wrong with a backend, `backend_suite` says: a copy of the torch backend with one fault does not pass."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import needs
import pytest

from plugrad.hooks.manager import implementations, specifications
from plugrad.hooks.registry import load_backend
from plugrad.testing.backend_suite.ops import DECLARED, OPS, REQUIRED

pytestmark = needs.backends("torch")

CONFTEST = """
import pytest
from plugrad_torch.testing import native_optimizer, user_model
pytest_plugins = ["plugrad.testing.fixtures"]
@pytest.fixture(scope="session")
def backend():
    return "torch"
"""


class Prover:
    """The process of prover.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("prover.py"))],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def prove(self, folder: Path, *options: str) -> tuple[int, str]:
        """The exit status of pytest there, and what it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"folder": str(folder), "options": options}), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["said"]

    def end(self) -> None:
        """End of input ends it."""
        self._process.communicate()


class Copy:
    """A copy of the torch backend that Python finds before the real one."""

    def __init__(self, folder: Path, prover: Prover) -> None:
        self.folder, self._prover = folder, prover
        (real,) = find_spec("plugrad_torch").submodule_search_locations
        shutil.copytree(real, folder / "plugrad_torch", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tests").mkdir()
        (folder / "tests/conftest.py").write_text(CONFTEST)
        (folder / "tests/test_backend.py").write_text("from plugrad.testing.backend_suite import *\n")

    def change(self, pattern: str, new: str, files: str = "*.py") -> None:
        """Replace a pattern in the files that have it."""
        changes = 0
        for path in (self.folder / "plugrad_torch").glob(files):
            text, found = re.subn(pattern, lambda _: new, path.read_text(), flags=re.DOTALL)
            path.write_text(text)
            changes += found
        assert changes, f"{pattern!r} is not in {files} any more"

    def without(self, file: str, function: str) -> None:
        """Delete a function with its decorators."""
        self.change(rf"\n(@\w+\n)?def {function}\(.*?\n(?=\n\n|\Z)", "\n", file)

    def unanswered(self, hook: str) -> None:
        """Leave the function of a hook, and its mark out."""
        self.change(rf"@hookimpl\n(?=(@\w+\n)?def {hook}\()", "")

    def add(self, file: str, code: str) -> None:
        path = self.folder / "plugrad_torch" / file
        path.write_text(path.read_text() + code)

    def prove(self, *options: str) -> str:
        """What the suite prints; it must fail."""
        status, said = self._prover.prove(self.folder, *options)
        assert status == 1, said
        return said


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    prover = Prover()
    yield prover
    prover.end()


@pytest.fixture
def copy(tmp_path: Path, prover: Prover) -> Copy:
    return Copy(tmp_path, prover)


def test_every_op_that_is_missing_is_named(copy: Copy) -> None:
    for op in OPS:
        copy.without("ops.py", op)
    said = copy.prove("-k", "has_every_op")
    for op in OPS:
        assert f"backend 'torch' has no op '{op}': its arguments are" in said


def own_hooks() -> set[str]:
    """What the backend itself must answer, or has said that it does."""
    return {*REQUIRED, *DECLARED.values()}


def test_every_hook_that_is_missing_is_named(copy: Copy) -> None:
    for hook in own_hooks() - {"backend_info"}:
        copy.unanswered(hook)
    said = copy.prove("-k", "answers")
    for hook in own_hooks() - {"backend_info"}:
        assert re.search(rf"backend 'torch' .*does not answer the hook '{hook}'", said)


def test_other_hooks_of_the_backend_have_a_default_that_a_learner_alone_can_do_with() -> None:
    answered = set(implementations(load_backend("torch"))) & set(specifications())
    assert answered - own_hooks() <= {
        "export_onnx",
        "get_buffers",
        "hvp",
        "jvp",
        "reduce_gradients",
        "seeded_generators",
        "snapshot_variables",
        "watch_operations",
    }


@pytest.mark.parametrize("hook", sorted(own_hooks()))
def test_the_suite_fails_without_a_hook(copy: Copy, hook: str) -> None:
    copy.unanswered(hook)
    assert hook in copy.prove("-x")


@pytest.mark.cross_product  # one that is missing is named among all of them above
@pytest.mark.parametrize("op", OPS)
def test_the_suite_fails_without_an_op(copy: Copy, op: str) -> None:
    copy.without("ops.py", op)
    assert f"has no op '{op}'" in copy.prove("-x", "-k", "has_every_op")


CLIP = """

@hookimpl
def get_clip_function(learner):
    from plugrad.gradients import clip_gradients

    def clip(gradients, *, grad_clip, grad_clip_by):
        clipped, norm = clip_gradients(learner.ops, gradients, grad_clip=grad_clip, grad_clip_by=grad_clip_by)
        if grad_clip is not None and grad_clip_by == {by!r}:
            clipped = {{ref: {formula} for ref, g in gradients.items()}}
        return clipped, norm

    return clip
"""
ADAM = """m, v, count = slots["m"], slots["v"], slots["count"]
    m.lerp_(gradient, 1.0 - adam.beta1)
    v.lerp_(gradient * gradient, 1.0 - adam.beta2)
    c1, c2 = ((1.0 - beta ** count.double()).float() for beta in (adam.beta1, adam.beta2))
    adam.parameters.read().sub_(adam.lr.read() {formula})
"""


@dataclass(frozen=True)
class Mutant:
    """A fault of a backend.

    Args:
        mutate: makes it in a copy.
        words: what the suite says of it, a pattern.
        tests: which tests of the suite find it, as `pytest -k` names them: the whole suite takes far longer.
    """

    mutate: Callable[[Copy], None]
    words: str
    tests: str = "those_of_the_formula"


def clip(by: str, formula: str) -> Callable[[Copy], None]:
    return lambda copy: copy.add("backend.py", CLIP.format(by=by, formula=formula))


def adam(formula: str) -> Callable[[Copy], None]:
    return lambda copy: copy.change(r"(?<=-> None:\n    )_fused_adam_\(.*", ADAM.format(formula=formula))


def change(old: str, new: str) -> Callable[[Copy], None]:
    return lambda copy: copy.change(re.escape(old), new)


MUTANTS = {
    "clip norm without epsilon": Mutant(
        clip("global_norm", "g * torch.clamp(grad_clip / norm, max=1.0)"), r"norm \+ 1e-6"
    ),
    "value clip one-sided": Mutant(clip("value", "g.clamp(max=grad_clip)"), "the bounds -c and c"),
    "epsilon inside the root": Mutant(
        adam("/ c1 * m / (v / c2 + adam.eps).sqrt()"), "of adam.* is not the formula's"
    ),
    "no bias correction": Mutant(adam("* m / (v.sqrt() + adam.eps)"), "of adam.* is not the formula's"),
    "lr of the first group only": Mutant(
        change("for group in optimizer.param_groups:", "for group in optimizer.param_groups[:1]:"),
        "the learning rate must be that of every parameter group",
        "native_optimizer",
    ),
    "stop_gradient as identity": Mutant(
        change("return x.detach()", "return x"), "stop_gradient", "stopped_gradient"
    ),
    "huber without delta": Mutant(
        change("delta=delta", "delta=1.0"), "op 'huber with delta", "finite_differences and huber"
    ),
    "weights (out, in)": Mutant(
        change("to_numpy(tensor)", "to_numpy(tensor).T.copy()"),
        r"weights are \(in, out\)",
        "weights_of_the_reference",
    ),
    "buffers forgotten": Mutant(
        change("if not each.requires_grad", "if False"),
        "neither trained nor a buffer",
        "buffers_are_in_the_state",
    ),
    "acting in training mode": Mutant(
        change("self.train(training)", "self.train(True)"), "calls differ", "acts_alike_twice"
    ),
    "trained in inference mode": Mutant(
        change("self.train(training)", "self.train(False)"), "moves no buffer", "only_updates_move"
    ),
    "sums over minibatches": Mutant(
        change("sums / num_steps", "sums"),
        "must be the mean over its minibatches",
        "updates_are and none",
    ),
    "last optimizer only": Mutant(
        change(
            "in learner.registered_optimizers.values():",
            "in list(learner.registered_optimizers.values())[-1:]:",
        ),
        r"apply_gradients: optimizers \('pi', 'vf'\) have gradients",
        "no_other",
    ),
    "an op without an argument's name": Mutant(
        change(
            "def huber(x: Tensor, delta: float = 1.0) -> Tensor:",
            "def huber(x: Tensor, d: float = 1.0) -> Tensor:",
        ),
        r"does not take huber\(x, delta=\.\.\.\)",
        "has_every_op and huber",
    ),
    "float64 as float32": Mutant(
        change(
            "wanted = getattr(torch, dtype)", 'wanted = getattr(torch, dtype.replace("float64", "float32"))'
        ),
        "gives float32, not float64",
        "values_are and cast",
    ),
    "a sloppy op": Mutant(
        change("return torch.exp(x)", "return torch.exp(x) * (1.0 + 2e-6)"),
        "op 'exp' is not that of numpy",
        "values_are and exp and float32",
    ),
    "losses that were changed forgotten": Mutant(
        change("losses = [loss for loss in", "losses = [loss / loss.detach() for loss in"),
        "Not equal to tolerance.*default_policy/pi",
        "override_changed",
    ),
    "gradients never added up": Mutant(
        change("if learner.collective is None:", "if True:"),
        "gradients are exchanged once in each step",
        "two_learners and none",
    ),
    "gradients of one learner only": Mutant(
        change(
            "return torch.from_numpy(collective.all_reduce(flat.cpu().numpy())).to(flat.device)",
            "collective.all_reduce(flat.cpu().numpy()); return flat",
        ),
        "two learners differ",
        "two_learners and none",
    ),
    "metrics of float64": Mutant(
        change("sums / num_steps", "(sums / num_steps).double()"), "metric '.*' is", "float32_scalars"
    ),
    "eager under another name": Mutant(
        change(
            'super().__init__("none", versions.with_what_slows("eager torch',
            'super().__init__("complete_update", versions.with_what_slows("eager torch',
        ),
        "Python ran in the second update of a shape",
        "mode_says and auto",
    ),
    "a complete update that is eager": Mutant(
        change("return CompiledUpdate(learner, step, variables)", "return EagerUpdate(learner, step)"),
        "is declared, and compile='complete_update' runs as 'none",
        "mode_says and complete",
    ),
    "xla by word alone": Mutant(
        change("Capability.USER_MODULES,", "Capability.USER_MODULES, Capability.XLA,"),
        "'xla' is declared, and compile='auto' runs as 'none",
        "by_xla",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_fails_and_says_why(copy: Copy, name: str) -> None:
    """Among other failures: the first of them may be a consequence."""
    mutant = MUTANTS[name]
    mutant.mutate(copy)
    assert re.search(mutant.words, copy.prove("-k", mutant.tests), re.DOTALL)


def test_an_unchanged_formula_written_out_passes(copy: Copy) -> None:
    """What is found is the fault, and not that the copy is another code."""
    adam("/ c1 * m / ((v / c2).sqrt() + adam.eps)")(copy)
    clip("global_norm", "g * torch.clamp(grad_clip / (norm + 1e-6), max=1.0)")(copy)
    with pytest.raises(AssertionError, match="passed"):
        copy.prove("-k", "formula or no_other or round_trips")

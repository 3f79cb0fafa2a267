"""A framework without one of the private names that a backend asks for: updates are right, and `update_mode` says why.

Each name is taken away in a process of its own, before plugrad is imported.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad_bc import BCConfig

PROGRAM = """
import json, sys, types
from importlib import import_module

class Hidden:
    # From who asks the class for it. A framework's own methods ask an instance.
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        if instance is None:
            raise AttributeError("hidden")
        return types.MethodType(self.function, instance)

module, name, backend, mode, num_updates = json.loads(sys.argv[1])
*owners, last = name.split(".")
owner = import_module(module)
if owners:
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, last, Hidden(getattr(owner, last)))
else:  # the framework's own modules that have imported it keep it
    sys.modules[module] = types.ModuleType(module)
    vars(sys.modules[module]).update({key: each for key, each in vars(owner).items() if key != last})

import gymnasium as gym
import numpy as np
from plugrad_bc import BCConfig

spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
config = BCConfig().framework(backend, compile=mode).training(minibatch_size=4, num_epochs=5, lr=0.01)
learner = config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0).build_learner(spaces=spaces)
batch = {
    "obs": np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3),
    "actions": np.arange(8) % 2,
}
for _ in range(num_updates):
    learner.update(batch)
weights = {name: each.tolist() for name, each in learner.get_weights()["default_policy"].items()}
print(json.dumps({"mode": learner.update_mode, "weights": weights}))
"""

TORCH = {  # for each mode, those without which it does something else
    ("complete_update", 2): ("MAKE_FX", "COMPILE"),
    ("auto", 25): (
        *("DISPATCH_MODE", "TREE_FLATTEN", "TREE_LEAVES", "NO_TORCH_FUNCTION", "WRAPPER"),
        *("TRACE_GRAPH", "FUNCTION_OF_GRAPH", "OPTIMIZED_EXECUTION"),
    ),
    ("none", 2): ("FUSED_ADAM", "FOREACH_COPY"),
}
COMPILING_TORCH = {
    ("complete_update", 2): ("WHILE_LOOP", "FAKE_TENSORS", "DIM_DYNAMIC", "SHAPE_ENV", "SYMBOLIC_CONTEXT")
}
TF2 = {("auto", 2): ("CALL_FLAT", "EXECUTE", "CONTEXT")}
JAX = {("auto", 2): ("CLOSED_JAXPR", "JAXPR", "CONVOLUTION")}


def cases(names: Any) -> list[Any]:
    return [(mode, updates, name) for (mode, updates), each in names.items() for name in each]


def assert_updates_without(backend: str, mode: str, num_updates: int, constant: str) -> None:
    name = getattr(import_module(f"plugrad_{backend}.versions"), constant)
    asked = json.dumps([name.module, name.name, backend, mode, num_updates])
    done = subprocess.run([sys.executable, "-c", PROGRAM, asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert name.reason in found["mode"]
    expected = expected_weights(num_updates)
    assert found["weights"].keys() == expected.keys()
    for each, values in expected.items():
        np.testing.assert_allclose(found["weights"][each], values, rtol=1e-4, atol=1e-5)


def expected_weights(num_updates: int) -> dict[str, Any]:
    """Those of the same updates in numpy."""
    spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
    config = BCConfig().framework("numpy").training(minibatch_size=4, num_epochs=5, lr=0.01)
    learner = (
        config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0).build_learner(spaces=spaces)
    )
    batch = {"obs": np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3), "actions": np.arange(8) % 2}
    for _ in range(num_updates):
        learner.update(batch)
    weights: dict[str, Any] = learner.get_weights()["default_policy"]
    return weights


@pytest.mark.cross_product
@pytest.mark.parametrize(("mode", "num_updates", "constant"), cases(TORCH))
def test_torch_without_a_private_name_updates_rightly_and_says_so(mode, num_updates, constant):
    needs.backend("torch")
    assert_updates_without("torch", mode, num_updates, constant)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "num_updates", "constant"), cases(COMPILING_TORCH))
def test_torch_without_a_private_name_of_its_loop_compiles_the_step_and_says_so(mode, num_updates, constant):
    needs.backend("torch")
    assert_updates_without("torch", mode, num_updates, constant)


@pytest.mark.cross_product
@pytest.mark.parametrize(("mode", "num_updates", "constant"), cases(TF2))
def test_tensorflow_without_a_private_name_updates_rightly_and_says_so(mode, num_updates, constant):
    needs.backend("tf2")
    assert_updates_without("tf2", mode, num_updates, constant)


@pytest.mark.cross_product
@pytest.mark.parametrize(("mode", "num_updates", "constant"), cases(JAX))
def test_jax_without_a_private_name_updates_rightly_and_says_so(mode, num_updates, constant):
    needs.backend("jax")
    assert_updates_without("jax", mode, num_updates, constant)


@pytest.mark.parametrize("backend", ["torch", "tf2", "jax"])
def test_the_installed_framework_has_every_private_name_and_its_files_say_so(backend):
    framework = needs.backend(backend)
    versions = import_module(f"plugrad_{backend}.versions")
    assert versions.NAMES
    assert [each.reason for each in versions.NAMES if each.find() is None] == []
    assert "has no" not in versions.what_is_lost(framework.__version__)


def test_doctor_finds_in_the_files_of_a_framework_what_it_lacks_and_imports_it_not(tmp_path):
    """A TensorFlow of another version, whose files lack one name."""
    needs.backend("tf2")
    eager = tmp_path / "tensorflow" / "python" / "eager"
    (eager / "polymorphic_function").mkdir(parents=True)
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
    (eager / "execute.py").write_text("def execute(): ...")
    (eager / "context.py").write_text("def context(): ...")
    (eager / "polymorphic_function" / "concrete_function.py").write_text("class ConcreteFunction: ...")
    code = "from plugrad.cli import main; main(['doctor'])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    # Where the backend is listed, and among the problems at the end.
    lost = [line for line in done.stdout.splitlines() if "tensorflow.python" in line]
    assert len(lost) == 2
    for line in lost:
        assert (
            "has no tensorflow.python.eager.polymorphic_function.concrete_function.ConcreteFunction._call_flat"
            in line
        )
        assert "read one by one" not in line  # of the names that are there

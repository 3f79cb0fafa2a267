"""What torch's compiler lacks on a machine is named as such, and what its version lacks is done without."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import Learner
from plugrad_bc import BCConfig

SPACES = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
BATCH = {"obs": np.ones((8, 3), np.float32), "actions": np.zeros(8, np.int64)}

UPDATE = """
import json, sys
import gymnasium as gym
import numpy as np
from plugrad_bc import BCConfig

def mode_after_an_update(compile):
    spaces = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}
    config = BCConfig().framework("torch", compile=compile, device="cpu").training(minibatch_size=4, num_epochs=2)
    learner = config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0).build_learner(spaces=spaces)
    before = learner.get_weights()
    learner.update({"obs": np.ones((8, 3), np.float32), "actions": np.zeros(8, np.int64)})
    after = learner.get_weights()
    assert any((after["default_policy"][n] != w).any() for n, w in before["default_policy"].items())
    return learner.update_mode
"""

EACH_MODE = "print(json.dumps([mode_after_an_update(each) for each in sys.argv[1:]]))"

NO_FOLDER_IS_NAMED = """
import os
del os.environ["TORCHINDUCTOR_CACHE_DIR"]
"""

AT_ONCE = """
import plugrad_torch.auto_update as auto
auto.STEPS_BEFORE_COMPILING = auto.STEPS_BEFORE_CHANGING = 0
"""

WITHOUT_AN_OPTION = """
import torch._inductor.config as options
name = "cpp_cache_precompile_headers"
del options._config[name]
object.__setattr__(options, name, False)  # inductor's own code reads it
try:
    options.patch({name: False}).__enter__()
except AttributeError:
    pass
else:
    raise AssertionError("this version still has the option: the test shows nothing")
"""

WITHOUT_THE_LOOP = """
from torch._higher_order_ops.while_loop import WhileLoopOp
def refuse(*arguments):
    raise TypeError("another signature")
WhileLoopOp.__call__ = refuse
"""


def modes(code: str, *arguments: str, **environment: str) -> list[str]:
    """What `update_mode` says after one update in each mode, in a process of its own."""
    own = {name: value for name, value in os.environ.items() if name != "CXX"} | environment
    command = [sys.executable, "-c", UPDATE + code, *arguments]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_machine_without_a_compiler_trains_eagerly_and_says_what_to_install(tmp_path: Path) -> None:
    needs.backend("torch")
    (tmp_path / "bin").mkdir()
    nothing_there = {"PATH": str(tmp_path / "bin"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    found = modes(EACH_MODE, "complete_update", "forward_train", **nothing_there)
    for each in found:
        assert each.startswith("none: eager, because no C++ compiler was found (inductor looked for "), each
        assert each.endswith('): install g++ or set compile="none"')
        assert "loss" not in each


def test_auto_keeps_to_recorded_steps_without_a_compiler_and_says_so(tmp_path: Path) -> None:
    needs.backend("torch")
    (tmp_path / "bin").mkdir()
    nothing_there = {"PATH": str(tmp_path / "bin"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    (found,) = modes(AT_ONCE + EACH_MODE, "auto", **nothing_there)
    assert found.startswith(
        "none: recorded operations of torch, one call per minibatch; not compiled, because no C++ compiler was"
    )


@pytest.mark.long
def test_compiled_updates_are_kept_in_the_users_cache_unless_a_folder_is_named(tmp_path: Path) -> None:
    needs.backend("torch")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    modes(
        NO_FOLDER_IS_NAMED + EACH_MODE,
        "complete_update",
        XDG_CACHE_HOME=str(ours),
        TORCHINDUCTOR_CACHE_DIR="",
    )
    assert list(ours.glob("plugrad/torch/*/*"))
    modes(
        EACH_MODE, "complete_update", XDG_CACHE_HOME=str(ours / "other"), TORCHINDUCTOR_CACHE_DIR=str(theirs)
    )
    assert list(theirs.iterdir())
    assert not (ours / "other").exists()


@pytest.mark.long
def test_an_option_that_this_version_of_torch_lacks_is_left_out(tmp_path: Path) -> None:
    needs.backend("torch")
    found = modes(WITHOUT_AN_OPTION + EACH_MODE, "complete_update")
    assert found == ["complete_update: the whole update one compiled function (inductor)"]


@pytest.mark.long
def test_without_torchs_loop_each_step_is_a_call_and_the_mode_says_why() -> None:
    needs.backend("torch")
    (found,) = modes(WITHOUT_THE_LOOP + EACH_MODE, "complete_update")
    why = "because torch's while_loop does not trace it: TypeError: another signature"
    assert found == f"complete_update: each step one compiled function (inductor), {why}"


def test_a_part_that_torch_compiles_is_not_compiled_with_what_looks_at_the_first_loss() -> None:
    needs.backend("torch")
    import torch

    graphs: list[Any] = []

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pi = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
            self.compiled = torch.compile(self.pi, backend=compiler)

        def forward(self, obs: Any) -> Any:
            return self.compiled(obs)

    observation_space, action_space = SPACES["default_policy"]
    config = BCConfig().environment(observation_space=observation_space, action_space=action_space)
    config = config.framework("torch", compile="none", device="cpu").training(minibatch_size=4)
    learner = Learner(config=config, module=Net())
    learner.build()
    learner.update(BATCH)
    learner.update(BATCH)
    assert len(graphs) == 1


def test_learners_that_begin_in_two_threads_leave_torch_compile_as_it_was() -> None:
    needs.backend("torch")
    import torch

    first_is_inside, second_is_inside, first_is_done = Event(), Event(), Event()

    class First(Learner):
        def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
            first_is_inside.set()
            assert second_is_inside.wait(30)
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

    class Second(Learner):
        def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
            second_is_inside.set()
            assert first_is_done.wait(30)
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

    graphs: list[Any] = []

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compile(torch.sin, backend=compiler)(torch.ones(2))
    assert len(graphs) == 1
    config = BCConfig().framework("torch", compile="none", device="cpu").training(minibatch_size=8)
    first, second = (
        config.learners(learner_class=each).build_learner(spaces=SPACES) for each in (First, Second)
    )
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first.update, BATCH)
        assert first_is_inside.wait(30)
        other = threads.submit(second.update, BATCH)
        one.result()
        first_is_done.set()
        other.result()
    torch.compile(torch.cos, backend=compiler)(torch.ones(2))
    assert len(graphs) == 2


@pytest.mark.parametrize("moment", ["begins", "ends"])
def test_another_learner_waits_while_one_changes_what_torch_compile_does(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.backend("torch")
    import torch

    is_changing, second_is_inside = Event(), Event()
    set_stance = torch.compiler.set_stance

    class SlowStance:
        """Torch's, which gives the other thread time."""

        def __init__(self, stance: str) -> None:
            self.own = set_stance(stance)
            self.wait("begins")

        def wait(self, now: str) -> None:
            if now == moment and not is_changing.is_set():
                is_changing.set()
                second_is_inside.wait(0.3)

        def __enter__(self) -> None:
            self.own.__enter__()

        def __exit__(self, *error: Any) -> None:
            self.wait("ends")
            self.own.__exit__(*error)

    class Second(Learner):
        def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
            second_is_inside.set()
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

    monkeypatch.setattr(torch.compiler, "set_stance", SlowStance)
    config = BCConfig().framework("torch", compile="none", device="cpu").training(minibatch_size=8)
    first, second = (
        config.learners(learner_class=each).build_learner(spaces=SPACES) for each in (Learner, Second)
    )
    torch.compile(torch.sin, backend="eager")(torch.ones(2))  # else there is nothing to change
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first.update, BATCH)
        assert is_changing.wait(30)
        other = threads.submit(second.update, BATCH)
        one.result()
        other.result()
    graphs: list[Any] = []

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compile(torch.cos, backend=compiler)(torch.ones(2))
    assert len(graphs) == 1


def test_modules_are_compiled_however_many_of_their_class_were_before() -> None:
    needs.backend("torch")
    import torch
    from torch._dynamo.utils import counters

    config = BCConfig().framework("torch", compile="forward_train", device="cpu").training(minibatch_size=8)
    without_inductor = torch.compiler.set_stance("default", force_backend="eager")  # it takes 20 s
    with torch._dynamo.config.patch(recompile_limit=1), without_inductor:
        for width in (2, 3):
            learner = config.rl_module(model_config={"fcnet_hiddens": [width]}).build_learner(spaces=SPACES)
            before = counters["frames"]["ok"]
            for _ in range(3):  # the first is watched, the second finds the columns that are read
                learner.update(BATCH)
            assert learner.update_mode.startswith("forward_train")
            assert counters["frames"]["ok"] == before + 1

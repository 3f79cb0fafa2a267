"""How many threads torch's steps run on: one if they are small, as many as torch has if they are not."""

from collections.abc import Iterator
from typing import Any

import actor_critics
import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import Learner, RLModuleSpec
from plugrad_bc import BCConfig

CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
MODES = ("none", "auto", "forward_train", "complete_update")


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """torch with three threads, which nobody chose."""
    torch = needs.backend("torch")
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield torch
    torch.set_num_threads(before)


def learner_of(torch: Any, mode: str, shape: tuple[int, ...], loss: Any = None) -> tuple[Learner, set[int]]:
    found: set[int] = set()

    class Noting(BCConfig().get_default_learner_class()):  # type: ignore[misc]
        def compute_loss_for_module(self, **arguments: Any) -> Any:
            found.add(torch.get_num_threads())
            if loss is not None:
                loss()
            return super().compute_loss_for_module(**arguments)

    spaces = {
        "observation_space": gym.spaces.Box(-1, 1, shape, np.float32),
        "action_space": gym.spaces.Discrete(2),
    }
    config = BCConfig().environment(**spaces).framework("torch", compile=mode, device="cpu").debugging(seed=0)
    model: dict[str, Any] = {"fcnet_hiddens": [8]}
    if len(shape) > 1:
        model["conv_filters"] = [[4, 3, 2]]
    config = config.rl_module(model_config=model).learners(learner_class=Noting)
    return config.build_learner(), found


def batch_of(rows: int, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"obs": np.zeros((rows, *shape), np.float32), "actions": np.zeros(rows, np.int64)}


@pytest.mark.parametrize("mode", MODES)
def test_a_small_step_has_one_thread_and_torch_has_its_own_again(torch: Any, mode: str) -> None:
    learner, found = learner_of(torch, mode, (3,))
    for _ in range(2):
        learner.update(batch_of(8, (3,)), minibatch_size=4)
    assert found == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("rows", "shape"), [(100_000, (3,)), (8, (9, 9, 1))], ids=["many rows", "convolutions"]
)
def test_other_steps_have_as_many_as_torch(torch: Any, rows: int, shape: tuple[int, ...]) -> None:
    learner, found = learner_of(torch, "none", shape)
    learner.update(batch_of(rows, shape), minibatch_size=rows)
    assert found == {3}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_number_that_the_user_chose_stays(torch: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    learner, found = learner_of(torch, "none", (3,))
    learner.update(batch_of(8, (3,)), minibatch_size=4)
    assert found == {3}


def test_after_an_error_torch_has_its_own_again(torch: Any) -> None:
    def fail() -> None:
        raise RuntimeError("in the loss")

    learner, found = learner_of(torch, "none", (3,), fail)
    with pytest.raises(RuntimeError, match="in the loss"):
        learner.update(batch_of(8, (3,)), minibatch_size=4)
    assert found == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("is_lazy", [False, True], ids=["", "lazy"])
@pytest.mark.parametrize(("rows", "expected"), [(8, 1), (500_000, 3)])
def test_a_model_of_a_user_acts_on_few_observations_with_one_thread(
    torch: Any, rows: int, expected: int, is_lazy: bool
) -> None:
    found: set[int] = set()

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, action_space: gym.spaces.Discrete) -> None:
            super().__init__()
            width = int(action_space.n)
            self.policy = torch.nn.LazyLinear(width) if is_lazy else torch.nn.Linear(3, width)
            self.value = torch.nn.Linear(width, 1)

        def forward(self, obs: Any) -> Any:
            found.add(torch.get_num_threads())
            logits = self.policy(obs)
            return logits, self.value(logits)

    spaces = {
        "observation_space": gym.spaces.Box(-1, 1, (3,), np.float32),
        "action_space": gym.spaces.Discrete(8),
    }
    config = BCConfig().environment(**spaces).framework("torch", device="cpu").debugging(seed=0)
    learner = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Net)).build_learner()
    found.clear()
    learner.compute_actions(np.zeros((rows, 3), np.float32))
    assert found == {expected}
    assert torch.get_num_threads() == 3


def test_a_target_network_has_the_threads_of_the_step_around_it(torch: Any) -> None:
    found: set[int] = set()

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.policy, self.value = torch.nn.Linear(3, 8), torch.nn.Linear(3, 1)

        def forward(self, obs: Any) -> Any:
            found.add(torch.get_num_threads())
            return self.policy(obs), self.value(obs)

    class Infers(BCConfig().get_default_learner_class()):  # type: ignore[misc]
        def compute_loss_for_module(self, **arguments: Any) -> Any:
            self.module[arguments["module_id"]].forward_inference(arguments["batch"])
            return super().compute_loss_for_module(**arguments)

    spaces = {
        "observation_space": gym.spaces.Box(-1, 1, (3,), np.float32),
        "action_space": gym.spaces.Discrete(8),
    }
    config = (
        BCConfig().environment(**spaces).framework("torch", compile="none", device="cpu").debugging(seed=0)
    )
    config = config.rl_module(rl_module_spec=RLModuleSpec(module_class=Net)).learners(learner_class=Infers)
    learner = config.build_learner()
    rows = 150_000  # 11 million operations forward, 32 million with the pass backward
    found.clear()
    learner.update(batch_of(rows, (3,)), minibatch_size=rows)
    assert found == {3}


@pytest.mark.parametrize("kind", ["sac", "td3"])
def test_learners_whose_loss_draws_noise_train(torch: Any, kind: str) -> None:
    learner = actor_critics.tiny(kind, "torch", compile="none").build_learner()
    before = learner.get_weights()["default_policy"]
    learner.update(actor_critics.transitions(kind))
    after = learner.get_weights()["default_policy"]
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    assert torch.get_num_threads() == 3

"""`compile="auto"` on torch: eager until compilation pays, then compiled, at an update that settings alone decide."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest

from plugrad import Learner
from plugrad_bc import BCConfig

STEPS_OF_AN_UPDATE = 2
UPDATES = 6


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third and fourth update have a process compile beside them; the fifth is the first compiled one."""
    needs.backend("torch")
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_COMPILING", 2 * STEPS_OF_AN_UPDATE)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_CHANGING", 4 * STEPS_OF_AN_UPDATE)


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_COMPILING", 0)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_CHANGING", 0)


def built(
    mode: str = "auto", cls: type[Learner] = Learner, plugins: tuple[Any, ...] = (), module: Any = None
) -> Learner:
    spaces = {"observation_space": gym.spaces.Box(-1.0, 1.0, (3,)), "action_space": gym.spaces.Discrete(2)}
    config = BCConfig().environment(**spaces).framework("torch", compile=mode).debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]}).training(minibatch_size=4, num_epochs=1)
    learner = cls(config=config, plugins=plugins, module=module)
    learner.build()
    return learner


def train(learner: Learner, updates: range) -> list[str]:
    """The modes of updates, each on data of its own."""
    modes = []
    for n in updates:
        rng = np.random.default_rng(n)
        obs, actions = rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 2, 8)
        learner.update({"obs": obs, "actions": actions})
        modes.append(learner.update_mode)
    return modes


def weights(learner: Learner) -> Any:
    return np.concatenate([np.ravel(each) for each in learner.get_weights()["default_policy"].values()])


def test_stopped_before_between_and_after_the_change_a_run_is_equal_to_the_byte(tmp_path: Path) -> None:
    straight, eager = built(), built("none")
    modes = []
    for n in range(UPDATES):
        straight.save_to_path(tmp_path / str(n))
        modes += train(straight, range(n, n + 1))
    train(eager, range(UPDATES))
    later = "none: eager torch, one step per minibatch; compiled after 8 gradient steps"
    compiled = "complete_update: the whole update one compiled function (inductor), after 8 gradient steps"
    assert modes == [later] * 2 + [f"{later}, being compiled"] * 2 + [compiled] * 2
    np.testing.assert_allclose(weights(straight), weights(eager), rtol=0.0, atol=5e-6)
    for stop in (1, 3, 4, 5):
        resumed = built()
        resumed.restore_from_path(tmp_path / str(stop))
        assert train(resumed, range(stop, UPDATES)) == modes[stop:]
        assert weights(resumed).tobytes() == weights(straight).tobytes()


def test_a_learner_that_is_set_back_is_eager_again() -> None:
    learner = built()
    before = learner.get_state()
    first = train(learner, range(UPDATES)), weights(learner)
    learner.set_state(before)
    second = train(learner, range(UPDATES)), weights(learner)
    assert first[0][0].startswith("none")
    assert first[0][-1].startswith("complete_update")
    assert [each[:4] for each in second[0]] == [each[:4] for each in first[0]]
    assert second[1].tobytes() == first[1].tobytes()


def test_an_update_whose_minibatches_are_reported_one_by_one_is_compiled_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once(monkeypatch)
    old, new = built(), built()
    rng = np.random.default_rng(0)
    batch = {"obs": rng.normal(size=(8, 3)).astype(np.float32), "actions": rng.integers(0, 2, 8)}
    with pytest.warns(DeprecationWarning, match="reduce_fn="):
        each = old.update(batch, reduce_fn=None)  # type: ignore[call-arg]
    new.update(batch)
    assert len(each) == STEPS_OF_AN_UPDATE
    assert old.update_mode == new.update_mode
    assert old.update_mode.startswith("complete_update")
    np.testing.assert_allclose(weights(old), weights(new), rtol=0.0, atol=5e-6)


class BranchesOnTensor(Learner):
    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        loss = self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"]))
        return loss if float(loss) > 0.0 else -loss


class CountsCalls(Learner):
    calls = 0

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        self.calls += 1
        return self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"])) / self.calls


class WithTorchsOptimizer(Learner):
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        import torch

        params = self.get_parameters(self.module[module_id])
        optimizer = torch.optim.SGD(params, lr=0.1)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=params)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (BranchesOnTensor, "; not compiled, because the loss of BranchesOnTensor with BCConfig cannot be"),
        (CountsCalls, "; not compiled, because two traces of the loss differ"),
        (WithTorchsOptimizer, "; not compiled, because torch's own optimizers step in place"),
    ],
)
def test_what_cannot_be_compiled_stays_eager_and_the_mode_says_why(
    monkeypatch: pytest.MonkeyPatch, cls: type[Learner], why: str
) -> None:
    at_once(monkeypatch)
    learner, eager = built(cls=cls), built("none", cls)
    modes = train(learner, range(2))
    train(eager, range(2))
    assert {each.partition(why)[0] for each in modes} == {"none: eager torch, one step per minibatch"}, modes
    if cls is not CountsCalls:  # tracing calls the loss too
        assert weights(learner).tobytes() == weights(eager).tobytes()


def keeping(kind: str, size: tuple[int, ...] = (2,)) -> Any:
    """A model that keeps a tensor that is not in its `state_dict`."""
    import torch

    class Keeping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pi = torch.nn.Linear(3, 2)
            self.register_buffer("kept", torch.ones(size), persistent=False)
            self.mean = torch.ones(size)
            self.first: Any = None
            self.by_width: dict[int, Any] = {}
            self.listed: list[Any] = []

        def forward(self, obs: Any) -> Any:
            inputs = self.pi(obs)
            if kind == "made at the first call":
                self.first = torch.ones(size) if self.first is None else self.first + 0.5
                return inputs * self.first
            if kind == "in a dict":
                self.by_width[2] = self.by_width.get(2, torch.ones(size)) + 0.5
                return inputs * self.by_width[2]
            if kind == "in a list":
                self.listed.append(torch.ones(size))
                return inputs * sum(self.listed)
            if kind == "buffer in place":
                self.kept.add_(0.5)
                return inputs * self.kept.clone()
            if kind == "counted only":
                self.kept.add_(1.0)
            elif kind == "buffer":
                self.kept = self.kept + 0.5
                return inputs * self.kept
            elif kind == "attribute":
                self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(tuple(range(2 - len(size))))
                return inputs * self.mean
            self.mean = inputs  # written before it is read
            return self.mean * 2.0

    torch.manual_seed(0)
    return Keeping()


KINDS = [
    *("buffer in place", "counted only", "buffer", "attribute"),
    *("made at the first call", "in a dict", "in a list"),
]


@pytest.mark.cross_product("kind", part=2)
@pytest.mark.parametrize("mode", ["auto", "complete_update"])
@pytest.mark.parametrize("size", [(), (2,)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_changes_tensors_beside_the_state_stays_eager(
    monkeypatch: pytest.MonkeyPatch, kind: str, size: tuple[int, ...], mode: str
) -> None:
    at_once(monkeypatch)
    learner, eager = (built(each, module=keeping(kind, size)) for each in (mode, "none"))
    modes = train(learner, range(3))
    train(eager, range(3))
    assert weights(learner).tobytes() == weights(eager).tobytes()
    own, expected = (each.module["default_policy"].model for each in (learner, eager))
    assert own.kept.tolist() == expected.kept.tolist()
    assert own.mean.tolist() == expected.mean.tolist()
    assert all(each.startswith("none: eager") for each in modes)
    assert "because" in modes[-1]


def test_a_step_that_writes_a_tensor_before_it_reads_it_is_compiled_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once(monkeypatch)
    learner = built(module=keeping("written first"))
    assert train(learner, range(1))[0].startswith("complete_update")
    assert learner.module["default_policy"].model.mean.tolist() == [1.0, 1.0]


@functools.cache
def table_of_a_function(width: int) -> Any:
    import torch

    return 1.0 + torch.arange(width)


def with_constants() -> Any:
    """A model that multiplies by tensors that no call changes."""
    import torch

    class WithConstants(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pi = torch.nn.Linear(3, 2)
            self.own = torch.tensor([1.0, 2.0])
            self.first: Any = None
            self.by_width: dict[int, Any] = {}

        def forward(self, obs: Any) -> Any:
            if self.first is None:
                self.first = torch.tensor([0.5, 1.5])
            if 2 not in self.by_width:
                self.by_width[2] = torch.ones(2)
            inputs = self.pi(obs) * self.own * self.first * self.by_width[2]
            return inputs * table_of_a_function(2) * torch.tensor([3.0, 0.1]) * torch.tensor(0.3)

    torch.manual_seed(0)
    return WithConstants()


@pytest.mark.parametrize("mode", ["auto", "complete_update"])
def test_tensors_that_no_call_changes_are_constants_of_the_compiled_update(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    at_once(monkeypatch)
    table_of_a_function.cache_clear()
    learner, eager = (built(each, module=with_constants()) for each in (mode, "none"))
    modes = train(learner, range(3))
    train(eager, range(3))
    assert all(
        each.startswith("complete_update: the whole update one compiled function") for each in modes
    ), modes
    np.testing.assert_allclose(weights(learner), weights(eager), rtol=0.0, atol=5e-6)
    obs = np.ones((2, 3), np.float32)
    acted = learner.compute_actions(obs, explore=False)  # nothing that tracing made is left in the model
    expected = eager.compute_actions(obs, explore=False)
    np.testing.assert_allclose(acted["action_dist_inputs"], expected["action_dist_inputs"], atol=1e-5)

"""`compile="auto"` on torch: eager, then recorded, then compiled, at updates that settings alone decide."""

import functools
import os
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import actor_critics
import gymnasium as gym
import needs
import numpy as np
import pytest
from learning import ppo_batch, ppo_config, value_config

from plugrad import Learner
from plugrad.hooks import private_names
from plugrad_bc import BCConfig

STEPS_OF_AN_UPDATE = 2
UPDATES = 6


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second update is recorded; beside the third and fourth a process compiles; the fifth is compiled."""
    needs.backend("torch")
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_RECORDING", STEPS_OF_AN_UPDATE)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_COMPILING", 2 * STEPS_OF_AN_UPDATE)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_CHANGING", 4 * STEPS_OF_AN_UPDATE)


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_RECORDING", 0)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_COMPILING", 0)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_CHANGING", 0)


def recorded_only(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_RECORDING", after)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_COMPILING", 1_000)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_BEFORE_CHANGING", 1_000)


def built(
    mode: str = "auto", cls: type[Learner] = Learner, plugins: tuple[Any, ...] = (), module: Any = None
) -> Learner:
    spaces = {"observation_space": gym.spaces.Box(-1.0, 1.0, (3,)), "action_space": gym.spaces.Discrete(2)}
    config = BCConfig().environment(**spaces).framework("torch", compile=mode, device="cpu").debugging(seed=0)
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
    recorded = "none: recorded operations of torch, one call per minibatch; compiled after 8 gradient steps"
    compiled = "complete_update: the whole update one compiled function (inductor), after 8 gradient steps"
    assert modes == [later, recorded] + [f"{recorded}, being compiled"] * 2 + [compiled] * 2
    np.testing.assert_allclose(weights(straight), weights(eager), rtol=0.0, atol=5e-6)
    for stop in (1, 3, 5):
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
        (CountsCalls, "; not compiled, because two recordings of a step differ"),
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


MODES = {"recorded": "auto", "auto": "auto", "complete_update": "complete_update"}
KINDS = [
    *("buffer in place", "counted only", "buffer", "attribute"),
    *("made at the first call", "in a dict", "in a list"),
]


@pytest.mark.cross_product("kind", part=2)
@pytest.mark.parametrize("mode", ["recorded", "auto", "complete_update"])
@pytest.mark.parametrize("size", [(), (2,)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_changes_tensors_beside_the_state_stays_eager(
    monkeypatch: pytest.MonkeyPatch, kind: str, size: tuple[int, ...], mode: str
) -> None:
    if mode == "recorded":
        recorded_only(monkeypatch)
    else:
        at_once(monkeypatch)
    learner, eager = (built(each, module=keeping(kind, size)) for each in (MODES[mode], "none"))
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


RECORDED = "none: recorded operations of torch"


def test_recorded_steps_give_the_bytes_of_eager_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_only(monkeypatch)
    for module in (lambda: None, with_constants, with_batch_norm):
        learner, eager = (built(each, module=module()) for each in ("auto", "none"))
        modes = train(learner, range(4))
        train(eager, range(4))
        assert all(each.startswith(RECORDED) for each in modes), modes
        assert weights(learner).tobytes() == weights(eager).tobytes()
        one, two = (each.get_state()["rl_module"]["default_policy"] for each in (learner, eager))
        assert {name: each.tobytes() for name, each in one.items()} == {
            name: each.tobytes() for name, each in two.items()
        }


@pytest.mark.parametrize("kind", ["sac", "td3", "dqn", "ppo", "ppo on images"])
def test_recorded_steps_of_every_kind_give_the_bytes_of_eager_ones(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    recorded_only(monkeypatch)
    learners = {mode: of_kind(kind, mode) for mode in ("auto", "none")}
    for n in range(4):
        for learner in learners.values():
            learner.update(batch_of_kind(kind, n))
    assert learners["auto"].update_mode.startswith(RECORDED), learners["auto"].update_mode
    assert weights(learners["auto"]).tobytes() == weights(learners["none"]).tobytes()


def of_kind(kind: str, mode: str) -> Learner:
    if kind in ("sac", "td3"):
        config = actor_critics.tiny(kind, "torch").framework("torch", compile=mode, device="cpu")
        return config.build_learner()
    if kind == "dqn":
        return (
            value_config("torch", minibatch_size=8)
            .framework("torch", compile=mode, device="cpu")
            .build_learner()
        )
    config = ppo_config("torch", minibatch_size=8, num_epochs=2).framework(
        "torch", compile=mode, device="cpu"
    )
    if kind == "ppo on images":
        config = config.environment(observation_space=gym.spaces.Box(0, 255, (12, 12, 1), np.uint8))
        config = config.rl_module(model_config={"conv_filters": [[4, 4, 2]], "fcnet_hiddens": [4]})
    return config.build_learner()


def batch_of_kind(kind: str, seed: int) -> dict[str, np.ndarray]:
    if kind in ("sac", "td3"):
        return actor_critics.transitions(kind, seed=seed)
    batch = ppo_batch(seed=seed)
    rng = np.random.default_rng(seed)
    if kind == "dqn":
        ends = {"rewards": rng.normal(size=16).astype(np.float32), "terminateds": rng.random(16) < 0.1}
        return {**batch, "next_obs": batch["obs"][::-1].copy(), **ends}
    if kind == "ppo on images":
        batch["obs"] = rng.integers(0, 256, (16, 12, 12, 1), np.uint8)
    return batch


class Accumulates(Learner):
    """Its loss adds up in tensors that it makes itself, in place."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        import torch

        outputs = fwd_out["action_dist_inputs"]
        seen = torch.tensor(1.0)
        for column in range(outputs.shape[1]):
            seen += outputs[:, column].detach().abs().mean()
        return self.ops.mean(self.ops.square(outputs)) / seen


def test_a_loss_that_adds_up_in_tensors_of_its_own_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_only(monkeypatch)
    learner, eager = built(cls=Accumulates), built("none", Accumulates)
    modes = train(learner, range(3))
    train(eager, range(3))
    assert all(each.startswith(RECORDED) for each in modes), modes
    assert weights(learner).tobytes() == weights(eager).tobytes()


def with_shrinking_weights() -> Any:
    """A model whose forward pass changes its own parameters in place."""
    import torch

    class Shrinking(torch.nn.Linear):
        def forward(self, obs: Any) -> Any:
            self.weight.data.mul_(0.99)
            return super().forward(obs)

    torch.manual_seed(0)
    return Shrinking(3, 2)


def test_a_step_that_changes_parameters_in_place_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_only(monkeypatch)
    learner, eager = (built(each, module=with_shrinking_weights()) for each in ("auto", "none"))
    modes = train(learner, range(3))
    train(eager, range(3))
    assert weights(learner).tobytes() == weights(eager).tobytes()
    assert all(each.startswith("none: eager torch") for each in modes), modes
    assert "changes in place what the step did not make" in modes[-1]


def with_batch_norm() -> Any:
    """A model whose buffers every step changes in place."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


class ChangesWithUpdates(Learner):
    """Its loss has a number that is no variable, and that changes after some updates."""

    changes_after = updates = 0
    factor = 1.0

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        return self.factor * self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"]))

    def after_gradient_based_update(self, *, timesteps: Any) -> None:
        self.updates += 1
        if self.updates > self.changes_after:
            self.factor *= 0.5


def test_a_number_that_changes_with_updates_is_found_before_it_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded_only(monkeypatch, after=2 * STEPS_OF_AN_UPDATE)
    learner, eager = built(cls=ChangesWithUpdates), built("none", ChangesWithUpdates)
    modes = train(learner, range(4))
    train(eager, range(4))
    assert all(each.startswith("none: eager torch") for each in modes), modes
    assert "two recordings of a step differ" in modes[-1]
    assert weights(learner).tobytes() == weights(eager).tobytes()


class Scales(Learner):
    """Its loss multiplies by a number that lies where the test says."""

    coeff = 1.0
    in_class = types.SimpleNamespace(coeff=1.0)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        return self.scale(module_id) * self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"]))

    def scale(self, module_id: str) -> Any:
        return self.coeff


GLOBAL = 1.0


def scaling(where: str) -> tuple[type[Learner], Any]:
    """A learner class, and what sets the number of a learner of this class."""
    around = 1.0

    class Slots:
        __slots__ = ("coeff",)

        def __init__(self) -> None:
            self.coeff = 1.0

    def set_class(learner: Any, to: float) -> None:
        type(learner).coeff = to

    def set_global(learner: Any, to: float) -> None:
        global GLOBAL
        GLOBAL = to

    def set_around(learner: Any, to: float) -> None:
        nonlocal around
        around = to

    kept: dict[str, Any] = {
        "dict": {"default_policy": 1.0},
        "list": [1.0],
        "array": np.ones(2),
        "object": types.SimpleNamespace(coeff=1.0),
        "slots": Slots(),
        "class": None,
        "global": None,
        "closure": None,
        "attribute": None,
    }
    readers: dict[str, Any] = {
        "dict": lambda self, module_id: kept["dict"][module_id],
        "list": lambda self, module_id: kept["list"][0],
        "array": lambda self, module_id: float(kept["array"][0]),
        "object": lambda self, module_id: self.own.coeff,
        "slots": lambda self, module_id: self.own.coeff,
        "class": lambda self, module_id: self.coeff,
        "global": lambda self, module_id: GLOBAL,
        "closure": lambda self, module_id: around,
        "attribute": lambda self, module_id: self.coeff,
    }
    setters: dict[str, Any] = {
        "dict": lambda learner, to: kept["dict"].update(default_policy=to),
        "list": lambda learner, to: kept["list"].__setitem__(0, to),
        "array": lambda learner, to: kept["array"].fill(to),
        "object": lambda learner, to: setattr(learner, "own", types.SimpleNamespace(coeff=to)),
        "slots": lambda learner, to: setattr(learner.own, "coeff", to),
        "class": set_class,
        "global": set_global,
        "closure": set_around,
        "attribute": lambda learner, to: setattr(learner, "coeff", to),
    }
    own = kept[where] if where in ("object", "slots") else None
    return type("Scaling", (Scales,), {"scale": readers[where], "own": own}), setters[where]


@pytest.mark.parametrize(
    "where", ["attribute", "class", "object", "slots", "dict", "list", "array", "global", "closure"]
)
def test_a_python_number_that_changes_is_used_in_the_next_recorded_step(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    recorded_only(monkeypatch)
    monkeypatch.setattr("plugrad_torch.auto_update.STEPS_OF_A_RECORDING", 2)
    trained = []
    for mode in ("auto", "none"):
        cls, change = scaling(where)
        learner = built(mode, cls)
        change(learner, 1.0)
        modes = train(learner, range(3))
        change(learner, 0.25)
        modes += train(learner, range(3, 5))
        change(learner, 1.0)
        trained.append((modes, weights(learner).tobytes()))
    (modes, found), (_, expected) = trained
    assert all(each.startswith(RECORDED) for each in modes), modes
    assert found == expected


class Brittle:
    """An object of which hardly anything may be asked."""

    def __init__(self) -> None:
        self.coeff = 0.5

    def __getattribute__(self, name: str) -> Any:
        if name not in ("coeff", "__class__"):
            raise RuntimeError(f"{name} of a brittle object")
        return super().__getattribute__(name)


class HasBrittle(Scales):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.brittle = Brittle()

    def scale(self, module_id: str) -> Any:
        return self.brittle.coeff


def test_an_object_whose_attributes_raise_does_not_disturb_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded_only(monkeypatch)
    learner, eager = built(cls=HasBrittle), built("none", HasBrittle)
    modes = train(learner, range(3))
    train(eager, range(3))
    assert all(each.startswith(RECORDED) for each in modes), modes
    assert weights(learner).tobytes() == weights(eager).tobytes()


def test_a_number_that_changes_with_every_update_leaves_steps_eager_and_the_mode_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded_only(monkeypatch)
    monkeypatch.setattr(ChangesWithUpdates, "changes_after", 5)
    learner, eager = built(cls=ChangesWithUpdates), built("none", ChangesWithUpdates)
    modes = train(learner, range(9))
    train(eager, range(9))
    assert modes[5].startswith(RECORDED)
    assert modes[-1].startswith("none: eager torch")
    assert "factor of ChangesWithUpdates was 1.0 and is 0.5" in modes[-1]
    assert weights(learner).tobytes() == weights(eager).tobytes()


class ReadsTheEnvironment(Learner):
    """Its loss has a number that no name of its code leads to."""

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        return float(os.environ["COEFF"]) * self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"]))


def test_another_change_is_found_within_100_gradient_steps_and_the_log_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded_only(monkeypatch)
    monkeypatch.setenv("COEFF", "1.0")
    learner = built(cls=ReadsTheEnvironment)
    modes = train(learner, range(7))
    assert modes[-1].startswith(RECORDED)
    assert "no variables" not in caplog.text
    monkeypatch.setenv("COEFF", "0.5")
    modes = train(learner, range(100 // STEPS_OF_AN_UPDATE + 1))
    assert modes[-1].startswith("none: eager torch")
    assert "an eager step gives other numbers" in modes[-1]
    assert "the loss of ReadsTheEnvironment computes with values that are no variables" in caplog.text


class ReadsValues(Learner):
    """Its loss takes values of a tensor out of torch."""

    how = "item"

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
    ) -> Any:
        squares = self.ops.square(fwd_out["action_dist_inputs"])
        means = squares.detach().mean(0)
        if self.how == "item":
            return squares.mean() * means[0].item()
        if self.how == "numpy":
            return squares.mean() * float(means.numpy()[0])
        if self.how == "tolist":
            return squares.mean() * means.tolist()[0]
        if self.how == "if":
            return squares.mean() if means[0] > means[1] else squares.sum()
        if self.how == "mask":
            return squares[squares > 0.1].sum()
        if self.how == "mask of bytes":
            return squares[(squares > 0.1).byte()].sum()
        return squares.mean() + 0.0 * torch_rand()


def torch_rand() -> Any:
    import torch

    return torch.rand(())


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("how", ["item", "numpy", "tolist", "if", "mask", "mask of bytes", "random"])
def test_a_loss_that_depends_on_values_is_not_recorded(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    recorded_only(monkeypatch)
    monkeypatch.setattr(ReadsValues, "how", how)
    learner, eager = built(cls=ReadsValues), built("none", ReadsValues)
    modes = train(learner, range(3))
    train(eager, range(3))
    assert "; not compiled, because the loss of ReadsValues with BCConfig cannot be compiled" in modes[-1]
    assert weights(learner).tobytes() == weights(eager).tobytes()


def test_without_torchs_interpreter_steps_are_eager_until_they_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    recorded_only(monkeypatch)
    monkeypatch.delattr(torch._C, "_create_function_from_graph")
    private_names._find.cache_clear()
    try:
        learner, eager = built(), built("none")
        modes = train(learner, range(2))
        train(eager, range(2))
    finally:
        private_names._find.cache_clear()
    assert modes[-1].startswith(
        f"none: eager torch, one step per minibatch, because torch {version('torch')} has no "
    )
    assert "torch._C._create_function_from_graph: steps" in modes[-1]
    assert modes[-1].endswith("; compiled after 1,000 gradient steps")
    assert weights(learner).tobytes() == weights(eager).tobytes()

"""Modules, built-in and of users, and their states and checkpoints: copies, exact, and at home on every backend."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.errors import ConfigError, NonFiniteError, OptimizerError, RestoreMismatchError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.learner import Learner
from plugrad.module_spec import RLModuleSpec
from plugrad.rl_module import RLModule
from plugrad.testing.fixtures import REFERENCE, requires
from plugrad.testing.tiny_learners import (
    ActorCriticLearner,
    digest,
    flat,
    tiny_batch,
    tiny_config,
    tiny_learner,
    weights_of,
)
from plugrad.types import DEFAULT_MODULE_ID, Array

P = DEFAULT_MODULE_ID


def test_equal_seeds_give_the_weights_of_the_reference(backend: str) -> None:
    """To the byte, under the same names, in the same order; weights are (in, out)."""
    found, expected = (tiny_learner(each).get_weights()[P] for each in (backend, REFERENCE))
    assert list(found) == list(expected)
    for name, weight in expected.items():
        assert found[name].shape == weight.shape, f"{name}: weights are (in, out), {weight.shape}"
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], weight, err_msg=f"{name}: weights are (in, out), as drawn")


def _forward(learner: Learner, kind: str, batch: Mapping[str, Array]) -> dict[str, Array]:
    forward = getattr(learner.module[P], f"forward_{kind}")
    columns: dict[str, Array] = learner._convert_to_numpy(forward(learner._convert_batch_type(batch)))
    return columns


@pytest.mark.parametrize("kind", ["train", "exploration", "inference"])
def test_forward_passes_are_those_of_the_reference(backend: str, kind: str) -> None:
    """The same columns with the same numbers, within 1e-6."""
    found, expected = (_forward(tiny_learner(each), kind, tiny_batch()) for each in (backend, REFERENCE))
    assert list(found) == list(expected)
    for column, values in expected.items():
        np.testing.assert_allclose(found[column], values, rtol=0, atol=1e-6, err_msg=f"{kind}: {column}")


def test_convolutions_are_those_of_the_reference(backend: str) -> None:
    """Images through convolutions, as bytes: outputs within 1e-6 of the largest."""
    spec = RLModuleSpec(observation_space=_images(), model_config={"conv_filters": [[4, 4, 2], [4, 3, 2]]})
    outputs = []
    for name in (backend, REFERENCE):
        learner = tiny_learner(name, rl_module_spec=spec)
        obs = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 1), np.uint8)
        outputs.append(_forward(learner, "train", {Columns.OBS: obs}))
    for column, values in outputs[1].items():
        np.testing.assert_allclose(outputs[0][column], values, rtol=0, atol=2e-6, err_msg=column)


def _images() -> Any:
    from gymnasium.spaces import Box

    return Box(0, 255, (16, 16, 1), np.uint8)


def test_acting_is_that_of_the_reference(backend: str) -> None:
    """Equal seeds draw equal actions."""
    obs, learner, reference = tiny_batch()[Columns.OBS], tiny_learner(backend), tiny_learner(REFERENCE)
    found, expected = (each.compute_actions(obs, explore=True) for each in (learner, reference))
    np.testing.assert_array_equal(found[Columns.ACTIONS], expected[Columns.ACTIONS])
    np.testing.assert_allclose(learner.compute_values(obs), reference.compute_values(obs), rtol=0, atol=1e-6)


def test_parameters_have_names_and_an_order(backend: str) -> None:
    """`get_parameters` follows the order of the state; `get_param_ref` gives `<module id>/<name>`."""
    learner = tiny_learner(backend)
    params = learner.get_parameters(learner.module[P])
    names = list(learner.get_weights()[P])
    assert [learner.get_param_ref(param) for param in params] == [f"{P}/{name}" for name in names]
    layout = learner.registered_optimizers[f"{P}_default_optimizer"].layout
    assert layout.refs == tuple(f"{P}/{name}" for name in names)
    assert layout.shapes == tuple(weight.shape for weight in learner.get_weights()[P].values())


def test_weights_of_a_module_are_copies(backend: str) -> None:
    """What `get_state` gave does not follow the module, and the module does not follow it."""
    learner = tiny_learner(backend)
    held = learner.module[P].get_state()
    before = digest(held)
    for weight in learner.module[P].get_state().values():
        weight += 1.0
    assert digest(learner.module[P].get_state()) == before, "get_state() is a view of the live weights"
    learner.module[P].set_state({name: weight + 1.0 for name, weight in held.items()})
    assert digest(held) == before, "get_state() is a view of the live weights"
    assert digest(learner.get_weights()[P]) == digest({name: weight + 1.0 for name, weight in held.items()})


def test_a_module_computes_with_weights_that_it_is_lent(backend: str) -> None:
    """While `functional_call` lasts, as target networks need it; afterwards it has its own again."""
    learner, other = (tiny_learner(backend, lr=lr) for lr in (0.0, 0.1))
    other.update(tiny_batch())
    lent = learner._convert_batch_type(other.module[P].get_state())
    own = _forward(learner, "train", tiny_batch())
    with learner.module[P].functional_call(lent):
        borrowed = _forward(learner, "train", tiny_batch())
    for found, expected in (
        (borrowed, _forward(other, "train", tiny_batch())),
        (_forward(learner, "train", tiny_batch()), own),
    ):
        for column, values in expected.items():
            np.testing.assert_allclose(
                found[column], values, rtol=0, atol=1e-6, err_msg=f"functional_call: {column}"
            )


def test_a_module_refuses_weights_that_do_not_fit_and_keeps_its_own(backend: str) -> None:
    """Names and shapes are checked before anything is changed."""
    learner = tiny_learner(backend)
    state = learner.module[P].get_state()
    before, name = digest(state), next(iter(state))
    for wrong in ({**state, name: state[name][:1]}, {**state, "more": state[name]}, {name: state[name]}):
        with pytest.raises(RestoreMismatchError):
            learner.module[P].set_state(wrong)
        assert digest(learner.module[P].get_state()) == before


def test_a_stranger_is_no_module_and_no_model(backend: str) -> None:
    """What the framework cannot train is refused by `ConfigError` or `OptimizerError`."""
    learner = tiny_learner(backend)
    assert learner._is_module_compatible_with_learner(learner.module[P])
    assert not learner._is_module_compatible_with_learner(RLModule())
    with pytest.raises(ConfigError):
        learner._wrap_module(module_id=P, module=object(), module_spec=RLModuleSpec())
    with pytest.raises(OptimizerError):
        learner._check_registered_optimizer(learner.get_optimizer(), [object()])
    with pytest.raises(OptimizerError):
        learner._check_registered_optimizer(object(), learner.get_parameters(learner.module[P]))


OBS = tiny_batch(seed=3)[Columns.OBS]
Make = Callable[[], Any]


def _learner(backend: str, model: Any, **settings: Any) -> Learner:
    learner = ActorCriticLearner(config=tiny_config(backend, **settings), module=model)
    learner.build()
    return learner


def _outputs(learner: Learner) -> Array:
    greedy: Array = learner.compute_actions(OBS, explore=False)[Columns.ACTION_DIST_INPUTS]
    return np.concatenate([greedy, learner.compute_values(OBS)[:, None]], 1)


def _buffers(learner: Learner) -> dict[str, Any]:
    return digest({name: variable.numpy() for name, variable in learner.buffers.get(P, {}).items()})


def test_buffers_are_in_the_state_and_none_of_them_is_trained(
    backend: str, backend_info: BackendInfo, user_model: Make
) -> None:
    """`get_buffers` gives variables by their names in the state, whose values they have, and no parameter."""
    requires(backend_info, Capability.USER_MODULES)
    learner = _learner(backend, user_model())
    learner.update(tiny_batch())
    weights = learner.get_weights()[P]
    for name, variable in learner.buffers.get(P, {}).items():
        np.testing.assert_array_equal(variable.numpy(), weights[name], err_msg=name)
    trained = {ref.split("/", 1)[1] for each in learner.registered_optimizers.values() for ref in each.refs}
    buffers = set(learner.buffers.get(P, {}))
    assert trained.isdisjoint(buffers)
    assert trained | buffers == set(weights), "some of the state is neither trained nor a buffer"


def test_a_users_model_is_trained(backend: str, backend_info: BackendInfo, user_model: Make) -> None:
    """Its values come nearer to their targets: to less than half of the error."""
    requires(backend_info, Capability.USER_MODULES)
    learner = _learner(backend, user_model(), compile="auto", lr=0.05, num_epochs=20)
    before = float(np.mean(np.abs(learner.compute_values(OBS) - 3.0)))
    learner.update({**tiny_batch(seed=3), Columns.VALUE_TARGETS: np.full(16, 3.0, np.float32)})
    after = float(np.mean(np.abs(learner.compute_values(OBS) - 3.0)))
    assert after < 0.5 * before, f"in mode {learner.update_mode!r} the error was {before} and is {after}"


def test_a_users_model_acts_alike_twice_and_on_one_observation(
    backend: str, backend_info: BackendInfo, user_model: Make
) -> None:
    """Acting and values are of inference: a row's outputs depend neither on chance nor on the other rows."""
    requires(backend_info, Capability.USER_MODULES)
    learner = _learner(backend, user_model())
    learner.update(tiny_batch())
    outputs = _outputs(learner)
    np.testing.assert_array_equal(_outputs(learner), outputs, err_msg="two greedy calls differ")
    alone = learner.compute_actions(OBS[:1], explore=False)[Columns.ACTION_DIST_INPUTS]
    np.testing.assert_allclose(alone[0], outputs[0, :-1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(learner.compute_values(OBS[:1])[0], outputs[0, -1], rtol=0, atol=1e-6)


def test_only_updates_move_what_a_users_model_keeps(
    backend: str, backend_info: BackendInfo, user_model: Make
) -> None:
    """Statistics follow `forward_train`, and stay while the model acts."""
    requires(backend_info, Capability.USER_MODULES)
    learner = _learner(backend, user_model())
    first = _buffers(learner)
    _outputs(learner)
    assert _buffers(learner) == first, "acting moves buffers"
    learner.update(tiny_batch())
    assert not first or _buffers(learner) != first, "an update moves no buffer: is it made in training mode?"


def test_a_users_model_is_exported_as_it_acts(
    backend: str, backend_info: BackendInfo, user_model: Make, tmp_path: Path
) -> None:
    """An ONNX runtime gives the actions of `predict`, of any number of rows."""
    requires(backend_info, Capability.ONNX)
    runtime = pytest.importorskip("onnxruntime", reason="not installed: onnxruntime")
    policy = _learner(backend, user_model()).get_policy()
    session = runtime.InferenceSession(policy.export_onnx(tmp_path / "policy.onnx"))
    for rows in (OBS, OBS[:1]):
        (found,) = session.run(None, {"obs": rows})
        np.testing.assert_array_equal(found, policy.predict(rows)[0])


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_a_users_model_is_saved_restored_and_undone_with_all_that_it_keeps(
    backend: str, backend_info: BackendInfo, user_model: Make, tmp_path: Path, mode: str
) -> None:
    """After an update that failed, and from a checkpoint, its outputs are what they were, to 1e-6."""
    requires(backend_info, Capability.USER_MODULES)
    if mode != "none":
        requires(backend_info, Capability.COMPLETE_UPDATE)
    learner = _learner(backend, user_model(), compile=mode)
    learner.update(tiny_batch())
    outputs, before = _outputs(learner), digest(learner.get_state())
    with pytest.raises(NonFiniteError):
        learner.update({**tiny_batch(), Columns.ACTION_LOGP: np.full(16, -1e30, np.float32)})
    assert digest(learner.get_state()) == before, "an update that failed left something behind"
    np.testing.assert_array_equal(_outputs(learner), outputs)
    learner.save_to_path(tmp_path)
    again = ActorCriticLearner.from_checkpoint(tmp_path, module=user_model())
    np.testing.assert_allclose(_outputs(again), outputs, rtol=0, atol=1e-6)


SETTINGS: dict[str, Any] = {"shuffle_batch_per_epoch": True, "num_epochs": 2, "grad_clip": 0.5}


def _trained(backend: str) -> Learner:
    """One with moments: it was updated once."""
    learner = tiny_learner(backend, **SETTINGS)
    learner.update(tiny_batch())
    return learner


def test_a_state_round_trips_and_is_a_copy(backend: str) -> None:
    """Weights, slots, learning rates, counters and random streams come back to the bit, after further training."""
    learner = _trained(backend)
    state = learner.get_state()
    before = digest(state)
    learner.update(tiny_batch(seed=1))
    after = digest(learner.get_state())
    assert digest(state) == before != after, "get_state() is a view of live buffers"
    learner.set_state(state)
    assert digest(learner.get_state()) == before
    learner.update(tiny_batch(seed=1))
    assert digest(learner.get_state()) == after, "the same update from the same state gave another one"


def test_a_refused_state_changes_nothing(backend: str) -> None:
    """A slot of another shape is found before anything is changed."""
    learner = _trained(backend)
    state, before = learner.get_state(), digest(learner.get_state())
    (optimizer,) = state["optimizer"].values()
    ref = next(iter(optimizer["slots"]["m"]))
    optimizer["slots"]["m"][ref] = np.zeros(99, np.float32)
    with pytest.raises(RestoreMismatchError, match="m"):
        learner.set_state(state)
    assert digest(learner.get_state()) == before


def test_a_checkpoint_goes_on_exactly(backend: str, tmp_path: Path) -> None:
    """Saved and opened again, it trains on as if nothing had happened."""
    learner = _trained(backend)
    learner.save_to_path(tmp_path)
    again: Learner = ActorCriticLearner.from_checkpoint(tmp_path)
    assert digest(again.get_state()) == digest(learner.get_state())
    for each in (learner, again):
        each.update(tiny_batch(seed=1))
    assert digest(again.get_state()) == digest(learner.get_state())


@pytest.mark.parametrize("way", ["from the reference", "to the reference"])
def test_a_state_moves_to_and_from_the_reference(backend: str, tmp_path: Path, way: str) -> None:
    """A checkpoint opens on another backend to the bit, and training goes on with the same numbers."""
    source, target = (REFERENCE, backend) if way.startswith("from") else (backend, REFERENCE)
    learner = _trained(source)
    learner.save_to_path(tmp_path)
    other = ActorCriticLearner.from_checkpoint(tmp_path, backend=target)
    assert _arrays(other) == _arrays(learner)
    for each in (learner, other):
        each.update(tiny_batch(seed=1))
    np.testing.assert_allclose(weights_of(other), weights_of(learner), rtol=0, atol=1e-5)


def _arrays(learner: Learner) -> dict[str, Any]:
    return digest({path: value for path, value in flat(learner.get_state()).items() if "config" not in path})


__all__ = [name for name in dir() if name.startswith("test_")]

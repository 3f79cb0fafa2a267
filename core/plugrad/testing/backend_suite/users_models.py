"""Users' models: what they keep beside parameters is state, and they act otherwise than they are trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.errors import NonFiniteError
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.learner import Learner
from plugrad.testing.fixtures import requires
from plugrad.testing.tiny_learners import ActorCriticLearner, digest, tiny_batch, tiny_config
from plugrad.types import DEFAULT_MODULE_ID, Array

P = DEFAULT_MODULE_ID
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


__all__ = [name for name in dir() if name.startswith("test_")]

"""Modules: equal seeds give the reference's weights and outputs, by name, in (in, out)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from plugrad.columns import Columns
from plugrad.errors import ConfigError, OptimizerError, RestoreMismatchError
from plugrad.learner import Learner
from plugrad.module_spec import RLModuleSpec
from plugrad.rl_module import RLModule
from plugrad.testing.fixtures import REFERENCE
from plugrad.testing.tiny_learners import digest, tiny_batch, tiny_learner
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


__all__ = [name for name in dir() if name.startswith("test_")]

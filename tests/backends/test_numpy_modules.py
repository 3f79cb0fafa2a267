"""Modules that no backend trains, beside one that it does: random and scripted ones, in numpy."""

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, digest, ppo_batch, ppo_config

from plugrad import Columns, Learner, MultiRLModuleSpec, RandomRLModule, RLModule, RLModuleSpec
from plugrad.errors import BatchError, ConfigError

SPACES = [
    gym.spaces.Discrete(3, start=5),
    gym.spaces.MultiDiscrete([2, 3], start=[1, 7]),
    gym.spaces.Box(-1.0, 2.0, (2,), np.float32),
    gym.spaces.MultiBinary(3),
]


class AlwaysThe(RLModule):
    """A scripted opponent: the action that its settings say, and a count of its steps as its state."""

    def get_initial_state(self):
        return {"steps": np.zeros((), np.int64)}

    def _forward(self, batch, **kwargs):
        rows = len(batch[Columns.OBS])
        actions = np.full((rows, 1), self.model_config["action"])
        return {Columns.ACTIONS: actions, Columns.STATE_OUT: {"steps": batch[Columns.STATE_IN]["steps"] + 1}}


def specs() -> MultiRLModuleSpec:
    by_id = {
        "trained": RLModuleSpec(),
        "random": RLModuleSpec(module_class="plugrad:RandomRLModule"),
        "scripted": RLModuleSpec(module_class=AlwaysThe, model_config={"action": 1}),
    }
    return MultiRLModuleSpec(rl_module_specs=by_id)


def learner(backend: str, seed: int = 1) -> Learner:
    return ppo_config(backend, seed=seed).rl_module(rl_module_spec=specs()).build_learner()


def test_they_have_no_optimizer_and_no_weights(backend):
    built = learner(backend)
    assert built.trainable_module_ids == ["trained"]
    assert [name for name, _ in built.get_optimizers_for_module("random")] == []
    assert built.get_weights()["random"] == built.get_weights()["scripted"] == {}


def test_they_act_and_the_random_one_repeats_with_the_seed(backend):
    obs = np.zeros((50, 3))
    one, same, other = (learner(backend, seed).compute_actions(obs, module_id="random") for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[Columns.ACTIONS], same[Columns.ACTIONS])
    assert (one[Columns.ACTIONS] != other[Columns.ACTIONS]).any()
    assert set(one[Columns.ACTIONS].tolist()) == {0, 1}
    built = learner(backend)
    first = built.compute_actions(obs, module_id="scripted")
    assert first[Columns.ACTIONS].tolist() == [1] * 50
    then = built.compute_actions(obs, module_id="scripted", state=first[Columns.STATE_OUT])
    assert then[Columns.STATE_OUT]["steps"].tolist() == [2] * 50


def test_their_rows_are_left_out(backend):
    built, rows = learner(backend), ppo_batch(16)
    with_them = built.update({"trained": rows, "random": rows})
    assert set(with_them) == {"trained", "__all_modules__"}
    alone = learner(backend)
    alone.update({"trained": rows})
    assert digest(alone.get_weights()) == digest(built.get_weights())
    with pytest.raises(BatchError, match="nothing to train: rows of random"):
        built.update({"random": rows})


def test_they_come_back_from_a_checkpoint(backend, tmp_path):
    built = learner(backend)
    built.update({"trained": ppo_batch(16)})
    built.save_to_path(tmp_path)
    with pytest.raises(
        ConfigError, match=r"module 'random' .* imports no code: give module_spec= to Algorithm"
    ):
        Learner.from_checkpoint(tmp_path)
    restored = Learner.from_checkpoint(tmp_path, module_spec=specs())
    assert digest(restored.get_state()) == digest(built.get_state())
    obs = np.zeros((9, 3))
    for module_id in ("random", "scripted"):
        expected, found = (each.compute_actions(obs, module_id=module_id) for each in (built, restored))
        np.testing.assert_array_equal(found[Columns.ACTIONS], expected[Columns.ACTIONS])


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_random_actions_cover_any_space_and_count_from_0(space):
    module = RandomRLModule(observation_space=OBSERVATIONS, action_space=space)
    batch = {Columns.OBS: np.zeros((200, 3))}
    actions = module.forward_inference(batch, rng=np.random.default_rng(0))[Columns.ACTIONS]
    again = module.forward_exploration(batch, rng=np.random.default_rng(0))[Columns.ACTIONS]
    np.testing.assert_array_equal(actions, again)
    assert actions.shape == (200, *space.shape)
    start = getattr(space, "start", 0)
    assert all((action + start).astype(space.dtype) in space for action in actions)
    assert len(np.unique(actions, axis=0)) > (1 if space is TWO_ACTIONS else 2)

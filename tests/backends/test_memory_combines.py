"""Recurrent layers with images, Dict observations, masks and stacked frames: what acts, trains and is loaded."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from learning import quick_mode
from masked import MaskedEnv

import plugrad
from plugrad import DEFAULT_MODULE_ID, numpy_ops
from plugrad.algorithm import Algorithm
from plugrad_ppo import PPOConfig

pytestmark = pytest.mark.cross_product

IMAGE = Box(0, 255, (20, 20, 1), np.uint8)


class Seen(gym.Wrapper):
    """What a masked environment shows, as the image alone or beside other parts; steps without that are refused."""

    def __init__(self, parts: tuple[str, ...] = ("image", "shown", "kind")) -> None:
        super().__init__(MaskedEnv())
        self.rng = np.random.default_rng(0)
        whole = Dict(image=IMAGE, shown=self.env.observation_space, kind=Discrete(3))
        self.parts = parts
        self.observation_space = IMAGE if parts == ("image",) else Dict({each: whole[each] for each in parts})

    def reset(self, **settings):
        observation, info = self.env.reset(**settings)
        return self.see(observation), info

    def step(self, action):
        observation, *others = self.env.step(action)
        return self.see(observation), *others

    def see(self, shown):
        seen = {"image": np.uint8(255 * shown[:4].repeat(100).reshape(IMAGE.shape)), "shown": shown}
        seen["kind"] = int(shown.argmax() % 3)
        return seen["image"] if self.parts == ("image",) else {each: seen[each] for each in self.parts}


COMBINATIONS = {
    "image": (("image",), 1),
    "dict": (("shown", "kind"), 1),
    "dict with an image, stacked frames": (("image", "shown", "kind"), 2),
}


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_policy_remembers_whatever_it_sees_and_keeps_to_masks(backend, memory, combination, tmp_path):
    parts, frames = COMBINATIONS[combination]
    model = {"fcnet_hiddens": [4], f"use_{memory}": True, f"{memory}_cell_size": 3, "max_seq_len": 4}
    config = (
        PPOConfig()
        .framework(backend, compile=quick_mode(backend))
        .environment(Seen, env_config={"parts": parts})
        .env_runners(num_envs_per_env_runner=2, frame_stack=frames)
        .rl_module(model_config=model)
        .training(train_batch_size=20, minibatch_size=10, num_epochs=2)
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    for _ in range(2):  # the second batch begins amid episodes
        results = algorithm.train()["learners/default_policy/total_loss"]
    assert np.isfinite(results)
    (chunk, *_) = algorithm.sample()
    learner = algorithm._learner
    weights = learner.get_weights()[DEFAULT_MODULE_ID]
    network = learner.module[DEFAULT_MODULE_ID].network
    state = {name: np.zeros((1, 3), np.float32) for name in network.initial_state()}
    recorded = {name: chunk.extra_model_outputs[f"state_in/{name}"][None, 0] for name in state}
    batch = {"obs": chunk.observations[None, :-1], "state_in": recorded}
    expected = network.forward(numpy_ops, weights, batch, value=True)
    allowed = chunk.extra_model_outputs["action_mask"]
    assert allowed.any()
    for found, wanted in (
        (
            chunk.extra_model_outputs["action_dist_inputs"][allowed],
            expected["action_dist_inputs"][0][allowed],
        ),
        (learner.compute_values_of_episodes([chunk])[:-1], expected["vf_preds"][0]),
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)

    algorithm.save_to_path(tmp_path)
    policy, observation = algorithm.get_policy(), algorithm._env_observation_space("default_policy").sample()
    mask = np.array([False, True, False, True, False])
    first, after = policy.predict(observation, action_masks=mask)
    again, loaded = plugrad.load_policy(tmp_path).predict(observation, action_masks=mask)
    assert first == again
    assert mask[first]
    for name, value in after.items():
        assert np.abs(value - state[name]).max() > 1e-4
        np.testing.assert_allclose(loaded[name], value, atol=1e-6)
    algorithm.stop()
    resumed = Algorithm.from_checkpoint(tmp_path, env=Seen)
    assert np.isfinite(resumed.train()["learners/default_policy/total_loss"])
    resumed.stop()

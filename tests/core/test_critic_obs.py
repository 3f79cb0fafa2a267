"""The setting `critic_obs`: critics see the state or all agents' observations, and policies act without them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import many_agents
import numpy as np
import pytest
from many_agents import Pair

import plugrad
from plugrad.errors import ConfigError
from plugrad.sampling.environments import get_module_spaces, make_multi_agent_env
from plugrad.sampling.wrappers import EnvWrappers
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig


class Stateful(Pair):
    """`Pair` with a state in PettingZoo's interface, which it writes into one array."""

    state_space = gym.spaces.Box(0.0, 9.0, (2,), np.float32)
    kept = np.zeros(2, np.float32)

    def state(self):
        self.kept[:] = self.step_number, len(self.agents)
        return self.kept


class Masked(Pair):
    """`Pair` whose observations are Dicts with action masks."""

    def observation_space(self, agent):
        mask = gym.spaces.Box(0, 1, (4,), np.int8)
        return gym.spaces.Dict({"observation": super().observation_space(agent), "action_mask": mask})

    def _all(self, value):
        if isinstance(value, np.ndarray):
            value = {"observation": value, "action_mask": np.array([1, 1, 0, 0], np.int8)}
        return super()._all(value)


def agents(env: Any, critic_obs: str) -> Any:
    return make_multi_agent_env(env, wrappers=EnvWrappers(critic_obs=critic_obs))


def played(env: Any, steps: int) -> list[Any]:
    """The observations of the first steps."""
    observations, _ = env.reset(0)
    found = [observations]
    for _ in range(steps):
        acting = env.env.agents
        found.append(env.step(dict.fromkeys(acting, 0)).observations)
    return found


def test_a_critic_sees_the_state_of_each_step() -> None:
    env = agents(Stateful, "state")
    assert env.observation_space("left")["critic_obs"] == Stateful.state_space
    found = played(env, 3)
    states = [observations["right"]["critic_obs"].tolist() for observations in found]
    assert states == [[0.0, 2.0], [1.0, 2.0], [2.0, 1.0], [3.0, 1.0]]
    for observations in found:
        for agent, each in observations.items():
            assert env.observation_space(agent).contains(each)
    assert [observations["right"]["obs"].tolist() for observations in found] == [[0.0], [1.0], [2.0], [3.0]]


def test_a_critic_sees_what_all_agents_see_and_zeros_of_those_that_have_ended() -> None:
    env = agents(Pair, "agents")
    found = played(env, 3)  # the left one ends in the second step
    seen = [{name: float(x[0]) for name, x in each["right"]["critic_obs"].items()} for each in found]
    assert seen == [{"left": n, "right": n} for n in (0.0, 1.0, 2.0)] + [{"left": 0.0, "right": 3.0}]
    assert env.observation_space("right").contains(found[-1]["right"])
    assert found[2]["left"]["critic_obs"]["left"] == 2.0
    assert played(env, 1)[0]["right"]["critic_obs"]["left"] == 0.0


def test_action_masks_are_no_part_of_what_critics_see() -> None:
    env = agents(Masked, "agents")
    assert list(env.observation_space("left")["critic_obs"]["right"].shape) == [1]
    assert [*played(env, 1)[1]["left"]] == ["observation", "action_mask", "critic_obs"]
    config = many_agents.Settings(env=Masked, critic_obs="agents")
    (space, _) = get_module_spaces(config)["default_policy"]
    assert [*space] == ["critic_obs", "observation"]


def test_what_the_setting_cannot_add_is_said_with_what_to_type() -> None:
    with pytest.raises(ConfigError, match=r"has no state\(\) with a state_space.*critic_obs=.agents."):
        agents(Pair, "state")
    with pytest.raises(ConfigError, match=r"'CartPole-v1' has no state\(\) with a state_space.*critic_only"):
        config(PPOConfig(), "CartPole-v1", "state").build_learner()
    with pytest.raises(ConfigError, match=r"many agents, and 'CartPole-v1' has one.*critic_obs=.state."):
        config(PPOConfig(), "CartPole-v1", "agents").build_learner()
    with pytest.raises(ConfigError, match="critic_obs=state needs vectorization_mode"):
        EnvWrappers(critic_obs="state").refuse("vector_entry_point", "register another environment")
    with pytest.raises(ConfigError, match=r"critic_obs.*one of|must be one of"):
        PPOConfig().multi_agent(critic_obs="all")
    with pytest.raises(ConfigError, match="has no policy beside its critics"):
        config(DQNConfig(), Pair, "agents").build_learner()
    with pytest.raises(ConfigError, match="set vf_share_layers=False"):
        config(PPOConfig(), Pair, "agents", vf_share_layers=True).build_learner()


def config(algorithm: Any, env: Any, critic_obs: str | None, **model: Any) -> Any:
    settings = {"fcnet_hiddens": [4], **model}
    named = algorithm.framework("numpy").environment(env).rl_module(model_config=settings)
    named = named.env_runners(num_envs_per_env_runner=1).debugging(seed=0)
    return named if critic_obs is None else named.multi_agent(critic_obs=critic_obs)


@pytest.mark.parametrize("critic_obs", ["state", "agents"])
def test_values_depend_on_it_and_policies_act_and_are_saved_without_it(
    critic_obs: str, tmp_path: Path
) -> None:
    learner = config(PPOConfig(), Stateful, critic_obs).build_learner()
    space = learner.module["default_policy"].observation_space
    own = {"obs": np.full((1, 1), 3.0, np.float32)}
    found = []
    for fill in (0.0, 5.0):
        other = gym.spaces.unflatten(space["critic_obs"], np.full(2, fill, np.float32))
        batched = (
            {name: each[None] for name, each in other.items()} if critic_obs == "agents" else other[None]
        )
        seen = {**own, "critic_obs": batched}
        inputs = learner.compute_actions(seen, explore=False)["action_dist_inputs"]
        found.append((inputs, learner.compute_values(seen)))
    (inputs, values), (other_inputs, other_values) = found
    np.testing.assert_array_equal(inputs, other_inputs)
    assert abs(values - other_values) > 1e-3
    policy = learner.get_policy()
    assert [*policy.observation_space] == ["obs"]
    policy.save(tmp_path / "policy.safetensors")
    loaded = plugrad.load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(loaded.predict(own)[0], policy.predict(own)[0])


def test_an_algorithm_trains_evaluates_saves_and_resumes_with_it(tmp_path: Path) -> None:
    settings = {"train_batch_size": 8, "minibatch_size": 8, "num_epochs": 1}
    algorithm = config(PPOConfig(), Stateful, "agents", fcnet_hiddens=[1]).training(**settings).build_algo()
    algorithm.train()
    assert algorithm.evaluate()["episode_return_mean"] >= 0.0
    again = plugrad.Algorithm.from_checkpoint(algorithm.save_to_path(tmp_path / "run"), env=Stateful)
    assert again.config.critic_obs == "agents"
    for each in (algorithm, again):
        each.train()
    for name, weight in algorithm.learner_group.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(weight, again.learner_group.get_weights()["default_policy"][name])
    for each in (algorithm, again):
        each.stop()


class Slippery(gym.Env):
    """One agent, whose reward hangs on a friction that it does not see."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    state_space = gym.spaces.Box(0.0, 9.0, (2,), np.float32)

    def state(self):
        return self.kept

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.kept = np.float32([self.np_random.integers(5), 0.0])
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.kept[1] += 1.0
        return np.zeros(1, np.float32), -float(self.kept[0]), self.kept[1] == 3.0, False, {}


@pytest.mark.parametrize("algorithm", [PPOConfig, SACConfig])
@pytest.mark.parametrize("named", [True, False], ids=["made by name", "spaces of an object"])
def test_the_critic_of_one_agent_sees_the_state_and_its_policy_does_not(
    algorithm: Any, named: bool, tmp_path: Path
) -> None:
    built = config(algorithm(), Slippery, "state", fcnet_hiddens=[1])
    learner = built.build_learner() if named else built.build_learner(env=Slippery())
    space = learner.module["default_policy"].observation_space
    assert {name: part.shape for name, part in space.items()} == {"critic_obs": (2,), "obs": (1,)}
    policy = learner.get_policy()
    assert [*policy.observation_space] == ["obs"]
    policy.save(tmp_path / "policy.safetensors")
    loaded, own = plugrad.load_policy(tmp_path / "policy.safetensors"), {"obs": np.ones(1, np.float32)}
    np.testing.assert_array_equal(loaded.predict(own)[0], policy.predict(own)[0])


def test_the_state_is_that_after_each_step_and_an_algorithm_trains_with_it() -> None:
    settings = {"train_batch_size": 6, "minibatch_size": 6, "num_epochs": 1}
    algorithm = config(PPOConfig(), Slippery, "state", fcnet_hiddens=[1]).training(**settings).build_algo()
    algorithm.train()
    for chunk in algorithm.sample():
        np.testing.assert_array_equal(chunk.observations[:, 1], np.arange(4))
        np.testing.assert_array_equal(chunk.observations[:-1, 0], -chunk.rewards)
    assert algorithm.evaluate(1)["episode_len_mean"] == 3.0
    algorithm.stop()

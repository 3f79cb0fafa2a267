"""What reaches into a running Algorithm after `plugrad migrate`: its env runners, its counters, a learner connector."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from test_migrate_callbacks import algorithm_of, program_of

from plugrad import SingleAgentEpisode
from plugrad.episodes import MultiAgentEpisode
from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig
from plugrad_rllib.connectors import ConnectorV2
from plugrad_rllib.learner_connectors import learner_pieces
from plugrad_rllib.metrics_logger import MetricsLogger

needs.extra("libcst")

CURRICULUM = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune.registry import register_env


class Line(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        assert config["color"] == "blue"
        self.length = config["length"]

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == self.length, False, {}


def longer(env_runner, length):
    env_runner.config.environment(env_config={"length": length})
    env_runner.make_env()
    return env_runner.num_envs


register_env("line", lambda config: Line(config))


class Lessons(RLlibCallback):
    def on_algorithm_init(self, *, algorithm, **kwargs):
        algorithm._counters["lesson"] = 2
        algorithm.metrics.log_value("begun", 1)
        assert algorithm.get_module().observation_space.shape == (1,)

    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        algorithm._counters["lesson"] += 2
        lesson = algorithm._counters["lesson"]
        found = algorithm.env_runner_group.foreach_env_runner(lambda runner: longer(runner, lesson))
        assert found == [2] and algorithm.training_iteration == result["training_iteration"]


config = (
    PPOConfig()
    .environment(ENV, env_config={"length": 2, "color": "blue"})
    .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    .training(train_batch_size=24, minibatch_size=24, num_epochs=1)
    .rl_module(model_config={"fcnet_hiddens": [2]})
    .callbacks(Lessons)
)
"""


@pytest.mark.parametrize("env", ["Line", "'line'"])
def test_a_callback_makes_the_environments_anew_with_other_settings(tmp_path, monkeypatch, env) -> None:
    program, lines = program_of(tmp_path, monkeypatch, CURRICULUM.replace("ENV", env))
    assert lines == []
    algorithm = algorithm_of(program.config)
    lengths = [algorithm.train()["env_runners/episode_len_mean"] for _ in range(3)]
    assert lengths[0] == 2
    assert lengths[0] < lengths[1] < lengths[2] <= 6  # means of the last episodes
    assert {env.unwrapped.length for env in algorithm.env_runner.envs} == {8}
    algorithm.stop()


class Bonus(ConnectorV2):
    """Adds 10 to the rewards of even steps, negates the last observation, and adds a column."""

    def __call__(self, *, rl_module, batch, episodes, metrics, explore=None, shared_data=None, **kwargs):
        assert list(rl_module) == ["default_policy"]
        metrics.log_value("seen", len(episodes))
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            for step, reward in enumerate(episode.get_rewards()):
                if step % 2 == 0:
                    episode.set_rewards(new_data=reward + 10, at_indices=step)
            episode.set_observations(new_data=-episode.get_observations(-1), at_indices=-1)
            weights = episode.get_rewards(slice(None)) * 2
            self.add_n_batch_items(batch, "weights", weights, len(episode), episode)
        return batch


def line(steps: int) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        observations=np.arange(steps + 1, dtype=np.float32)[:, None] + 1,
        actions=np.zeros(steps, np.int64),
        rewards=np.arange(steps, dtype=np.float32),
        terminated=True,
    )


def learner_with(piece):
    spaces = gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Discrete(2)
    config = PPOConfig(observation_space=spaces[0], action_space=spaces[1], backend="numpy")
    return config.learners(learner_connector=learner_pieces(lambda *given: piece)).build_learner()


def test_a_piece_of_a_learner_connector_sets_rewards_and_adds_columns() -> None:
    episodes = [line(3), line(2)]
    learner = learner_with(Bonus())
    batch = learner.run_connectors(episodes)["default_policy"]
    rewards = np.array([10, 1, 12, 10, 1], np.float32)
    np.testing.assert_array_equal(batch["rewards"], rewards)
    np.testing.assert_array_equal(batch["weights"], 2 * rewards)
    np.testing.assert_array_equal(episodes[0].rewards, [0, 1, 2])  # those of the caller
    np.testing.assert_array_equal(episodes[0].observations[-1], [4])


def test_a_piece_sees_the_part_of_each_agent() -> None:
    seen = []

    class Look(Bonus):
        def __call__(self, *, episodes, batch, **others):
            seen.extend((each.agent_id, len(each), each.get_observations(0)[0]) for each in episodes)
            return super().__call__(episodes=episodes, batch=batch, **others)

    whole = MultiAgentEpisode(
        agent_episodes={"a": line(2), "b": line(1)}, agent_to_module=lambda agent: "default_policy"
    )
    batch = learner_with([Look()]).run_connectors([whole])["default_policy"]
    assert seen == [("a", 2, 1.0), ("b", 1, 1.0)]
    np.testing.assert_array_equal(batch["rewards"], [10, 1, 10])


def test_a_column_has_one_item_for_each_step() -> None:
    class Short(ConnectorV2):
        def __call__(self, *, episodes, batch, **others):
            self.add_n_batch_items(batch, "weights", [1.0], 1, episodes[0])
            return batch

    with pytest.raises(ConfigError, match=r"'weights'\): 1 items for an episode of 3 steps"):
        learner_with(Short()).run_connectors([line(3)])

    class Own(ConnectorV2):
        def __call__(self, *, episodes, batch, **others):
            return {"mine": [1]}

    with pytest.raises(ConfigError, match="Own returned a batch with mine: add columns by"):
        learner_with(Own()).run_connectors([line(3)])


def test_an_array_is_logged_as_a_list_where_no_reduction_is_given() -> None:
    logger = MetricsLogger()
    for number in (1, 2):
        logger.log_value("map", np.full((2, 2), number), reduce=None, window=10, percentiles=[75])
        logger.log_value("length", number, reduce=None)
    assert [each[0, 0] for each in logger.peek("map")] == [1, 2]
    assert logger.peek("length") == 1.5


def test_a_piece_gives_the_module_another_observation_by_add_batch_item() -> None:
    class Tenth(ConnectorV2):
        def __call__(self, *, episodes, batch, **others):
            for episode in self.single_agent_episode_iterator(episodes):
                self.add_batch_item(
                    batch,
                    column="obs",
                    item_to_add=episode.get_observations(-1) / 10,
                    single_agent_episode=episode,
                )
            return batch

    plain, seen = gym.make("CartPole-v1"), Tenth(gym.make("CartPole-v1"))
    np.testing.assert_allclose(seen.reset(seed=1)[0], plain.reset(seed=1)[0] / 10)
    np.testing.assert_allclose(seen.step(0)[0], plain.step(0)[0] / 10)
    with pytest.raises(
        ConfigError, match=r"add_batch_item\('actions'\): a piece around an environment gives 'obs' alone"
    ):
        Tenth.add_batch_item({}, "actions", 0, None)


OWN_DISTRIBUTION = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.framework import try_import_torch

torch, nn = try_import_torch()


def sharpened(temperature):
    class Sharp(TorchCategorical):
        def __init__(self, logits=None, probs=None):
            logits /= temperature
            super().__init__(logits, probs)

    return Sharp


class Module(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.pi = nn.Linear(self.observation_space.shape[0], self.action_space.n)
        self.vf = nn.Linear(self.observation_space.shape[0], 1)
        self.action_dist_cls = sharpened(0.25)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(batch[Columns.OBS])}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch[Columns.OBS]).squeeze(-1)


config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=0)
    .training(train_batch_size=32, minibatch_size=32, num_epochs=2)
    .rl_module(rl_module_spec=RLModuleSpec(module_class=Module))
)
"""


def test_a_modules_own_distribution_acts_and_trains_by_its_probabilities(tmp_path, monkeypatch) -> None:
    torch = needs.backend("torch")
    program, lines = program_of(tmp_path, monkeypatch, OWN_DISTRIBUTION)
    assert lines == []
    algorithm = program.config.framework("torch", compile="none").build_algo()
    (episode, *_) = algorithm.sample(4)
    inputs = episode.extra_model_outputs["action_dist_inputs"]
    sharp = torch.log_softmax(torch.as_tensor(inputs) * 4, -1).numpy()
    logp = episode.extra_model_outputs["action_logp"]
    np.testing.assert_allclose(logp, sharp[np.arange(len(episode)), episode.actions], rtol=1e-5)
    weights = algorithm.learner_group.get_weights()["default_policy"]
    np.testing.assert_allclose(
        inputs, episode.observations[:-1] @ weights["pi.weight"].T + weights["pi.bias"], rtol=1e-4, atol=1e-6
    )
    assert np.isfinite(algorithm.train()["learners/default_policy/policy_loss"])
    algorithm.stop()

"""Two robots meet in a corridor: a program for RLlib 2.60, with what its documentation offers.

Each robot stands on a line of cells and gets a reward when both stand in the same cell. They have an own module, an own
loss and an own connector; callbacks log how long a meeting takes; evaluation has a longer corridor. Tune tries two
learning rates, the best trial is restored, trained on, and serves actions.

    python program.py --iterations 2 --storage FOLDER
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module.observation_preprocessor import (
    SingleAgentObservationPreprocessor,
)
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.utils.annotations import override
from ray.rllib.utils.framework import try_import_torch
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_RETURN_MEAN,
    EVALUATION_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from ray.tune.registry import register_env

torch, nn = try_import_torch()

ROBOTS = ("left", "right")
LEFT, STAY, RIGHT = range(3)


class Meeting(MultiAgentEnv):
    """Two robots on a line; an episode ends when they meet, or after 20 steps."""

    def __init__(self, config=None):
        super().__init__()
        config = config or {}
        self.length = config.get("length", 5)
        self.agents = self.possible_agents = list(ROBOTS)
        self.observation_spaces = {
            robot: gym.spaces.Box(0.0, 100.0, (2,), np.float32) for robot in ROBOTS
        }
        self.action_spaces = {robot: gym.spaces.Discrete(3) for robot in ROBOTS}
        self.cells = {}
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.cells = {"left": 0, "right": self.length - 1}
        self.steps = 0
        return self.observations(), {}

    def step(self, action_dict):
        self.steps += 1
        for robot, action in action_dict.items():
            moved = self.cells[robot] + int(action) - 1
            self.cells[robot] = min(max(moved, 0), self.length - 1)
        have_met = self.cells["left"] >= self.cells["right"]
        reward = 1.0 if have_met else -0.1
        rewards = dict.fromkeys(ROBOTS, reward)
        terminateds = {"__all__": have_met}
        truncateds = {"__all__": not have_met and self.steps >= 20}
        return self.observations(), rewards, terminateds, truncateds, {}

    def observations(self):
        left, right = self.cells["left"], self.cells["right"]
        return {
            "left": np.array([left, right], np.float32),
            "right": np.array([right, left], np.float32),
        }


class ScaleCells(SingleAgentObservationPreprocessor):
    """Cells as numbers from 0 to 1, whatever the corridor's length."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        whole = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        return gym.spaces.Dict(dict.fromkeys(input_observation_space.spaces, whole))

    def preprocess(self, observation, episode):
        return (observation / 10.0).astype(np.float32)


class RobotModule(TorchRLModule, ValueFunctionAPI):
    """A trunk with a head for the policy and one for the value."""

    @override(TorchRLModule)
    def setup(self):
        width = self.model_config.get("width", 8)
        self.trunk = nn.Sequential(
            nn.Linear(self.observation_space.shape[0], width),
            nn.Tanh(),
        )
        self.policy_head = nn.Linear(width, self.action_space.n)
        self.value_head = nn.Linear(width, 1)

    @override(TorchRLModule)
    def _forward(self, batch, **kwargs):
        hidden = self.trunk(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy_head(hidden)}

    @override(TorchRLModule)
    def _forward_train(self, batch, **kwargs):
        hidden = self.trunk(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self.policy_head(hidden),
            Columns.EMBEDDINGS: hidden,
        }

    @override(ValueFunctionAPI)
    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings = self.trunk(batch[Columns.OBS])
        return self.value_head(embeddings).squeeze(-1)


class WeightPenaltyLearner(PPOTorchLearner):
    """PPO's loss, and a penalty for large weights of the policy's head."""

    @override(PPOTorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id,
            config=config,
            batch=batch,
            fwd_out=fwd_out,
        )
        penalty = torch.mean(self.module[module_id].policy_head.weight**2)
        self.metrics.log_value((module_id, "weight_penalty"), penalty, window=1)
        return loss + config.learner_config_dict["penalty_coeff"] * penalty


class MeetingMetrics(RLlibCallback):
    """How many steps a meeting takes, and how many there were."""

    def on_episode_start(self, *, episode, metrics_logger, **kwargs):
        episode.custom_data["stays"] = 0

    def on_episode_step(self, *, episode, metrics_logger, **kwargs):
        actions = episode.get_actions(-1)
        episode.custom_data["stays"] += sum(int(action) == STAY for action in actions.values())

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value("steps_to_meet", len(episode), window=20)
        metrics_logger.log_value("stays", episode.custom_data["stays"], reduce="mean", window=20)

    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        result["robots"] = len(ROBOTS)


def make_config(length, width):
    """PPO for both robots, each with a policy of its own."""
    config = (
        PPOConfig()
        .environment("meeting", env_config={"length": length})
        .framework("torch")
        .env_runners(
            num_env_runners=0,
            env_to_module_connector=lambda env, spaces, device: ScaleCells(multi_agent=True),
        )
        .multi_agent(
            policies=set(ROBOTS),
            policy_mapping_fn=lambda agent_id, episode, **kwargs: agent_id,
        )
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={
                    robot: RLModuleSpec(
                        module_class=RobotModule,
                        model_config={"width": width},
                    )
                    for robot in ROBOTS
                }
            )
        )
        .learners(num_learners=0)
        .callbacks(MeetingMetrics)
        .evaluation(
            evaluation_interval=1,
            evaluation_duration=2,
            evaluation_duration_unit="episodes",
            evaluation_config=AlgorithmConfig.overrides(env_config={"length": length + 2}),
        )
        .debugging(seed=0)
    )
    config.training(
        learner_class=WeightPenaltyLearner,
        learner_config_dict={"penalty_coeff": 0.001},
        train_batch_size_per_learner=128,
        minibatch_size=64,
        num_epochs=2,
        gamma=0.95,
        entropy_coeff=0.01,
        lr=tune.grid_search([0.001, 0.01]),
    )
    return config


def search(config, iterations, storage):
    """Train a trial for each learning rate; the checkpoint of the best."""
    metric = f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}"
    tuner = tune.Tuner(
        "PPO",
        param_space=config,
        tune_config=tune.TuneConfig(metric=metric, mode="max", max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="meeting",
            storage_path=str(storage),
            stop={"training_iteration": iterations},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        ),
    )
    best = tuner.fit().get_best_result()
    print("best learning rate", best.config["lr"])
    return best.checkpoint.path


def train_on(path, iterations):
    """Go on from a checkpoint."""
    algorithm = Algorithm.from_checkpoint(path)
    for _ in range(iterations):
        results = algorithm.train()
        print(
            results[NUM_ENV_STEPS_SAMPLED_LIFETIME],
            results[ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN],
            results[ENV_RUNNER_RESULTS]["steps_to_meet"],
            results[EVALUATION_RESULTS][ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN],
            results["robots"],
        )
    return algorithm


def serve(algorithm, length):
    """One episode of the greedy policies, without an env runner."""
    env = Meeting({"length": length})
    observations, _ = env.reset()
    total, is_over = 0.0, False
    while not is_over:
        actions = {}
        for robot, observation in observations.items():
            module = algorithm.get_module(robot)
            rows = torch.from_numpy((observation / 10.0).astype(np.float32)[None])
            with torch.no_grad():
                outputs = module.forward_inference({Columns.OBS: rows})
            actions[robot] = int(outputs[Columns.ACTION_DIST_INPUTS].argmax(-1)[0])
        observations, rewards, terminateds, truncateds, _ = env.step(actions)
        total += sum(rewards.values())
        is_over = terminateds["__all__"] or truncateds["__all__"]
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--storage", type=Path, default=Path("results").resolve())
    args = parser.parse_args()

    register_env("meeting", lambda config: Meeting(config))
    path = search(make_config(args.length, args.width), args.iterations, args.storage)
    algorithm = train_on(path, args.iterations)
    print("return of a served episode", serve(algorithm, args.length))
    algorithm.stop()

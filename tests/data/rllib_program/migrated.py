"""Two robots meet in a corridor: a program for RLlib 2.60, with what its documentation offers.

Each robot stands on a line of cells and gets a reward when both stand in the same cell. They have an own module, an own
loss and an own connector; callbacks log how long a meeting takes; evaluation has a longer corridor. Tune tries two
learning rates, the best trial is restored, trained on, and serves actions.

    python program.py --iterations 2 --storage FOLDER
"""

from dataclasses import dataclass

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
from ray import tune

import torch
from torch import nn

from plugrad import Columns, MultiRLModuleSpec, RLModuleSpec
from plugrad_ppo import PPOConfig, PPOLearner as PPOTorchLearner
from plugrad_rllib.callbacks import RLlibCallback
from plugrad_rllib.connectors import SingleAgentObservationPreprocessor
from plugrad_rllib.tune import trainable
from plugrad_torch import TorchRLModule


@dataclass(frozen=True, kw_only=True)
class OwnPPOConfig(PPOConfig):
    penalty_coeff: float = 0.001

ROBOTS = ("left", "right")
LEFT, STAY, RIGHT = range(3)


class Meeting:
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


class RobotModule(TorchRLModule):
    """A trunk with a head for the policy and one for the value."""

    def setup(self):
        width = self.model_config.get("width", 8)
        self.trunk = nn.Sequential(
            nn.Linear(self.observation_space.shape[0], width),
            nn.Tanh(),
        )
        self.policy_head = nn.Linear(width, self.action_space.n)
        self.value_head = nn.Linear(width, 1)

    def _forward(self, batch, **kwargs):
        hidden = self.trunk(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy_head(hidden)}

    def _forward_train(self, batch, **kwargs):
        hidden = self.trunk(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self.policy_head(hidden),
            Columns.EMBEDDINGS: hidden,
        }

    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings = self.trunk(batch[Columns.OBS])
        return self.value_head(embeddings).squeeze(-1)

    def forward_train(self, batch, **kwargs):
        outputs = super().forward_train(batch, **kwargs)
        values = self.compute_values(batch, embeddings=outputs.get(Columns.EMBEDDINGS))
        return {**outputs, Columns.VF_PREDS: values}


class WeightPenaltyLearner(PPOTorchLearner):
    """PPO's loss, and a penalty for large weights of the policy's head."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id,
            config=config,
            batch=batch,
            fwd_out=fwd_out,
        )
        penalty = torch.mean(self.module[module_id].policy_head.weight**2)
        self.metrics.log_value((module_id, "weight_penalty"), penalty, window=1)
        return loss + config.penalty_coeff * penalty


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
        OwnPPOConfig.rllib_defaults()
        .environment(make_meeting, env_config={"length": length})
        .framework("torch")
        .env_runners(
            num_env_runners=0,
            env_wrappers=[[ScaleCells, {"multi_agent": True}]],
        )
        .multi_agent(
            policies=set(ROBOTS),
            agent_to_module=lambda agent_id, episode, **kwargs: agent_id,
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
        .plugins(MeetingMetrics)
        .evaluation(
            evaluation_interval=1,
            evaluation_num_episodes=2,
            evaluation_env_config={"length": length + 2},
        )
        .debugging(seed=0)
    )
    config = config.training(
        penalty_coeff=0.001,
        train_batch_size=128,
        minibatch_size=64,
        num_epochs=2,
        gamma=0.95,
        entropy_coeff=0.01,
    ).learners(learner_class=WeightPenaltyLearner)
    return config


def search(config, iterations, storage):
    """Train a trial for each learning rate; the checkpoint of the best."""
    metric = "env_runners/episode_return_mean"
    tuner = tune.Tuner(
        trainable(config),
        param_space={"lr": tune.grid_search([0.001, 0.01])},
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


def train_on(config, path, iterations):
    """Go on from a checkpoint."""
    algorithm = config.build_algo()
    algorithm.restore_from_path(path)
    for _ in range(iterations):
        results = algorithm.train()
        print(
            results["num_env_steps_sampled_lifetime"],
            results["env_runners/episode_return_mean"],
            results["env_runners/steps_to_meet"],
            results["evaluation/episode_return_mean"],
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
            rows = (observation / 10.0).astype(np.float32)
            actions[robot] = int(algorithm.get_policy(robot).predict(rows)[0])
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

    def make_meeting(**config):
        return Meeting(config)
    config = make_config(args.length, args.width)
    path = search(config, args.iterations, args.storage)
    algorithm = train_on(config, path, args.iterations)
    print("return of a served episode", serve(algorithm, args.length))
    algorithm.stop()

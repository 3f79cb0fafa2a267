"""Behaviour cloning from episodes on disk: write them once in plugrad's format, then train without an environment."""

from pathlib import Path
from tempfile import TemporaryDirectory

import click
import gymnasium as gym
import numpy as np

from plugrad import SingleAgentEpisode
from plugrad.offline import save_episodes
from plugrad_bc import BCConfig


def demonstrate(env: gym.Env, seed: int) -> SingleAgentEpisode:
    """Play one episode with a rule: push in the direction in which the pole falls.

    Args:
        env: CartPole-v1.
        seed: seed of the episode.

    Returns:
        The episode.
    """
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, angle, angular_velocity = observation
        actions.append(int(angle + 0.5 * angular_velocity > 0.0))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
    return SingleAgentEpisode(
        observations=np.stack(observations),
        actions=np.array(actions),
        rewards=np.array(rewards, np.float32),
        terminated=terminated,
        truncated=truncated,
    )


@click.command()
@click.option("--backend", default="torch")
def main(backend: str) -> None:
    env = gym.make("CartPole-v1")
    episodes = [demonstrate(env, seed) for seed in range(10)]
    with TemporaryDirectory() as folder:
        data = Path(folder, "demonstrations")
        save_episodes(data, episodes, observation_space=env.observation_space, action_space=env.action_space)
        algorithm = (
            BCConfig()
            .environment("CartPole-v1")  # only for evaluation
            .framework(backend)
            .training(input_=str(data), lr=3e-3)
            .evaluation(evaluation_interval=5, evaluation_num_episodes=10)
            .debugging(seed=0)
            .build_algo()
        )
        print("demonstrated", np.mean([each.rewards.sum() for each in episodes]))
        for _ in range(5):
            results = algorithm.train()
            print("loss", results["learners/default_policy/total_loss"])
        print("cloned", results["evaluation/episode_return_mean"])
        algorithm.stop()


if __name__ == "__main__":
    main()

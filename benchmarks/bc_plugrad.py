"""One run of plugrad's BC on 20 episodes of a PPO that solved CartPole-v1: `python bc_plugrad.py BACKEND SEED`.

The last line printed is JSON. Time starts just before BC is built. It excludes evaluations, imports and the PPO.
"""

import json
import sys
from tempfile import TemporaryDirectory
from time import perf_counter

from cartpole import solved
from contestant_plugrad import use_one_thread

from plugrad.offline import EpisodeData, save_episodes
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig

EPISODES = 20
LIMIT = 100
"""Iterations after which a run counts as not solved."""
EVALUATION_SEED = 1000


def expert(backend: str, seed: int) -> EpisodeData:
    """Train PPO with its defaults until it solves the task, and record episodes of it."""
    config = PPOConfig().environment("CartPole-v1").framework(backend).debugging(seed=seed)
    algorithm = config.build_algo()
    while not solved(float(algorithm.train().get("env_runners/episode_return_mean", 0.0))):
        pass
    data = algorithm.record(EPISODES)
    algorithm.stop()
    return data


def main(backend: str, seed: str) -> None:
    use_one_thread(backend)
    data = expert(backend, int(seed))
    with TemporaryDirectory() as path:
        save_episodes(
            path, data.episodes, observation_space=data.observation_space, action_space=data.action_space
        )
        print(json.dumps(imitate(backend, int(seed), path)))


def imitate(backend: str, seed: int, path: str) -> dict[str, object]:
    """Train until an evaluation reaches the goal. It evaluates after each iteration."""
    start, judging = perf_counter(), 0.0
    config = BCConfig().environment("CartPole-v1").framework(backend).training(input_=path)
    algorithm = config.evaluation(evaluation_interval=None).debugging(seed=seed).build_algo()
    mean, learning = 0.0, 0.0
    while not solved(mean) and algorithm.iteration < LIMIT:
        results = algorithm.train()
        learning += float(results["time/learn"])
        before = perf_counter()
        mean = algorithm.evaluate(EPISODES, seed=EVALUATION_SEED)["episode_return_mean"]
        judging += perf_counter() - before
    seconds = perf_counter() - start - judging
    mode = algorithm.learner_group.foreach_learner(lambda learner: learner.update_mode)[0]
    steps = int(results["num_env_steps_sampled_lifetime"])
    return {"solved": solved(mean), "seconds": seconds, "learning": learning, "steps": steps, "mode": mode}


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One run of plugrad's DQN on CartPole-v1 until it is solved: `python dqn_plugrad.py BACKEND SETTINGS SEED`.

The last line printed is JSON. Time starts just before the algorithm is built. It excludes evaluations and imports.
"""

import json
import sys
from time import perf_counter

import dqn
from contestant_plugrad import use_one_thread

from plugrad_dqn import DQNConfig


def make_config(backend: str, settings: str, seed: int) -> DQNConfig:
    """Make a config with plugrad's defaults and eight environments, or with the settings of rl-zoo."""
    config = DQNConfig().environment("CartPole-v1").framework(backend).debugging(seed=seed)
    if settings == "default":
        return config
    return (
        config.env_runners(num_envs_per_env_runner=1, rollout_fragment_length=dqn.STEPS)
        .rl_module(model_config={"fcnet_hiddens": dqn.HIDDENS})
        .training(
            lr=dqn.LR,
            gamma=dqn.GAMMA,
            train_batch_size=dqn.GRADIENT_STEPS * dqn.BATCH_SIZE,
            minibatch_size=dqn.BATCH_SIZE,
            num_steps_sampled_before_learning_starts=dqn.LEARNING_STARTS,
            target_network_update_freq=dqn.TARGET_UPDATE,
            epsilon=[[0, 1.0], [int(dqn.EXPLORATION_FRACTION * dqn.END), dqn.FINAL_EPSILON]],
            replay_buffer_config={"capacity": dqn.CAPACITY},
            grad_clip=10.0,
            double_q=False,
            dueling=False,
        )
    )


def main(backend: str, settings: str, seed: str) -> None:
    use_one_thread(backend)
    __import__({"torch": "plugrad_torch", "tf2": "plugrad_tf2"}[backend])  # imports are not timed
    start = perf_counter()
    algorithm = make_config(backend, settings, int(seed)).build_algo()
    steps, mean, learning, judging = 0, 0.0, 0.0, 0.0
    while mean < dqn.GOAL and steps < dqn.LIMIT:
        results = algorithm.train()
        steps = int(results["num_env_steps_sampled_lifetime"])
        learning += float(results["time/learn"])
        if steps % (dqn.EVALUATE_EVERY * dqn.STEPS) == 0:
            before = perf_counter()
            mean = algorithm.evaluate(dqn.EPISODES, seed=dqn.EVALUATION_SEED)["episode_return_mean"]
            judging += perf_counter() - before
    seconds = perf_counter() - start - judging
    mode = algorithm.learner_group.foreach_learner(lambda learner: learner.update_mode)[0]
    algorithm.stop()
    found = {"solved": mean >= dqn.GOAL, "seconds": seconds, "learning": learning}
    print(json.dumps({**found, "steps": steps, "mode": mode}))


if __name__ == "__main__":
    main(*sys.argv[1:])

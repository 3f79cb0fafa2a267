"""One run of stable-baselines3's DQN on CartPole-v1 until it is solved, in the peers' venv: `python dqn_sb3.py SEED`.

The last line printed is JSON. Time starts just before the algorithm is built. It excludes evaluations and imports.
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from time import perf_counter

import dqn
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


def make_model(seed: int) -> DQN:
    """Make a model with the settings of rl-zoo."""
    return DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=seed),
        learning_rate=dqn.LR,
        batch_size=dqn.BATCH_SIZE,
        buffer_size=dqn.CAPACITY,
        learning_starts=dqn.LEARNING_STARTS,
        gamma=dqn.GAMMA,
        target_update_interval=dqn.TARGET_UPDATE,
        train_freq=dqn.STEPS,
        gradient_steps=dqn.GRADIENT_STEPS,
        exploration_fraction=dqn.EXPLORATION_FRACTION,
        exploration_final_eps=dqn.FINAL_EPSILON,
        policy_kwargs={"net_arch": dqn.HIDDENS},
        seed=seed,
        device="cpu",
    )


def mean_return(model: DQN) -> float:
    """Return the mean return of greedy episodes."""
    env = make_vec_env("CartPole-v1", n_envs=dqn.EVALUATION_ENVS, seed=dqn.EVALUATION_SEED)
    return float(evaluate_policy(model, env, n_eval_episodes=dqn.EPISODES, deterministic=True)[0])


def main(seed: str) -> None:
    torch.set_num_threads(1)
    start = perf_counter()
    model = make_model(int(seed))
    mean, learning, judging, rounds = 0.0, 0.0, 0.0, 0
    _, callback = model._setup_learn(dqn.END, None)
    # DQN.learn's own loop, without printing, and with an evaluation now and then.
    while mean < dqn.GOAL and model.num_timesteps < dqn.LIMIT:
        model.collect_rollouts(
            model.env,
            callback,
            model.train_freq,
            model.replay_buffer,
            action_noise=None,
            learning_starts=model.learning_starts,
            log_interval=None,
        )
        before = perf_counter()
        if model.num_timesteps > model.learning_starts:
            model.train(gradient_steps=dqn.GRADIENT_STEPS, batch_size=dqn.BATCH_SIZE)
        learning += perf_counter() - before
        rounds += 1
        if rounds % dqn.EVALUATE_EVERY == 0:
            before = perf_counter()
            mean = mean_return(model)
            judging += perf_counter() - before
    seconds = perf_counter() - start - judging
    mode = f"stable-baselines3 {stable_baselines3.__version__}"
    found = {"solved": mean >= dqn.GOAL, "seconds": seconds, "learning": learning}
    print(json.dumps({**found, "steps": model.num_timesteps, "mode": mode}))


if __name__ == "__main__":
    main(*sys.argv[1:])

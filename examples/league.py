"""A league: PPO learns Connect Four against frozen copies of itself, which join while it trains.

The learner's opponent and side are drawn for each game. The first opponent moves at random. Whenever the learner wins
clearly, a frozen copy of it joins the opponents. The learner plays against all of them, so that it does not forget how
to beat earlier ones.
"""

from typing import Any

import click
import numpy as np
from pettingzoo.classic import connect_four_v3

from plugrad import RLModuleSpec
from plugrad.policy import Policy
from plugrad.rl_module.random_module import RandomRLModule
from plugrad_ppo import PPOConfig

LEARNER, RANDOM = "learner", "random"
SIDES = ("player_0", "player_1")


def agent_to_module(agent_id: str, episode: Any) -> str:
    """Draw the learner's side, and its opponent among all other modules: both agents of a game draw the same."""
    rng = np.random.default_rng(episode.seed)
    side = SIDES[rng.integers(2)]
    opponents = [module_id for module_id in episode.module_ids if module_id != LEARNER]
    opponent = opponents[rng.integers(len(opponents))]
    return LEARNER if agent_id == side else opponent


def make_config(backend: str, steps: int) -> PPOConfig:
    """The settings of the league, with `steps` moves per update."""
    return (
        PPOConfig()
        .environment(connect_four_v3.env)
        .framework(backend)
        .multi_agent(
            policies={LEARNER: None, RANDOM: RLModuleSpec(module_class=RandomRLModule)},
            agent_to_module=agent_to_module,
            policies_to_train=[LEARNER],
        )
        .rl_module(model_config={"fcnet_hiddens": [128, 128]})
        .env_runners(num_envs_per_env_runner=32)
        .training(
            train_batch_size=steps,
            minibatch_size=256,
            num_epochs=4,
            lr=5e-4,
            gamma=0.99,
            lambda_=0.95,
            entropy_coeff=0.01,
        )
        .debugging(seed=0)
    )


def win_rate(policy: Policy, games: int, *, seed: int = 0) -> float:
    """Play against random moves, on both sides in turn.

    Args:
        policy: the learner's policy.
        games: number of games.
        seed: seed of the random moves.

    Returns:
        The share of games that the policy won; a draw counts half.
    """
    env, rng = connect_four_v3.env(), np.random.default_rng(seed)
    score = 0.0
    for game in range(games):
        env.reset()
        side = SIDES[game % 2]
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            if terminated or truncated:
                score += 0.5 + 0.5 * reward if agent == side else 0.0
                action = None
            elif agent == side:
                action, _ = policy.predict(observation)
            else:
                action = rng.choice(np.flatnonzero(observation["action_mask"]))
            env.step(action)
    return score / games


@click.command()
@click.option("--backend", default="torch")
@click.option("--iterations", default=120)
@click.option("--steps", default=4096, help="Moves per iteration.")
@click.option("--games", default=1000, help="Games against random moves at the end.")
@click.option("--mean-to-join", default=0.6, help="Mean result, from -1 to 1, at which a frozen copy joins.")
@click.option("--window", default=5, help="Iterations over which results are averaged.")
def main(backend: str, iterations: int, steps: int, games: int, mean_to_join: float, window: int) -> None:
    algorithm = make_config(backend, steps).build_algo()
    recent: list[float] = []
    for iteration in range(1, iterations + 1):
        results = algorithm.train()
        recent.append(results[f"env_runners/module_episode_returns_mean/{LEARNER}"])
        if len(recent) >= window and np.mean(recent[-window:]) >= mean_to_join:
            algorithm.add_module(f"past-{iteration}", from_module=LEARNER)
            recent.clear()
            print("iteration", iteration, "opponents", len(algorithm.learner_group.get_weights()) - 1)
    print("won against random moves", win_rate(algorithm.get_policy(LEARNER), games))
    algorithm.stop()


if __name__ == "__main__":
    main()

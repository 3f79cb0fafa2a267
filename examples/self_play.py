"""Self-play: a policy trains against snapshots of itself, which are added as modules during training.

The game is rock, paper, scissors, where winning with rock counts twice. The equilibrium is (1/4, 1/2, 1/4). The player
trains against all its snapshots, so that it does not forget how to beat earlier ones.
"""

import click
import gymnasium as gym
import numpy as np

from plugrad import Columns, Learner, MultiRLModuleSpec, RLModuleSpec
from plugrad_ppo import PPOConfig

PAYOFF = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], np.float32)  # rock, paper, scissors against the same
OBSERVATION = np.ones((512, 1), np.float32)  # there is nothing to see
SPEC = RLModuleSpec(
    observation_space=gym.spaces.Box(0.0, 1.0, (1,), np.float32), action_space=gym.spaces.Discrete(3)
)


def strategy(learner: Learner, module_id: str) -> np.ndarray:
    """Compute a policy's probabilities of rock, paper and scissors.

    Args:
        learner: the learner that has the module.
        module_id: id of the module.

    Returns:
        Probabilities float32 [3].
    """
    logits = learner.compute_actions(OBSERVATION[:1], module_id=module_id)[Columns.ACTION_DIST_INPUTS][0]
    return np.exp(logits) / np.exp(logits).sum()


def exploitability(mixed: np.ndarray) -> float:
    """Compute what the best response wins against a strategy; 0 at the equilibrium."""
    return float((PAYOFF @ mixed).max())


@click.command()
@click.option("--backend", default="torch")
@click.option("--generations", default=8)
def main(backend: str, generations: int) -> None:
    config = (
        PPOConfig()
        .framework(backend)
        .training(lr=0.005, num_epochs=4, minibatch_size=512, entropy_coeff=0.3)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"player": SPEC, "past-0": SPEC}))
        .multi_agent(policies_to_train=["player"])
        .debugging(seed=0)
    )
    learner = config.build_learner()
    rng = np.random.default_rng(0)
    for generation in range(1, generations + 1):
        for _ in range(8):
            opponents = [f"past-{number}" for number in rng.integers(generation, size=8)]
            mine = learner.compute_actions(OBSERVATION, module_id="player")
            theirs = [learner.compute_actions(OBSERVATION[::8], module_id=each) for each in opponents]
            answers = np.concatenate([each[Columns.ACTIONS] for each in theirs])
            reward = PAYOFF[mine[Columns.ACTIONS], answers]
            advantages = reward - reward.mean()
            learner.update(
                {
                    "player": {
                        **mine,
                        Columns.OBS: OBSERVATION,
                        Columns.ADVANTAGES: advantages,
                        Columns.VALUE_TARGETS: reward,
                    }
                }
            )
        learner.add_module(module_id=f"past-{generation}", module_spec=SPEC)
        learner.set_weights({f"past-{generation}": learner.get_weights()["player"]})

    past = [strategy(learner, module_id) for module_id in learner.module if module_id.startswith("past-")]
    print("modules", len(learner.module))
    print("first", exploitability(past[1]))
    print("average", exploitability(np.mean(past[len(past) // 3 :], axis=0)))


if __name__ == "__main__":
    main()

"""A character model learns to write by GRPO, with a loss of its own and two verbs: forward_backward and optim_step.

It goes on from a first letter, and is rewarded where a vowel follows a consonant or the other way round. The words of
one prompt are a group: what is better than the group's mean becomes more likely. Each group is one forward_backward,
however many rows it has, and all groups are one step. The code is the same for every backend, and for learners in other
processes: a LearnerGroup has the same verbs.

Source: Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, equation 3, without the penalty for leaving a reference.
"""

from collections.abc import Mapping
from typing import Any

import click
import gymnasium as gym
import numpy as np

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, LearnerProtocol
from plugrad.losses import grpo_surrogate, mean_over_rows
from plugrad_ppo import PPOConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = np.isin([*LETTERS], [*"aeiou"])
SEEN, WRITTEN, GROUP = 3, 8, 16


def grpo_loss(
    learner: LearnerProtocol, module_id: str, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
) -> Any:
    """The clipped surrogate of each letter, averaged over the letters of the call."""
    ops = learner.ops
    distribution_class = learner.module[module_id].get_train_action_dist_cls()
    policy = distribution_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    logp = policy.logp(batch[Columns.ACTIONS])
    surrogate = grpo_surrogate(ops, logp, batch[Columns.ACTION_LOGP], batch[Columns.ADVANTAGES])
    learner.register_metric(module_id, "entropy", mean_over_rows(ops, policy.entropy(), batch))
    return -mean_over_rows(ops, surrogate, batch)


def last_letters(words: np.ndarray) -> np.ndarray:
    """What the model sees of each word: its last letters, each as a vector with a single one."""
    padded = np.pad(words, [(0, 0), (SEEN, 0)], constant_values=len(LETTERS))[:, -SEEN:]
    return np.eye(len(LETTERS) + 1, dtype=np.float32)[padded].reshape(len(words), -1)


def write(learner: Learner, first: int) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """A group of words that begin with a letter, and the columns of each further letter."""
    words, columns = np.full((GROUP, 1), first), []
    for _ in range(WRITTEN):
        obs = last_letters(words)
        acted = learner.compute_actions(obs, values=False)
        columns.append({name: acted[name] for name in (Columns.ACTIONS, Columns.ACTION_LOGP)})
        columns[-1][Columns.OBS] = obs
        words = np.append(words, acted[Columns.ACTIONS][:, None], axis=1)
    return words, columns


def group_batch(learner: Learner, first: int) -> tuple[dict[str, Any], float]:
    """The batch of one prompt, and its mean reward."""
    words, columns = write(learner, first)
    is_vowel = VOWELS[words]
    rewards = (is_vowel[:, 1:] != is_vowel[:, :-1]).mean(1)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    batch = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    batch[Columns.ADVANTAGES] = np.tile(advantages, WRITTEN).astype(np.float32)
    return batch, float(rewards.mean())


@click.command()
@click.option("--backend", default="torch")
@click.option("--steps", default=40)
@click.option("--prompts", default=4, help="Groups of each step.")
def main(backend: str, steps: int, prompts: int) -> None:
    size = SEEN * (len(LETTERS) + 1)
    config = (
        PPOConfig()  # its network; the loss is given with each call
        .environment(
            observation_space=gym.spaces.Box(0.0, 1.0, (size,), np.float32),
            action_space=gym.spaces.Discrete(len(LETTERS)),
        )
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [32]})
        .training(lr=1e-2, grad_clip=1.0)
        .debugging(seed=0)
    )
    learner, rng = config.build_learner(), np.random.default_rng(0)
    for step in range(steps):
        rewards = []
        for first in rng.choice(len(LETTERS), prompts, replace=False):
            batch, reward = group_batch(learner, int(first))
            rewards.append(reward)
            learner.forward_backward(batch, grpo_loss)
        results = learner.optim_step().result()[DEFAULT_MODULE_ID]
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step} entropy {results['entropy']:.3f} reward {np.mean(rewards):.3f}")
    words, _ = write(learner, LETTERS.index("p"))
    print(*("".join(LETTERS[letter] for letter in word) for word in words[:5]))


if __name__ == "__main__":
    main()

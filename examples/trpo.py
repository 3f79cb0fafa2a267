"""TRPO: the policy takes natural gradient steps, as far as a limit of the KL divergence from the former policy allows.

The natural gradient solves `F x = g`, where F is the Hessian of the divergence and g the gradient of the surrogate. F
is never made: conjugate gradients only ask for F times a vector, which is `learner.hvp`. The values are trained as
usual, by `forward_backward` and `optim_step`. The code is the same for every backend.

Source: Schulman et al. 2015, "Trust Region Policy Optimization", arXiv:1502.05477, section 6 and appendix C.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click
import numpy as np

from plugrad import DEFAULT_MODULE_ID, Columns, Learner, LearnerProtocol
from plugrad.losses import mean_over_rows
from plugrad_ppo import PPOConfig

LIMIT = 0.01
"""Of the mean divergence between the former policy and the next one, in nats."""
DAMPING = 0.1
"""Times the vector, added to F times the vector: F of a few rows is nearly singular."""
Weights = dict[str, np.ndarray]


class Surrogate:
    """What a step is about: the policy's gain over the former one, and how far it is from it.

    Args:
        learner: has the policy.
        batch: columns of the former policy's steps.
    """

    def __init__(self, learner: Learner, batch: Mapping[str, Any]) -> None:
        names = (Columns.OBS, Columns.ACTIONS, Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS)
        advantages = batch[Columns.ADVANTAGES]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        self.learner, self.ops = learner, learner.ops
        self.columns = {name: learner.ops.asarray(batch[name]) for name in names}
        self.advantages = learner.ops.asarray(advantages.astype(np.float32))

    def policies(self) -> tuple[Any, Any]:
        """The former policy and the present one."""
        module = self.learner.module[DEFAULT_MODULE_ID]
        distribution = module.get_train_action_dist_cls()
        present = module.forward_train({Columns.OBS: self.columns[Columns.OBS]})[Columns.ACTION_DIST_INPUTS]
        former = self.columns[Columns.ACTION_DIST_INPUTS]
        return distribution.from_logits(former), distribution.from_logits(present)

    def gain(self) -> Any:
        """Equation 14: the mean of ratios times advantages."""
        _, policy = self.policies()
        ratio = self.ops.exp(policy.logp(self.columns[Columns.ACTIONS]) - self.columns[Columns.ACTION_LOGP])
        return self.ops.mean(ratio * self.advantages)

    def divergence(self) -> Any:
        """The mean divergence of the former policy from the present one."""
        former, policy = self.policies()
        return self.ops.mean(former.kl(policy))

    def measured(self) -> tuple[float, float]:
        """Gain and divergence as numbers."""
        gain, divergence = map(self.ops.stop_gradient, (self.gain(), self.divergence()))
        return float(gain), float(divergence)


def conjugate_gradients(product: Callable[[np.ndarray], np.ndarray], b: np.ndarray, steps: int) -> np.ndarray:
    """Solve `A x = b` for a symmetric A with positive eigenvalues, of which only `product(v) = A v` is known."""
    x, residual = np.zeros_like(b), b.copy()
    direction, size = residual.copy(), residual @ residual
    for _ in range(steps):
        if size < 1e-10:
            break
        moved = product(direction)
        length = size / (direction @ moved)
        x += length * direction
        residual -= length * moved
        size, former = residual @ residual, size
        direction = residual + size / former * direction
    return x


def natural_step(learner: Learner, batch: Mapping[str, Any]) -> tuple[float, float]:
    """Move the policy along its natural gradient, as far as it gains and stays within the limit.

    Args:
        learner: has the policy.
        batch: columns of the former policy's steps.

    Returns:
        How much the surrogate gained, and the divergence; both 0 if no length of the step was good.
    """
    surrogate = Surrogate(learner, batch)
    weights = learner.get_weights()[DEFAULT_MODULE_ID]
    policy = {name: each for name, each in weights.items() if name.startswith("pi.")}
    shapes = {name: each.shape for name, each in policy.items()}

    def joined(tree: Mapping[str, Any]) -> np.ndarray:
        return np.concatenate([np.ravel(np.asarray(tree[name], np.float64)) for name in shapes])

    def split(flat: np.ndarray) -> Weights:
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
        parts = zip(shapes.items(), np.split(flat.astype(np.float32), ends[:-1]), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def times_fisher(vector: np.ndarray) -> np.ndarray:
        _, products = learner.hvp(DEFAULT_MODULE_ID, surrogate.divergence, split(vector))
        return joined(products) + DAMPING * vector

    start = joined(policy)
    before, _ = surrogate.measured()
    gradients, _ = learner.hvp(DEFAULT_MODULE_ID, surrogate.gain, split(np.zeros_like(start)))
    direction = conjugate_gradients(times_fisher, joined(gradients), steps=10)
    length = np.sqrt(2.0 * LIMIT / (direction @ times_fisher(direction) + 1e-12))
    for shorter in 0.7 ** np.arange(10):
        learner.set_weights({DEFAULT_MODULE_ID: {**weights, **split(start + shorter * length * direction)}})
        gain, divergence = surrogate.measured()
        if gain > before and divergence <= LIMIT:
            return gain - before, divergence
    learner.set_weights({DEFAULT_MODULE_ID: weights})
    return 0.0, 0.0


def value_error(
    learner: LearnerProtocol, module_id: str, batch: Mapping[str, Any], fwd_out: Mapping[str, Any]
) -> Any:
    """The squared error of the values, by which the policy does not move."""
    error = learner.ops.square(fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS])
    return mean_over_rows(learner.ops, error, batch)


def train(episodes: list[Any], learner: Learner, value_steps: int = 20) -> tuple[float, float]:
    """One step of the policy, and several of the values, on the same rows."""
    batch = learner.run_connectors(episodes)[DEFAULT_MODULE_ID]
    found = natural_step(learner, batch)
    for _ in range(value_steps):
        learner.forward_backward(batch, value_error)
        learner.optim_step()
    return found


@click.command()
@click.option("--backend", default="torch")
@click.option("--iterations", default=30)
@click.option("--steps", default=2048, help="Steps of the environment in an iteration.")
def main(backend: str, iterations: int, steps: int) -> None:
    config = (
        PPOConfig()  # its network and its advantages
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=8)
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [32], "vf_share_layers": False})
        .training(lr=1e-2, gamma=0.99, lambda_=0.97, train_batch_size=steps)
        .debugging(seed=0)
    )
    algorithm = config.build_algo()
    for iteration in range(iterations):
        episodes = algorithm.sample()
        ((gained, divergence),) = algorithm.learner_group.foreach_learner(partial(train, episodes))
        mean = algorithm.env_runner.get_metrics()["episode_return_mean"]
        print(f"iteration {iteration} gained {gained:.4f} divergence {divergence:.5f} return {mean:.1f}")
    algorithm.stop()


if __name__ == "__main__":
    main()

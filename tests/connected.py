"""PPO whose connectors run in the learner, or in env runner processes."""

from typing import Any

from learning import largest_difference

from plugrad_ppo import PPOConfig


def config(backend: str, env_runner_backend: str) -> PPOConfig:
    """Two env runners."""
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework(backend, compile="none")
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2, env_runner_backend=env_runner_backend)
        .training(train_batch_size=64, minibatch_size=16, num_epochs=2, lr=0.01)
        .training(optimizer={"type": "sgd"}, normalize_advantages="minibatch")
        .debugging(seed=0)
    )


def trained(config: PPOConfig) -> tuple[Any, int]:
    """The weights after two iterations, and the environment steps that they are of."""
    algorithm = config.build_algo()
    try:
        for _ in range(2):
            results = algorithm.train()
        steps = results["learners/__all_modules__/num_env_steps_trained_lifetime"]
        return algorithm.learner_group.get_weights(), steps
    finally:
        algorithm.stop()


def difference(config: PPOConfig) -> tuple[float, int, int]:
    """Train with connectors in the learner and in the env runners.

    Returns:
        The largest difference of the weights, and the environment steps that both have learned from.
    """
    (alone, steps), (beside, steps_beside) = (
        trained(config.env_runners(connectors_in_env_runners=place)) for place in (False, True)
    )
    return largest_difference(alone, beside), steps, steps_beside

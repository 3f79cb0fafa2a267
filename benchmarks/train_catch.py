"""Catch to a mean return of 0.9 within 200,000 steps: PPO with a convolutional network, on both backends.

`python benchmarks/train_catch.py [--backends torch tf2] [--seeds 0 1 2]`; prints a line per run.
"""

from goals import main

from plugrad_ppo import PPOConfig


def make_config(backend: str, seed: int) -> PPOConfig:
    """Make a config with two convolutions and a dense layer for policy and value."""
    network = {"conv_filters": [[16, 4, 4], [16, 3, 2]], "fcnet_hiddens": [64], "fcnet_activation": "relu"}
    return (
        PPOConfig()
        .environment("catch:Catch")
        .framework(backend)
        .rl_module(model_config={**network, "vf_share_layers": True})
        .env_runners(num_envs_per_env_runner=16)
        .training(train_batch_size=2048, minibatch_size=256, num_epochs=6, lr=1e-3, entropy_coeff=0.01)
        .debugging(seed=seed)
    )


if __name__ == "__main__":
    main(__file__, make_config, goal=0.9, limit=200_000)

"""CartPole-v1 without its velocities to a mean return of 400 within 500,000 steps: PPO with an LSTM, on both backends.

`python benchmarks/train_memory.py [--backends torch tf2] [--seeds 0 1 2]`; prints a line per run.
"""

from goals import main

from plugrad_ppo import PPOConfig


def make_config(backend: str, seed: int) -> PPOConfig:
    """Make a config with rl-zoo's settings of recurrent PPO: sequences of 32 steps, two separate LSTMs."""
    network = {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 32}
    return (
        PPOConfig()
        .environment("hidden_cartpole:HiddenCartPole")
        .framework(backend)
        .rl_module(model_config=network)
        .env_runners(num_envs_per_env_runner=8, normalize_observations=True)
        .training(
            train_batch_size=256,
            minibatch_size=256,
            num_epochs=20,
            lr=[[0, 1e-3], [200_000, 0.0]],
            gamma=0.98,
            lambda_=0.8,
            entropy_coeff=0.0,
        )
        .debugging(seed=seed)
    )


if __name__ == "__main__":
    main(__file__, make_config, goal=400.0, limit=500_000)

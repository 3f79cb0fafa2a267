"""CartPole-v1 without its velocities to a mean return of 400 within 500,000 steps: PPO with an LSTM, on both backends.

`python benchmarks/train_memory.py [--backends torch tf2] [--seeds 0 1 2]`; prints a line per run.
"""

from goals import main

from plugrad_ppo import PPOConfig


def make_config(backend: str, seed: int) -> PPOConfig:
    """One tower of 64 units with a memory of 64 cells for policy and value."""
    network = {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64, "vf_share_layers": True}
    return (
        PPOConfig()
        .environment("hidden_cartpole:HiddenCartPole")
        .framework(backend)
        .rl_module(model_config={**network, "max_seq_len": 20})
        .env_runners(num_envs_per_env_runner=8)
        .training(
            train_batch_size=2048,
            minibatch_size=256,
            num_epochs=10,
            lr=1e-3,
            gamma=0.99,
            lambda_=0.95,
            entropy_coeff=0.001,
            vf_loss_coeff=0.5,
            grad_clip=0.5,
        )
        .debugging(seed=seed)
    )


if __name__ == "__main__":
    main(__file__, make_config, goal=400.0, limit=500_000)

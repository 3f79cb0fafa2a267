"""PPO on LunarLander-v3 with the settings of rl-zoo. Install: python -m pip install "plugrad[box2d]"."""

import click

from plugrad_ppo import PPOConfig


@click.command()
@click.option("--backend", default="torch")
@click.option("--steps", default=1_000_000, help="environment steps at most")
def main(backend: str, steps: int) -> None:
    algorithm = (
        PPOConfig()
        .environment("LunarLander-v3")
        .framework(backend)
        .env_runners(num_envs_per_env_runner=16)
        .training(
            train_batch_size=16_384,
            minibatch_size=64,
            num_epochs=4,
            lambda_=0.98,
            gamma=0.999,
            entropy_coeff=0.01,
        )
        .debugging(seed=0)
        .build_algo()
    )
    sampled, mean = 0, float("-inf")
    while sampled < steps and not mean >= 200.0:
        results = algorithm.train()
        sampled, mean = results["num_env_steps_sampled_lifetime"], results["env_runners/episode_return_mean"]
        print(sampled, mean)
    algorithm.stop()


if __name__ == "__main__":
    main()

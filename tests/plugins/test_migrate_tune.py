"""Programs of Ray Tune over RLlib's configs: `plugrad migrate` makes Tuners of `trainable(config)`."""

import needs
import pytest

needs.extra("libcst")

HEAD = "from ray import tune\nfrom ray.rllib.algorithms.ppo import PPOConfig\n"
NEW = "from ray import tune\n\nfrom plugrad_ppo import PPOConfig\nfrom plugrad_rllib.tune import trainable\n"


def migrated(program: str) -> tuple[str, list[str]]:
    from plugrad_rllib.migrate.rewrite import migrate

    text, notes = migrate(program)
    return text, [f"{note.line}: {note.text}" for note in notes]


@pytest.mark.parametrize("algorithm", ['"PPO"', "config.algo_class", "args.run"])
def test_a_tuner_of_a_config_gets_its_trainable_and_what_is_searched(algorithm: str) -> None:
    program = (
        f"{HEAD}"
        "config = PPOConfig().environment('CartPole-v1').training(lr=tune.loguniform(1e-5, 1e-2), gamma=0.9)\n"
        "config = config.env_runners(num_envs_per_env_runner=tune.choice([1, 2]))\n"
        f"tuner = tune.Tuner({algorithm}, param_space=config, tune_config=tune.TuneConfig(num_samples=2))\n"
    )
    text, notes = migrated(program)
    assert notes == []
    assert text == (
        f"{NEW}"
        "config = PPOConfig.rllib_defaults().environment('CartPole-v1').training(gamma=0.9)\n"
        "config = config\n"
        'tuner = tune.Tuner(trainable(config), param_space={"lr": tune.loguniform(1e-5, 1e-2), '
        '"num_envs_per_env_runner": tune.choice([1, 2])}, tune_config=tune.TuneConfig(num_samples=2))\n'
    )


def test_a_config_inside_of_the_tuner_is_one_of_rllibs_defaults() -> None:
    text, notes = migrated(
        f"{HEAD}tune.Tuner('PPO', param_space=PPOConfig().training(lr=tune.uniform(0, 1))).fit()\n"
    )
    assert notes == []
    assert text == (
        f'{NEW}tune.Tuner(trainable(PPOConfig.rllib_defaults()), param_space={{"lr": tune.uniform(0, 1)}}).fit()\n'
    )


def test_what_is_searched_for_a_function_of_the_program_is_named() -> None:
    program = (
        f"{HEAD}config = PPOConfig().training(lr=tune.uniform(0, 1))\ntune.Tuner(run, param_space=config)\n"
    )
    text, notes = migrated(program)
    assert "trainable" not in text
    (note,) = notes
    assert note.startswith("4: tune.Tuner(..., param_space=config): ")
    assert 'param_space={"lr": tune.uniform(0, 1)}' in note


def test_other_uses_of_ray_tune_are_named_at_its_import() -> None:
    _, notes = migrated(f"{HEAD}tune.run('PPO', config=PPOConfig().to_dict())\n")
    assert notes[0].startswith("1: tune.run: what Ray Tune runs here is tune.Tuner(trainable(config), ...)")


@pytest.mark.parametrize("imported", ["", "from ray import tune\n"])
def test_a_helped_example_that_asks_for_its_best_trial_is_a_tuner(imported: str) -> None:
    program = (
        f"{imported}"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "from ray.rllib.examples.utils import (\n"
        "    add_rllib_example_script_args, run_rllib_example_script_experiment)\n"
        "parser = add_rllib_example_script_args()\n"
        "args = parser.parse_args()\n"
        "config = PPOConfig().environment('CartPole-v1')\n"
        "results = run_rllib_example_script_experiment(config, args, stop={'a': 2}, keep_ray_up=True)\n"
        "best = results.get_best_result('env_runners/episode_return_mean').checkpoint.path\n"
    )
    text, notes = migrated(program)
    assert notes == []
    assert text.count("from ray import tune\n") == 1
    assert text.endswith(
        "results = tune.Tuner(\n"
        "    trainable(config),\n"
        "    param_space={},\n"
        "    run_config=tune.RunConfig(\n"
        "        stop={'a': 2},\n"
        "        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),\n"
        "    ),\n"
        ").fit()\n"
        "best = results.get_best_result('env_runners/episode_return_mean').checkpoint.path\n"
    )


def test_what_a_helped_example_searches_is_searched_by_its_tuner() -> None:
    program = (
        f"{HEAD}from ray.rllib.examples.utils import run_rllib_example_script_experiment\n"
        "config = PPOConfig().environment('CartPole-v1').training(lr=tune.grid_search([0.1, 0.01]), gamma=0.9)\n"
        "grid = run_rllib_example_script_experiment(config, args, progress_reporter=reporter)\n"
        "print(grid[0].metrics)\n"
    )
    text, notes = migrated(program)
    assert "config = PPOConfig.rllib_defaults().environment('CartPole-v1').training(gamma=0.9)\n" in text
    assert '    param_space={"lr": tune.grid_search([0.1, 0.01])},\n' in text
    assert '            "env_runners/episode_return_mean": args.stop_reward,\n' in text
    assert notes == [
        "5: run_rllib_example_script_experiment(progress_reporter=reporter): give it to the Tuner"
    ]


def test_a_tuner_is_restored_with_the_trainable_of_its_config() -> None:
    text, notes = migrated(
        f"{HEAD}config = PPOConfig()\n"
        "tuner = tune.Tuner.restore(path=path, trainable=config.algo_class, param_space=config)\n"
    )
    assert notes == []
    assert text.endswith("tuner = tune.Tuner.restore(path=path, trainable=trainable(config))\n")

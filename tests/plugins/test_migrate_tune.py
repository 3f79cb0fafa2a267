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


@pytest.mark.parametrize("algorithm", ['"PPO"', "config.algo_class"])
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


def test_the_best_checkpoint_of_a_helped_example_is_the_path_where_it_was_saved() -> None:
    program = (
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "from ray.rllib.examples.utils import (\n"
        "    add_rllib_example_script_args, run_rllib_example_script_experiment)\n"
        "parser = add_rllib_example_script_args()\n"
        "args = parser.parse_args()\n"
        "results = run_rllib_example_script_experiment(PPOConfig(), args)\n"
        "first = results.get_best_result('episode_return_mean').checkpoint.path\n"
        "second = results.get_best_result().checkpoint\n"
    )
    text, notes = migrated(program)
    assert [note for note in notes if "results: the last results" not in note] == []
    lines = text.splitlines()
    assert lines[-4:] == [
        'results_path = algorithm.save_to_path("checkpoint")',
        "algorithm.stop()",
        "first = results_path",
        "second = results_path",
    ]

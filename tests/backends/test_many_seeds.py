"""Many seeds as one program: each is its lone run, and goes on alone; and who is refused before anything starts."""

import needs
import numpy as np
import pytest
from click.testing import CliRunner

from plugrad import AlgorithmBatch, get_algorithm, hookimpl
from plugrad.algorithm import Algorithm
from plugrad.cli import main
from plugrad.cli.metrics_files import read_rows
from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig, PPOLearner

TINY = [
    "--training.train_batch_size=128",
    "--training.minibatch_size=64",
    "--training.num_epochs=1",
    "--rl_module.model_config={fcnet_hiddens = [8]}",
    "--env_runners.num_envs_per_env_runner=4",
]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def config(backend, **training):
    settings = {"train_batch_size": 128, "minibatch_size": 32, "num_epochs": 2, **training}
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework(backend)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .env_runners(num_envs_per_env_runner=4)
        .training(**settings)
        .debugging(seed=3)
    )


@pytest.fixture(params=["jax", "tf2"])
def batched(request):
    """A backend that makes one program of many learners."""
    needs.backend(request.param)
    return request.param


def numbers(results):
    return {
        name: value
        for name, value in results.items()
        if isinstance(value, int | float) and "time/" not in name
    }


def assert_equal(algorithm, other, results, others):
    found, alone = numbers(results), numbers(others)
    assert found.keys() == alone.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, alone[name], **TOLERANCE, err_msg=name)
    weights = other.learner_group.get_weights()["default_policy"]
    for name, each in algorithm.learner_group.get_weights()["default_policy"].items():
        np.testing.assert_allclose(each, weights[name], **TOLERANCE, err_msg=name)


def test_each_is_its_lone_run_and_goes_on_alone(batched, tmp_path):
    """With learning rates, schedules and coefficients of their own; the last run ends after one iteration."""
    settings = [
        {"lr": [[0, 1e-2], [512, 1e-3]], "entropy_coeff": 0.0, "kl_coeff": 0.5},
        {"lr": 3e-3, "entropy_coeff": 0.01, "clip_param": 0.1},
        {"lr": 1e-3},
    ]
    configs = [config(batched, **each).debugging(seed=n) for n, each in enumerate(settings)]
    batch = AlgorithmBatch(configs)
    iterations = (3, 3, 1)
    runs = batch.run(
        [
            lambda algorithm=algorithm, times=times: [algorithm.train() for _ in range(times)]
            for algorithm, times in zip(batch.algorithms, iterations, strict=True)
        ]
    )
    assert "many learners as one" in batch.algorithms[0]._learner.update_mode
    paths = batch.save_to_path(tmp_path)
    for each, results, algorithm in zip(configs, runs, batch.algorithms, strict=True):
        alone = each.build_algo()
        others = [alone.train() for _ in results]
        assert_equal(algorithm, alone, results[-1], others[-1])
    resumed = Algorithm.from_checkpoint(paths[-1])
    assert_equal(resumed, alone, resumed.train(), alone.train())
    batch.stop()


@pytest.mark.parametrize("name", ["dqn", pytest.param("sac", marks=pytest.mark.long)])
def test_off_policy_algorithms_too(batched, name):
    """Their minibatches come from replay buffers; target networks and noise are in the program."""
    env = {"dqn": "CartPole-v1", "sac": "Pendulum-v1"}[name]
    one = (
        get_algorithm(name)()
        .environment(env)
        .framework(batched)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .env_runners(num_envs_per_env_runner=2)
        .training(minibatch_size=16, num_steps_sampled_before_learning_starts=32)
        .reporting(min_sample_timesteps_per_iteration=64)
        .debugging(seed=1)
    )
    batch, alone = one.build_seeds(2), one.debugging(seed=2).build_algo()
    results = [batch.train()[1] for _ in range(2)][-1]
    assert "many learners as one" in batch.algorithms[1]._learner.update_mode
    assert_equal(batch.algorithms[1], alone, results, [alone.train() for _ in range(2)][-1])


class Scaled(PPOLearner):
    """Its losses are as large as a program has it."""

    factor = 1.0

    def compute_loss_for_module(self, **given):
        return self.factor * super().compute_loss_for_module(**given)


def test_another_iteration_goes_on_from_the_last_and_one_may_train_alone(batched, monkeypatch):
    made = config(batched).learners(learner_class=Scaled)
    batch, alone = made.build_seeds(2), made.debugging(seed=4).build_algo()
    batch.train()
    batch.algorithms[0].train()
    assert batch.algorithms[0]._learner.update_mode.endswith("this learner alone")
    results = batch.train()
    alone.train()
    assert_equal(batch.algorithms[1], alone, results[1], alone.train())
    assert [each.iteration for each in batch.algorithms] == [3, 2]
    assert [each.config.seed for each in batch.algorithms] == [3, 4]
    monkeypatch.setattr(Scaled, "factor", 0.0)
    for each in batch.algorithms:
        each._learner.forget_programs()
    losses = [each["learners/default_policy/total_loss"] for each in batch.train()]
    assert losses == [0.0, 0.0], "the program of both was kept"


def test_an_error_of_one_leaves_the_others_their_iteration(batched):
    batch = config(batched).build_seeds(3)

    def fails():
        batch.algorithms[1].sample()
        raise OSError("no environment is left")

    with pytest.raises(OSError, match="no environment is left") as caught:
        batch.run([batch.algorithms[0].train, fails, batch.algorithms[2].train])
    assert "in number 1 of 3" in caught.value.__notes__[-1]
    assert [each.iteration for each in batch.algorithms] == [1, 0, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda each: each.learners(num_learners=2), r"num_learners=2: .*type \.learners\(num_learners=0\)"),
        (lambda each: each.framework(each.backend, compile="none"), r"compile='none': .*compile='auto'"),
    ],
)
def test_what_is_no_one_program_is_refused_before_anything_is_built(batched, change, words):
    with pytest.raises(ConfigError, match=words):
        change(config(batched)).build_seeds(2)


def test_a_setting_that_is_part_of_the_program_must_be_alike(batched):
    one = config(batched)
    with pytest.raises(ConfigError, match=r"grad_clip=.* and grad_clip=7.0: .*build_algo"):
        AlgorithmBatch([one, one.training(grad_clip=7.0)])
    with pytest.raises(ConfigError, match="at least one config"):
        one.build_seeds([])


def test_an_optimizer_of_the_framework_is_refused_by_name(batched):
    if batched == "jax":
        optax = needs.extra("optax")
        own = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
    else:
        own = needs.backend("tf2").keras.optimizers.SGD(0.1)

    class WithOwn(PPOLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            module = self.module[module_id]
            self.register_optimizer(
                module_id=module_id,
                optimizer=own,
                params=self.get_parameters(module),
                lr_or_lr_schedule=0.1,
            )

    with pytest.raises(ConfigError, match="optimizer 'default_policy_default_optimizer'"):
        config(batched).learners(learner_class=WithOwn).build_seeds(2)


def test_torch_says_that_it_has_it_not():
    needs.backend("torch")
    words = "'torch' does not declare 'batched_learners'; take a backend that has it .*plugrad train --seed"
    with pytest.raises(ConfigError, match=words):
        config("torch").build_seeds(2)


def test_the_command_makes_a_run_of_each_seed(batched, tmp_path):
    def plugrad(*arguments, code=0):
        result = CliRunner().invoke(main, [str(each) for each in arguments], prog_name="plugrad")
        assert result.exit_code == code, result.output
        return result

    def rows(path):
        return [numbers(row) for row in read_rows(path / "metrics.jsonl")]

    train = ("train", "--backend", batched, *TINY, "--stop-timesteps=256", "--seed=3")
    said = plugrad(*train, "--seeds=2", "--out", tmp_path / "both").stdout
    assert said.splitlines()[0] == f"ppo on CartPole-v1 with {batched}, 2 seeds"
    plugrad(*train, "--out", tmp_path / "s3")
    both = [tmp_path / "both" / name for name in ("s3", "s4")]
    for path in both:
        assert f"run: {path}" in said
        assert plugrad("eval", path, "--episodes=1")
    found, alone = rows(both[0]), rows(tmp_path / "s3")
    assert [row.keys() for row in found] == [row.keys() for row in alone]
    for row, other in zip(found, alone, strict=True):
        for name, value in row.items():
            np.testing.assert_allclose(value, other[name], **TOLERANCE, err_msg=name)
    plugrad("train", "--resume", both[1], "--stop-timesteps=384")
    assert len(rows(both[1])) == 3
    refused = plugrad("train", "--resume", both[1], "--seeds=2", code=2)
    assert "each of its runs goes on alone, with --resume RUN" in refused.output


class Fails:
    """A listener that fails at the end."""

    @hookimpl
    def algorithm_stopped(self, algorithm):
        raise RuntimeError(f"no end {algorithm.config.seed}")


def test_all_algorithms_stop_where_a_listener_fails_at_the_end(batched):
    batch = config(batched).plugins(Fails).build_seeds(2)
    with pytest.raises(RuntimeError, match="no end"):
        batch.stop()
    for each in batch.algorithms:
        each.stop()  # again, which does nothing


def test_no_run_is_begun_where_the_directory_of_another_is_taken(batched, tmp_path):
    (tmp_path / "s4").mkdir()
    (tmp_path / "s4" / "thesis.txt").write_text("all of it")
    train = ["train", "--backend", batched, *TINY, "--seed=3", "--seeds=2", "--out", str(tmp_path)]
    refused = CliRunner().invoke(main, train, prog_name="plugrad")
    assert refused.exit_code == 2
    assert f"--out: {tmp_path / 's4'} is not empty" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["s4"]

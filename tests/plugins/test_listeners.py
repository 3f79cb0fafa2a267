"""The listeners that ship: by name and as objects, in eager and compiled updates, and what they measure."""

import gc
import re
from importlib.util import find_spec
from pathlib import Path

import needs
import numpy as np
import pytest
from click.testing import CliRunner
from learning import ppo_batch, ppo_config, value_config, with_modules
from threads import on_all

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Columns, Learner, hookimpl
from plugrad.cli import main
from plugrad.errors import MissingFrameworkError
from plugrad.hooks.plugin_records import list_plugins
from plugrad.hooks.registry import load_listeners
from plugrad_listeners import (
    EarlyStopping,
    EntropyBonus,
    GradientNoiseScale,
    MlflowLogger,
    RunLogger,
    TensorboardLogger,
    WandbLogger,
)
from plugrad_listeners.gradient_noise_scale import noise_and_signal
from plugrad_ppo import PPOConfig

P = DEFAULT_MODULE_ID


def built(config, *plugins) -> Learner:
    learner = config.get_learner_class()(config=config, plugins=plugins)
    learner.build()
    return learner


# --- entropy bonus ---


@pytest.mark.parametrize("compile", ["none", "complete_update"])
def test_an_entropy_bonus_is_what_ppos_own_coefficient_is(backend, compile):
    config = ppo_config(backend, lr=0.01).framework(backend, compile=compile)
    listened = built(config, EntropyBonus(0.3))
    eager = config.framework(backend, compile="none")
    own, plain = built(eager.training(entropy_coeff=0.3)), built(eager)
    batch = ppo_batch()
    if compile == "none":  # sequences take longer to compile
        batch = {name: each.reshape(4, 4, *each.shape[1:]) for name, each in batch.items()}
        batch[Columns.SEQ_LENS] = np.array([4, 1, 2, 3])  # the steps behind them do not count
    results = [learner.update(batch)[P] for learner in (listened, own, plain)]
    assert results[0]["total_loss"] == pytest.approx(results[1]["total_loss"], rel=1e-5)
    assert results[0]["entropy_bonus"] == pytest.approx(0.3 * results[2]["entropy"], rel=1e-5)
    for name, weight in own.get_weights()[P].items():
        np.testing.assert_allclose(listened.get_weights()[P][name], weight, atol=1e-6)
    assert listened.update_mode.startswith(compile if compile == "none" else "complete_update")


# --- gradient noise scale ---


class Recording(Learner):
    """Values as the policy's only loss; keeps each step's gradient."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        return self.ops.mean(self.ops.square(fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS]))

    def postprocess_gradients(self, gradients_dict):
        self.recorded = np.concatenate(
            [np.ravel(self._convert_to_numpy(each)) for each in gradients_dict.values()]
        )
        return gradients_dict


def with_signal(rows: int = 16) -> dict[str, np.ndarray]:
    """Values are all too low, so that the gradient is not lost in its noise."""
    batch = ppo_batch(rows)
    return {**batch, Columns.VALUE_TARGETS: 2.0 + 0.5 * batch[Columns.VALUE_TARGETS]}


def test_the_noise_scale_is_the_ratio_of_the_rows_variance_to_the_squared_gradient(backend):
    """Against every row's own gradient, with weights that stay where they are."""
    rows = {name: with_signal(64)[name] for name in (Columns.OBS, Columns.VALUE_TARGETS)}
    recording = value_config(hiddens=(2,), learner_class=Recording).build_learner()
    gradients = []
    for n in range(64):
        recording._update(
            {P: recording._convert_batch_type({name: each[n : n + 1] for name, each in rows.items()})}
        )
        gradients.append(recording.recorded)
        recording.set_weights(value_config(hiddens=(2,)).build_learner().get_weights())
    mean = np.mean(gradients, axis=0)
    expected = np.sum((gradients - mean) ** 2, axis=1).mean() / np.sum(mean**2)

    learner = built(
        value_config(backend, hiddens=(2,), lr=0.0, shuffle_batch_per_epoch=True),
        GradientNoiseScale(decay=0.0),
    )
    found = learner.update(rows, minibatch_size=8, num_epochs=60)[P]
    assert found["gradient_rows_of_half"] == 4
    assert found["gradient_rows"] == 8
    assert found["gradient_noise_scale"] == pytest.approx(expected, rel=0.15)
    # Rows of a minibatch are drawn without repetition, which this estimate does not know: at most 1 / 8 off.


def test_every_backend_measures_the_same_noise(backend):
    """On tf2 and jax in one XLA program."""

    def measured(name):
        config = ppo_config(name, lr=0.01, grad_clip=0.1)
        learner = built(config, GradientNoiseScale())
        for _ in range(2):
            results = learner.update(with_signal(), minibatch_size=8)[P]
        return results, learner

    (found, learner), (expected, _) = measured(backend), measured("numpy")
    keys = [key for key in expected if key.startswith("gradient")]
    assert "gradient_noise_scale" in keys
    assert {key: found[key] for key in keys} == pytest.approx({key: expected[key] for key in keys}, rel=1e-3)
    plain = built(learner.config)
    for _ in range(2):
        plain.update(with_signal(), minibatch_size=8)
    for name, weight in plain.get_weights()[P].items():  # who measures changes nothing
        np.testing.assert_allclose(learner.get_weights()[P][name], weight, atol=1e-6)


def test_learners_of_a_group_measure_the_gradient_of_all_their_rows():
    needs.backend("torch")
    config = ppo_config("torch", lr=0.0, minibatch_size=None)
    alone = built(config, GradientNoiseScale()).update(with_signal(16))[P]
    learners = [built(config, GradientNoiseScale()) for _ in range(3)]
    for found in on_all(learners, lambda learner: learner.update(with_signal(16))[P]):
        assert found["gradient_rows"] == pytest.approx(16)
        assert found["gradient_squared_norm"] == pytest.approx(alone["gradient_squared_norm"], rel=1e-4)
        assert found["gradient_rows_of_half"] == pytest.approx(np.average([3, 3, 3], weights=[5, 5, 6]))


def test_of_sequences_the_steps_that_count_are_rows(backend):
    lengths = np.array([4, 1, 2, 3])
    batch = {name: each.reshape(4, 4, *each.shape[1:]) for name, each in with_signal(16).items()}
    learner = built(ppo_config(backend, minibatch_size=None), GradientNoiseScale())
    found = learner.update({**batch, Columns.SEQ_LENS: lengths})[P]
    assert found["gradient_rows"] == 10
    assert found["gradient_rows_of_half"] == 6


class WithNative(Learner):
    """Its optimizer is the framework's own."""

    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id, optimizer=_native(self.config.backend, params), params=params
        )


def _native(backend, params):
    if backend == "torch":
        import torch

        return torch.optim.SGD(params, 0.01)
    if backend == "jax":
        import optax

        return optax.inject_hyperparams(optax.sgd)(learning_rate=0.01)
    import tensorflow as tf

    return tf.keras.optimizers.SGD(0.01)


def test_the_noise_scale_is_the_same_with_a_frameworks_own_optimizer(backend):
    settings = {"lr": 0.01, "optimizer": {"type": "sgd"}}
    results = []
    for learner_class in (WithNative, None):
        config = ppo_config(backend, **settings).framework(backend, compile="none")
        learner = built(config.learners(learner_class=learner_class), GradientNoiseScale())
        results.append(learner.update(with_signal(), minibatch_size=8)[P]["gradient_noise_scale"])
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_the_noise_scale_of_a_module_whose_id_has_a_slash_is_its_own(backend):
    config = ppo_config(backend, lr=0.01)
    modules = built(with_modules(config, "a/b", "a"), GradientNoiseScale())
    found = modules.update({"a/b": with_signal(), "a": with_signal(32)}, minibatch_size=8)
    assert found["a/b"].keys() == found["a"].keys()
    assert found["a/b"]["gradient_squared_norm"] != found["a"]["gradient_squared_norm"]
    assert np.isfinite(found["a/b"]["gradient_squared_norm"])


def test_estimates_are_those_of_two_batch_sizes_without_bias():
    """With E|G_B|^2 = |G|^2 + tr(Sigma) / B put in, the two come out."""
    noise, signal = noise_and_signal(3.0 + 5.0 / 4, 3.0 + 5.0 / 16, 4, 16)
    assert (noise, signal) == pytest.approx((5.0, 3.0))


def test_a_minibatch_of_one_row_has_no_half():
    results = built(ppo_config(), GradientNoiseScale()).update(ppo_batch(), minibatch_size=1)
    assert "gradient_noise_scale" not in results[P]


# --- early stopping ---


class Returns:
    """Reports these mean returns, one per iteration."""

    def __init__(self, *values):
        self.values = list(values)

    @hookimpl
    def iteration_ended(self, algorithm, results):
        value = self.values[algorithm.iteration - 1]
        if value is None:
            results.pop("env_runners/episode_return_mean", None)
        else:
            results["env_runners/episode_return_mean"] = value


def algorithm(*plugins):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .env_runners(num_envs_per_env_runner=1)
        .training(train_batch_size=2, minibatch_size=None, num_epochs=1)
        .plugins(*plugins)
        .debugging(seed=0)
        .build_algo()
    )


@pytest.mark.parametrize(
    ("returns", "stopped_after"),
    [
        ([1, 2, 3, 4, 5, 6], None),
        ([1, 5, 5, 5, 5, 9], 5),
        ([1, 5, 5.5, 6.0, 6.5, 7], 5),
        ([None, None, None, 4, 9, 9], None),
        ([None, None, None, None], 4),
        ([1, 0, 3, 0, 0, 0], 6),
    ],
)
def test_a_run_is_stopped_when_nothing_got_better_for_long_enough(returns, stopped_after):
    stopping, trained = EarlyStopping(patience=3, min_delta=2.0 if 5.5 in returns else 0.0), algorithm()
    report, stopped = Returns(*returns), None
    for _ in returns:
        results = trained.train()
        report.iteration_ended(trained, results)
        stopping.iteration_ended(trained, results)
        if trained.stop_reason is not None and stopped is None:
            stopped = trained.iteration
    assert stopped == stopped_after
    if stopped:
        assert trained.stop_reason.startswith("stopped early: env_runners/episode_return_mean not above ")


def test_runs_that_share_a_listener_do_not_share_what_was_best():
    stopping = EarlyStopping(patience=2)
    for returns in ([9, 9], [1, 2, 3]):
        trained, report = algorithm(), Returns(*returns)
        for _ in returns:
            results = trained.train()
            report.iteration_ended(trained, results)
            stopping.iteration_ended(trained, results)
        assert trained.stop_reason is None
        trained.stop()
    del trained, results, report
    gc.collect()
    assert len(stopping._best) <= 1  # and keep no run alive


# --- loggers ---


@pytest.mark.parametrize(
    ("name", "package", "logger"),
    [
        ("wandb", "wandb", WandbLogger),
        ("mlflow", "mlflow", MlflowLogger),
        ("tensorboard", "tensorboardX", TensorboardLogger),
    ],
)
def test_a_logger_without_its_package_says_what_to_install(name, package, logger, monkeypatch):
    if find_spec(package):  # as where it is not installed
        monkeypatch.setattr("plugrad_listeners.run_logger.find_spec", lambda name: None)
    trained, asked = algorithm(), rf'needs {package}: pip install "plugrad\[{name}\]"'
    results = trained.train()
    with pytest.raises(MissingFrameworkError, match=asked):
        logger().iteration_ended(trained, results)
    logger().algorithm_stopped(trained)  # nothing was begun
    if not find_spec(package):
        with pytest.raises(MissingFrameworkError, match=asked):
            load_listeners((name,))


def test_the_option_for_tensorboard_without_tensorboardx_fails_before_a_run_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("plugrad.hooks.plugin_records.is_installed", lambda name: name != "tensorboardX")
    command = ["train", "--backend=numpy", "--tensorboard", f"--out={tmp_path / 'run'}"]
    done = CliRunner().invoke(main, [*command, "--stop-timesteps=1"], prog_name="plugrad")
    assert done.exit_code == 1
    assert done.stderr.endswith('needs tensorboardX: pip install "plugrad[tensorboard]"\n')
    assert not (tmp_path / "run").exists()


def test_two_tensorboard_runs_of_one_folder_within_a_second_keep_both(tmp_path, monkeypatch):
    needs.extra("tensorboardX")
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)
    for _ in range(2):
        each, logger = algorithm(), TensorboardLogger(logdir=str(tmp_path))
        logger.iteration_ended(each, each.train())
        logger.algorithm_stopped(each)
    sizes = [path.stat().st_size for path in tmp_path.glob("events.out.tfevents.*")]
    assert len(sizes) == 2
    assert min(sizes) > 1000


def test_tensorboard_events_go_where_the_run_is_or_where_one_says(tmp_path):
    needs.extra("tensorboardX")
    logger = TensorboardLogger(logdir=str(tmp_path / "events"))
    runs = [algorithm(), algorithm()]
    runs[1].run_directory = str(tmp_path / "run")
    for each, listener in zip(runs, (logger, TensorboardLogger()), strict=True):
        listener.iteration_ended(each, each.train())
        listener.algorithm_stopped(each)
    for place in ("events", "run"):
        (file,) = (tmp_path / place).glob("events.out.tfevents.*")
        assert b"num_env_steps_sampled_lifetime" in file.read_bytes()


class Diary(RunLogger):
    """A logger into a list."""

    def begin(self, algorithm):
        return self._settings["diary"]

    def log(self, run, numbers, step):
        run.append((step, numbers["training_iteration"]))

    def end(self, run):
        run.append("end")


def test_a_logger_of_ones_own_says_how_to_begin_log_and_end():
    diary, trained = [], algorithm()
    logger = Diary(diary=diary)
    for _ in range(2):
        logger.iteration_ended(trained, trained.train())
    logger.algorithm_stopped(trained)
    logger.algorithm_stopped(trained)
    assert diary == [(2, 1.0), (4, 2.0), "end"]


# --- by name ---


def test_all_of_them_load_by_name_and_fit_their_hooks():
    ours = [
        each
        for each in list_plugins()
        if each.kind == "plugin" and each.value.startswith("plugrad_listeners")
    ]
    assert [each.name for each in ours] == [
        "early-stopping",
        "entropy-bonus",
        "gradient-noise-scale",
        "mlflow",
        "tensorboard",
        "wandb",
    ]
    names = tuple(each.name for each in ours if each.requires is None)
    assert [plugin.name for plugin in load_listeners(names)] == list(names)
    learner = ppo_config().plugins(*names).build_learner()
    results = learner.update(with_signal(), minibatch_size=8)
    assert {"entropy_bonus", "gradient_noise_scale"} <= results[P].keys()
    assert ALL_MODULES in results


def test_the_page_about_them_does_what_it_says(tmp_path):
    page = (Path(__file__).parents[2] / "docs/listeners.md").read_text()
    objects, file, of_episodes = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    namespace = {}
    exec(objects.replace("PPOConfig()", 'PPOConfig().framework("numpy")'), namespace)
    assert namespace["learner"]._hooks.is_wrapped("compute_losses")
    assert namespace["learner"]._hooks.is_wrapped("after_gradient_based_update")
    small = 'PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]})'
    exec(of_episodes.replace("PPOConfig()", small).replace("training(", "training(num_epochs=1, "), namespace)
    path = tmp_path / "patience.py"
    path.write_text(file)
    trained = algorithm(str(path))
    trained.train()
    named = re.findall(r"^\| `([a-z-]+)`", page, flags=re.M)
    assert sorted(named) == [
        each.name for each in list_plugins() if each.value.startswith("plugrad_listeners")
    ]

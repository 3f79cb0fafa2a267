"""docs/from-rllib.md, row by row: what its tables say about a name is done with that name, on every backend.

`CHECKS` has a function for each row that names an older or an absent name. Members of the Learner that have kept their
name are called by `test_learner_api.py`. A row that is in neither fails the last test.
"""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from learning import (
    OBSERVATIONS,
    TWO_ACTIONS,
    ValueLearner,
    digest,
    ppo_batch,
    ppo_config,
    quick,
    weights,
    with_modules,
)
from test_learner_api import SPEC, USES, episode

import plugrad
from plugrad import ALL_MODULES, AlgorithmConfig, Columns, LearnerGroup
from plugrad import DEFAULT_MODULE_ID as P
from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig, PPOLearner

PAGE = Path(__file__).parents[2] / "docs/from-rllib.md"
STEPS = {"num_env_steps_sampled_lifetime": 50}
SCHEDULE = [[0, 0.01], [100, 0.0]]


@dataclass(frozen=True)
class Row:
    name: str
    documents: str
    ray: str
    here: str
    differs: str


def rows() -> dict[str, Row]:
    """The rows of all tables with five columns, by name."""
    found = [Row(*map(str.strip, line.strip("|").split(" | "))) for line in lines() if line.count(" | ") == 4]
    named = [row for row in found if row.name.startswith("`")]
    assert len({row.name for row in named}) == len(named)
    return {row.name.strip("`"): row for row in named}


def lines() -> list[str]:
    return [line.replace("| |", "|  |") for line in PAGE.read_text().splitlines() if line.startswith("|")]


ROWS = rows()
CHECKS = {}


def check(*names):
    """What is done for the rows of these names."""

    def register(function):
        CHECKS.update(dict.fromkeys(names, function))
        return function

    return register


def config(backend, **training):
    return quick(ppo_config(backend, **{"lr": 0.01, **training}))


def learners(backend, number=2, **training):
    return [config(backend, **training).build_learner() for _ in range(number)]


def group(backend, **training):
    return config(backend, **training).build_learner_group()


def same(one, other):
    return digest(one) == digest(other)


def attribute(name):
    return lambda *_: getattr(plugrad, name)


def absent(owner, name):
    assert not hasattr(owner, name)


# --- making a learner ---


@check("Learner")
def use_learner(backend, tmp_path):
    learner = PPOLearner(config=config(backend))
    learner.build()
    assert isinstance(learner, plugrad.Learner)


@check("Learner._reset")
def use_reset(backend, tmp_path):
    learner, new = learners(backend)
    learner._reset()
    learner.build()
    assert same(learner.get_state(), new.get_state())


@check("Learner.hps")
def use_hps(backend, tmp_path):
    (learner,) = learners(backend, 1)
    hps = learner.hps.get_hps_for_module(P)
    assert (hps.learning_rate, hps.grad_clip) == (learner.config.lr, learner.config.grad_clip)


def framework_of(backend, cls):
    """The class as one of a framework, as RLlib's were."""
    return type(cls.__name__, (cls,), {"framework": backend})


def older_spec(backend, cls=PPOLearner, **parts):
    hps = plugrad.LearnerHyperparameters(learning_rate=0.01, seed=1, grad_clip=0.5)
    framework = plugrad.FrameworkHyperparameters(eager_tracing=False)
    parts = {"learner_hyperparameters": hps, "framework_hyperparameters": framework, **parts}
    return plugrad.LearnerSpec(framework_of(backend, cls), module_spec=SPEC, **parts)


def newer_config(backend):
    return (
        PPOConfig().framework(backend, compile="none").training(lr=0.01, grad_clip=0.5).debugging(seed=1)
    ).rl_module(rl_module_spec=SPEC)


@check("LearnerSpec", "LearnerSpec.build")
def use_learner_spec(backend, tmp_path):
    """Trains, as a learner of a config does."""
    old, new = older_spec(backend).build(), newer_config(backend).build_learner()
    assert not old._check_is_built(error=False)
    old.build()
    old.update(ppo_batch(), minibatch_size=8), new.update(ppo_batch(), minibatch_size=8)
    assert same(old.get_state(), new.get_state())
    made = plugrad.LearnerSpec(framework_of(backend, ValueLearner), module=new.module[P]).build()
    made.build()
    assert made.module[P] is new.module[P]


@check("LearnerSpec.get_params_dict")
def use_params_dict(backend, tmp_path):
    spec = older_spec(backend)
    params = spec.get_params_dict()
    assert params["module_spec"] is SPEC
    assert "learner_class" not in params
    assert plugrad.LearnerSpec(PPOLearner, **params) == plugrad.LearnerSpec(PPOLearner, **params)


@check("LearnerHyperparameters", "LearnerHyperparameters.__init_subclass__")
def use_hyperparameters(backend, tmp_path):
    """A field of a subclass is a setting that the loss reads, by `hps` and by config."""

    @dataclass
    class Mine(plugrad.LearnerHyperparameters):
        factor: float = 1.0

    class Factored(ValueLearner):
        def compute_loss_for_module(self, *, module_id, hps, batch, fwd_out):
            loss = super().compute_loss_for_module(module_id=module_id, hps=hps, batch=batch, fwd_out=fwd_out)
            return hps.factor * loss

    results = []
    for factor in (1.0, 3.0):
        hps = Mine(learning_rate=0.01, seed=1, factor=factor)
        assert (hps.to_config().lr, hps.to_config().grad_clip, hps.to_config().factor) == (0.01, None, factor)
        learner = older_spec(backend, Factored, learner_hyperparameters=hps).build()
        learner.build()
        results.append(learner.update({Columns.OBS: ppo_batch()[Columns.OBS], **targets()}))
    assert results[1][P]["total_loss"] == pytest.approx(3.0 * results[0][P]["total_loss"])


def targets():
    return {Columns.VALUE_TARGETS: ppo_batch()[Columns.VALUE_TARGETS]}


@check("LearnerHyperparameters.get_hps_for_module")
def use_hps_for_module(backend, tmp_path):
    hps = plugrad.LearnerHyperparameters(
        learning_rate=0.1, _per_module_overrides={"a": {"learning_rate": 0.2}}
    )
    assert hps.get_hps_for_module("b") is hps
    assert hps.get_hps_for_module("a") is hps.get_hps_for_module("a")
    made = hps.to_config()
    for module_id in "ab":
        assert hps.get_hps_for_module(module_id).learning_rate == made.get_config_for_module(module_id).lr


@check("FrameworkHyperparameters", "FrameworkHyperparameters.validate", "TorchCompileWhatToCompile")
def use_framework_hyperparameters(backend, tmp_path):
    """Trains by the way of running that it names."""
    what = plugrad.TorchCompileWhatToCompile.FORWARD_TRAIN
    old = plugrad.FrameworkHyperparameters(torch_compile=True, what_to_compile=what)
    old.validate()
    assert old.to_config() == AlgorithmConfig().framework(compile="forward_train")
    assert plugrad.FrameworkHyperparameters().to_config() == AlgorithmConfig()
    assert plugrad.TorchCompileWhatToCompile.COMPLETE_UPDATE == "complete_update"
    with pytest.raises(ValueError, match="one of complete_update, forward_train"):
        plugrad.FrameworkHyperparameters(torch_compile=True, what_to_compile="all").validate()
    eager = plugrad.FrameworkHyperparameters(eager_tracing=False).to_config(config(backend))
    learner = eager.build_learner()
    learner.update(ppo_batch())
    assert learner.update_mode.startswith("none: ")


@check("LearnerGroupScalingConfig")
def use_scaling_config(backend, tmp_path):
    old = plugrad.LearnerGroupScalingConfig(num_workers=2, num_cpus_per_worker=3).to_config()
    assert old == AlgorithmConfig().learners(num_learners=2, num_cpus_per_learner=3)


# --- modules, optimizers, losses ---


@check("Learner.rl_module_is_compatible", "Learner.rl_module_required_apis")
def no_compatible(backend, tmp_path):
    absent(plugrad.Learner, "rl_module_is_compatible")
    assert "_is_module_compatible_with_learner" in USES


@check("Learner._get_global_norm_function")
def no_norm_function(backend, tmp_path):
    absent(plugrad.Learner, "_get_global_norm_function")
    (learner,) = learners(backend, 1)
    ones = {"a": learner.ops.ones((4,))}
    _, norm = learner._get_clip_function()(ones, grad_clip=None, grad_clip_by="global_norm")
    assert float(norm) == pytest.approx(2.0)


def refused_setting(call, name, value, way):
    @check(f"config.{name}")
    def no_setting(backend, tmp_path):
        with pytest.raises(ConfigError, match=rf"no setting '{name}'. Here: {re.escape(way)}"):
            getattr(config(backend), call)(**{name: value})
        with pytest.raises(ConfigError, match="Here: "):
            setattr(config(backend), name, value)


refused_setting("training", "_torch_lr_scheduler_classes", [object], "give lr=[[timestep, value], ...]")
refused_setting("framework", "torch_skip_nan_gradients", True, "training(nonfinite='skip')")
refused_setting("training", "_torch_grad_scaler_class", object, "bfloat16 needs no scaling")


refused_setting("learners", "num_aggregator_actors_per_learner", 2, "delete it: episodes become batches")


@check("PPOConfig(algo_class=)")
def no_algo_class(backend, tmp_path):
    with pytest.raises(
        ConfigError, match=r"no setting 'algo_class'. Here: leave it out: .*get_training_class"
    ):
        PPOConfig(algo_class=object)


@check("RLModuleSpec(load_state_path=)")
def no_path_in_a_spec(backend, tmp_path):
    with pytest.raises(
        ConfigError, match=r"no load_state_path. Here: learner.restore_from_path\(path, component="
    ):
        plugrad.RLModuleSpec(load_state_path="weights")
    one, other = learners(backend)
    one.update(ppo_batch())
    one.save_to_path(tmp_path / "one")
    other.restore_from_path(tmp_path / "one", component=f"rl_module/{P}")
    assert same(one.get_weights(), other.get_weights())


@check("optimizer.param_groups")
def no_param_groups(backend, tmp_path):
    (learner,) = learners(backend, 1)
    optimizer = learner.get_optimizer(P)
    with pytest.raises(AttributeError, match=r"Here: learner._get_optimizer_lr\(optimizer\)"):
        optimizer.param_groups  # noqa: B018
    learner._set_optimizer_lr(optimizer, 0.25)
    assert learner._get_optimizer_lr(optimizer) == 0.25


@check("AlgorithmConfig.overrides", "AlgorithmConfig.copy")
def use_overrides(backend, tmp_path):
    assert PPOConfig.overrides(lr=0.5) == {"lr": 0.5}
    assert config(backend).copy(copy_frozen=False) == config(backend)


@check("AlgorithmConfig.num_learner_workers")
def use_num_learner_workers(backend, tmp_path):
    made = config(backend).learners(num_learners=2, num_cpus_per_learner=3, num_gpus_per_learner=0)
    old = (made.num_learner_workers, made.num_cpus_per_learner_worker, made.num_gpus_per_learner_worker)
    assert old == (2, 3, 0)


@check("RLModuleSpec.from_module")
def use_from_module(backend, tmp_path):
    (learner,) = learners(backend, 1)
    spec = plugrad.RLModuleSpec.from_module(learner.module[P])
    learner.add_module(module_id="other", module_spec=spec)
    one, other = (learner.get_weights()[each] for each in (P, "other"))
    assert {name: value.shape for name, value in one.items()} == {
        name: value.shape for name, value in other.items()
    }


@check("LearnerGroup._learner")
def use_learner_of_group(backend, tmp_path):
    made = group(backend)
    assert made._learner is made.foreach_learner(lambda learner: learner)[0]


@check("Learner.compute_loss")
def use_compute_loss(backend, tmp_path):
    (learner,) = learners(backend, 1)
    batch = {P: learner._convert_batch_type(ppo_batch())}
    given = {"fwd_out": {P: learner.module[P].forward_train(batch[P])}, "batch": batch}
    old, new = learner.compute_loss(**given), learner.compute_losses(**given)
    assert set(old) == {P, ALL_MODULES}
    assert float(old[P]) == float(old[ALL_MODULES]) == float(new[P])


def test_an_overridden_compute_loss_trains_as_compute_losses_does(backend):
    with pytest.warns(DeprecationWarning, match="Old.compute_loss"):

        class Old(PPOLearner):
            def compute_loss(self, *, fwd_out, batch):
                losses = super().compute_loss(fwd_out=fwd_out, batch=batch)
                return {**losses, ALL_MODULES: 3.0 * losses[ALL_MODULES]}

    class New(PPOLearner):
        def compute_losses(self, *, fwd_out, batch):
            losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
            return {module_id: 3.0 * loss for module_id, loss in losses.items()}

    old, new = Old(config=config(backend)), New(config=config(backend))
    old.build(), new.build()
    old.update(ppo_batch(), minibatch_size=8), new.update(ppo_batch(), minibatch_size=8)
    np.testing.assert_allclose(weights(old), weights(new), rtol=1e-5, atol=1e-7)


# --- updates ---


@check("Learner.update(num_iters=)")
def use_num_iters(backend, tmp_path):
    old, new = learners(backend)
    old.update(ppo_batch(), minibatch_size=8, num_iters=3)
    new.update(ppo_batch(), minibatch_size=8, num_epochs=3)
    assert same(old.get_state(), new.get_state())


@check("Learner.update(reduce_fn=)")
def use_reduce_fn(backend, tmp_path):
    old, new = learners(backend)
    each = old.update(ppo_batch(), minibatch_size=8, num_epochs=2, reduce_fn=None)
    whole = new.update(ppo_batch(), minibatch_size=8, num_epochs=2)
    assert len(each) == 4
    mean = np.mean([results[P]["total_loss"] for results in each])
    assert mean == pytest.approx(whole[P]["total_loss"], rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(weights(old), weights(new), rtol=1e-6, atol=1e-7)
    last = old.update(ppo_batch(), minibatch_size=8, reduce_fn=lambda results: results[-1])
    assert last[P]["weights_seq_no"] == 2


@check("Learner.update(batch_refs=)")
def no_batch_refs(backend, tmp_path):
    (learner,) = learners(backend, 1)
    before, group = learner.get_state(), plugrad.LearnerGroup(config=learner.config)
    for name in ("batch_refs", "episodes_refs", "batches", "data_iterators", "training_data"):
        for owner in (learner, group):
            with pytest.raises(ConfigError, match=rf"no {name}=. Here: .*update\("):
                owner.update(**{name: []})
    assert same(learner.get_state(), before)


@check("Learner.update_from_iterator")
def no_iterator(backend, tmp_path):
    absent(plugrad.Learner, "update_from_iterator")


@check("Learner._update_from_batch_or_episodes")
def no_private_update(backend, tmp_path):
    absent(plugrad.Learner, "_update_from_batch_or_episodes")


@check("Learner._set_slicing_by_batch_id")
def no_slicing(backend, tmp_path):
    absent(plugrad.Learner, "_set_slicing_by_batch_id")


@check("Learner.additional_update", "Learner.additional_update_for_module")
def use_additional_update(backend, tmp_path):
    old, new, single = learners(backend, 3, lr=SCHEDULE, use_kl_loss=True, kl_coeff=0.2, kl_target=0.01)
    results = old.additional_update(timestep=50, module_ids_to_update=[P], sampled_kl_values={P: 0.1})
    one = single.additional_update_for_module(module_id=P, timestep=50, sampled_kl_values={P: 0.1})
    new.after_gradient_based_update(timesteps=STEPS)
    assert same(old.get_state("optimizer"), new.get_state("optimizer"))
    assert results == {P: one}
    assert one[plugrad.LEARNER_RESULTS_CURR_KL_COEFF_KEY] == pytest.approx(0.3)
    assert one[f"default_optimizer_{plugrad.LEARNER_RESULTS_CURR_LR_KEY}"] == pytest.approx(0.005)


# --- state ---


@check("Learner.get_module_state", "Learner.set_module_state")
def use_module_state(backend, tmp_path):
    learner, other = learners(backend, 1)[0], config(backend).debugging(seed=2).build_learner()
    assert same(learner.get_module_state(module_ids={P}), learner.get_weights())
    other.set_module_state(learner.get_module_state())
    assert (weights(other) == weights(learner)).all()


@check("Learner.get_optimizer_state", "Learner.set_optimizer_state")
def use_optimizer_state(backend, tmp_path):
    learner, other = learners(backend)
    learner.update(ppo_batch())
    assert same(learner.get_optimizer_state(), learner._get_optimizer_state())
    other.set_optimizer_state(learner.get_optimizer_state())
    assert same(other._get_optimizer_state(), learner._get_optimizer_state())


@check("Learner._get_optimizer_state", "Learner._set_optimizer_state")
def use_private_optimizer_state(backend, tmp_path):
    learner, other = learners(backend)
    other._set_optimizer_lr(other.get_optimizer(), 0.5)
    assert same(learner._get_optimizer_state(), learner.get_state("optimizer")["optimizer"])
    other._set_optimizer_state(learner._get_optimizer_state())
    assert same(other._get_optimizer_state(), learner._get_optimizer_state())
    with pytest.raises(ValueError, match="nobody"):
        other._set_optimizer_state({"nobody": {}})


@check("Learner.save_state", "Learner.load_state")
def use_save_state(backend, tmp_path):
    learner, other = learners(backend, 1)[0], config(backend).debugging(seed=2).build_learner()
    learner.save_state(tmp_path)
    other.load_state(str(tmp_path))
    assert same(other.get_state(), learner.get_state())
    assert same(PPOLearner.from_checkpoint(tmp_path).get_state(), learner.get_state())


@check("Learner._save_optimizers", "Learner._load_optimizers")
def use_save_optimizers(backend, tmp_path):
    learner, other = learners(backend)
    learner._set_optimizer_lr(learner.get_optimizer(), 0.5)
    learner._save_optimizers(tmp_path)
    other._load_optimizers(tmp_path)
    assert same(other._get_optimizer_state(), learner._get_optimizer_state())


@check("Learner._get_metadata")
def use_metadata(backend, tmp_path):
    (learner,) = learners(backend, 1)
    assert learner._get_metadata() == learner.get_metadata()
    assert learner.get_metadata()["backend"] == backend


@check("Learner.get_ctor_args_and_kwargs", "Learner.get_checkpointable_components")
def no_checkpointable(backend, tmp_path):
    absent(plugrad.Learner, "get_ctor_args_and_kwargs")
    absent(plugrad.Learner, "get_checkpointable_components")


# --- groups ---


@check("LearnerGroup(learner_spec)")
def use_learner_spec_in_a_group(backend, tmp_path):
    """Trains, as a group of a config does."""
    with (
        LearnerGroup(older_spec(backend), max_queue_len=7) as old,
        newer_config(backend).build_learner_group() as new,
    ):
        old.update(ppo_batch(), minibatch_size=8), new.update(ppo_batch(), minibatch_size=8)
        assert same(old.get_state(), new.get_state())
        assert old.config.max_requests_in_flight_per_learner == 7
        assert old.config.on_full == "drop_oldest"
        with pytest.raises(ConfigError, match="give module_spec"):
            LearnerGroup(plugrad.LearnerSpec(PPOLearner, module=old.foreach_learner(get_module)[0]))


def get_module(learner):
    return learner.module


@check(
    "LearnerGroup",
    "LearnerGroup.is_local",
    "LearnerGroup.is_remote",
    "LearnerGroup.__len__",
    "LearnerGroup.shutdown",
    "LearnerGroup.foreach_learner",
    "LearnerGroup.get_weights",
    "LearnerGroup.set_weights",
    "LearnerGroup.get_state",
    "LearnerGroup.set_state",
    "LearnerGroup.get_stats",
)
def use_group(backend, tmp_path):
    with LearnerGroup(config=config(backend)) as one, group(backend) as other:
        assert (one.is_local, one.is_remote, len(one)) == (True, False, 1)
        (learner,) = one.foreach_learner(lambda learner: learner)
        assert same(one.get_weights([P]), learner.get_weights())
        assert same(one.get_state()["learner"], learner.get_state())
        one.set_weights({P: {name: -each for name, each in one.get_weights()[P].items()}})
        other.set_state(one.get_state())
        assert same(other.get_weights(), one.get_weights())
        assert one.get_stats()["submitted"] == 0
    one.shutdown()


@check("LearnerGroup.update", "LearnerGroup.update_from_batch", "LearnerGroup.async_update")
def use_group_update(backend, tmp_path):
    old, new = group(backend), group(backend)
    (first,), (second,) = (
        old.update_from_batch(ppo_batch(), minibatch_size=8),
        new.update(ppo_batch(), minibatch_size=8),
    )
    assert first[P]["total_loss"] == second[P]["total_loss"]
    assert old.async_update(ppo_batch()) == new.update(ppo_batch(), async_update=True) == []
    (first,), (second,) = old.async_update(ppo_batch()), new.update(ppo_batch(), async_update=True)
    assert first[P]["total_loss"] == second[P]["total_loss"]
    assert same(old.get_state(), new.get_state())
    assert (
        old.update(ppo_batch(), num_iters=1, reduce_fn=lambda results: results[0])[P]["weights_seq_no"] == 4
    )


@check("LearnerGroup.update_from_episodes")
def use_group_update_from_episodes(backend, tmp_path):
    old, new = group(backend), group(backend)
    old.update_from_episodes([episode()]), new.update(episodes=[episode()])
    assert same(old.get_state(), new.get_state())


@check("LearnerGroup.get_in_queue_stats")
def use_in_queue_stats(backend, tmp_path):
    with group(backend) as one:
        stats = one.get_in_queue_stats()
        assert stats["learner_group_queue_size"] == one.get_stats()["in_flight"] == 0
        assert stats["learner_group_queue_ts_dropped"] == one.get_stats()["dropped"] == 0


@check("LearnerGroup.add_module", "LearnerGroup.remove_module", "LearnerGroup.set_is_module_trainable")
def use_group_modules(backend, tmp_path):
    with group(backend) as one:
        one.add_module(module_id="b", module_spec=SPEC)
        batch, before = {P: ppo_batch(), "b": ppo_batch()}, one.get_weights()
        for rule in (lambda module_id, batch: module_id == "b", ["b"]):
            one.set_is_module_trainable(rule)
            assert set(one.update(batch)[0]) == {"b", ALL_MODULES}
        assert same(one.get_weights([P]), {P: before[P]})
        one.set_is_module_trainable(None)
        assert set(one.update(batch)[0]) == {P, "b", ALL_MODULES}
        one.remove_module("b")
        assert list(one.get_weights()) == [P]


@check(
    "LearnerGroup.save_to_path",
    "LearnerGroup.restore_from_path",
    "LearnerGroup.from_checkpoint",
    "LearnerGroup.save_state",
    "LearnerGroup.load_state",
)
def use_group_on_disk(backend, tmp_path):
    with group(backend) as one, quick(ppo_config(backend, seed=2)).build_learner_group() as other:
        one.save_state(tmp_path / "old")
        assert one.save_to_path(tmp_path / "new") == str(tmp_path / "new")
        for path in ("old", "new"):
            with LearnerGroup.from_checkpoint(tmp_path / path) as made:
                assert same(made.get_state(), one.get_state())
        other.load_state(tmp_path / "new")
        assert same(other.get_state(), one.get_state())
        other.restore_from_path(tmp_path / "old")


@check("LearnerGroup.load_module_state")
def use_load_module_state(backend, tmp_path):
    several = [with_modules(quick(ppo_config(backend, seed=seed)), "a", "b") for seed in (1, 2)]
    saved, other = (each.build_learner_group() for each in several)
    single = quick(ppo_config(backend, seed=3)).build_learner()
    saved.save_to_path(tmp_path / "several"), single.save_to_path(tmp_path / "single")
    before = other.get_weights()
    with pytest.raises(ValueError, match="in modules_to_load and in rl_module_ckpt_dirs: a"):
        other.load_module_state(
            multi_rl_module_ckpt_dir=tmp_path / "several",
            modules_to_load={"a"},
            rl_module_ckpt_dirs={"a": tmp_path / "single"},
        )
    other.load_module_state(multi_rl_module_ckpt_dir=tmp_path / "several", modules_to_load={"a"})
    assert same(other.get_weights(), {"a": saved.get_weights()["a"], "b": before["b"]})
    other.load_module_state(
        marl_module_ckpt_dir=tmp_path / "several", rl_module_ckpt_dirs={"b": tmp_path / "single"}
    )
    assert same(other.get_weights(), {"a": saved.get_weights()["a"], "b": single.get_weights()[P]})


@check("LearnerGroup.additional_update")
def use_group_additional_update(backend, tmp_path):
    old, new = group(backend, lr=SCHEDULE), group(backend, lr=SCHEDULE)
    results = old.additional_update(timestep=50, reduce_fn=lambda results: results[0])
    new.foreach_learner(lambda learner: learner.after_gradient_based_update(timesteps=STEPS))
    assert same(old.get_state("optimizer"), new.get_state("optimizer"))
    assert results[P]["default_optimizer_learning_rate"] == pytest.approx(0.005)


# --- configs, specs, batches ---


@check("AlgorithmConfig.build_learner", "AlgorithmConfig.build_learner_group")
def use_build(backend, tmp_path):
    spaces = {P: (OBSERVATIONS, TWO_ACTIONS)}
    plain = PPOConfig().framework(backend).debugging(seed=1)
    learner, one = plain.build_learner(spaces=spaces), plain.build_learner_group(spaces=spaces)
    assert same(learner.get_weights(), one.get_weights())
    cart = plain.build_learner(env=gym.make("CartPole-v1"))
    assert cart.module[P].observation_space.shape == (4,)


@check("AlgorithmConfig.learners", "AlgorithmConfig.resources")
def use_resources(backend, tmp_path):
    old = config(backend).resources(
        num_learner_workers=2, num_cpus_per_learner_worker=3, num_gpus_per_learner_worker=0, local_gpu_idx=1
    )
    new = config(backend).learners(
        num_learners=2, num_cpus_per_learner=3, num_gpus_per_learner=0, local_gpu_idx=1
    )
    assert old == new


@check("AlgorithmConfig.training", "AlgorithmConfig.training(model=)", "AlgorithmConfig.rl_module")
def use_training(backend, tmp_path):
    start = config(backend)
    old = start.training(model={"fcnet_activation": "relu"}, lr=0.1, num_sgd_iter=3, sgd_minibatch_size=8)
    new = start.training(lr=0.1, num_epochs=3, minibatch_size=8)
    assert old == new.rl_module(model_config={"fcnet_hiddens": [4], "fcnet_activation": "relu"})
    assert old == start.rl_module(model_config_dict=old.model_config).training(
        lr=0.1, num_epochs=3, minibatch_size=8
    )


@check("AlgorithmConfig.framework")
def use_framework(backend, tmp_path):
    assert AlgorithmConfig().framework(backend, compile="none").compile == "none"
    with pytest.raises(ConfigError, match="Here: framework"):
        AlgorithmConfig().framework(backend, torch_compile_learner=True)


@check("AlgorithmConfig.get_config_for_module")
def use_config_for_module(backend, tmp_path):
    overrides = {"a": {"lr": 0.5}}
    made = config(backend).rl_module(algorithm_config_overrides_per_module=overrides)
    assert (made.get_config_for_module("a").lr, made.get_config_for_module("b").lr) == (0.5, 0.01)


@check(
    "AlgorithmConfig.get_learner_hyperparameters",
    "AlgorithmConfig.get_learner_group_config",
    "AlgorithmConfig.api_stack",
)
def no_config_method(backend, tmp_path):
    for name in ("get_learner_hyperparameters", "get_learner_group_config", "api_stack"):
        with pytest.raises(AttributeError, match="Here: "):
            getattr(config(backend), name)


@check("SingleAgentRLModuleSpec", "MultiAgentRLModuleSpec", "RLModuleSpec", "MultiRLModuleSpec")
def use_specs(backend, tmp_path):
    old = plugrad.SingleAgentRLModuleSpec(
        observation_space=OBSERVATIONS, action_space=TWO_ACTIONS, model_config_dict={"fcnet_hiddens": [4]}
    )
    assert old == SPEC
    several = plugrad.MultiAgentRLModuleSpec(module_specs={"a": old, "b": old})
    assert several == plugrad.MultiRLModuleSpec(rl_module_specs={"a": SPEC, "b": SPEC})
    learner = PPOLearner(config=config(backend), module_spec=several)
    learner.build()
    assert list(learner.module) == ["a", "b"]
    with pytest.raises(ConfigError, match=r"Here: .*model_config"):
        plugrad.SingleAgentRLModuleSpec(catalog_class=object)


@check("Learner._module")
def use_module(backend, tmp_path):
    (learner,) = learners(backend, 1)
    assert learner._module is learner.module


@check("RLModuleSpec.build", "MultiRLModuleSpec.build", "RLModule.from_checkpoint")
def use_build_of_specs(backend, tmp_path):
    """Own classes are built in test_rllib_habits."""
    with pytest.raises(ConfigError, match="depends on the backend"):
        SPEC.build()
    with pytest.raises(ConfigError, match=r"MultiRLModule\(\{"):
        plugrad.MultiRLModuleSpec(rl_module_specs={"a": SPEC}).build()
    with pytest.raises(ConfigError, match="restore_from_path"):
        plugrad.RLModule.from_checkpoint(tmp_path)


@check(
    "MultiRLModule",
    "MultiRLModule.add_module",
    "MultiRLModule.remove_module",
    "MultiRLModule.forward_train",
    "RLModule.unwrapped",
)
def use_several_modules(backend, tmp_path):
    (learner,) = learners(backend, 1)
    several = plugrad.MultiRLModule()
    several.add_module("a", learner.module[P])
    assert several["a"].unwrapped() is learner.module[P]
    outputs = several.forward_train(
        {"a": learner._convert_batch_type({Columns.OBS: ppo_batch()[Columns.OBS]})}
    )
    assert Columns.ACTION_DIST_INPUTS in outputs["a"]
    assert several.remove_module("a") is learner.module[P]


@check("RLModule.save_to_path", "RLModule.restore_from_path")
def use_modules_on_disk(backend, tmp_path):
    one, other = learners(backend)
    one.update(ppo_batch())
    one.module[P].save_to_path(tmp_path / "weights")
    other.module[P].restore_from_path(tmp_path / "weights")
    assert same(one.get_weights(), other.get_weights())


@check("MultiAgentRLModule", "RLModule.as_multi_agent")
def use_as_multi_agent(backend, tmp_path):
    (learner,) = learners(backend, 1)
    module = learner.module[P]
    several = module.as_multi_agent()
    assert isinstance(several, plugrad.MultiAgentRLModule)
    assert several[P] is module
    assert several.as_multi_agent() is several


@check("SampleBatch", "SampleBatch.as_multi_agent", "MultiAgentBatch", "Columns")
def use_sample_batch(backend, tmp_path):
    old, new = learners(backend)
    batch = plugrad.SampleBatch(ppo_batch())
    assert batch.count == batch.env_steps() == 16
    assert batch[plugrad.SampleBatch.OBS] is batch[Columns.OBS]
    several = batch.as_multi_agent()
    assert (list(several.policy_batches), several.env_steps) == ([P], 16)
    old.update(several), new.update(plugrad.MultiAgentBatch({P: ppo_batch()}, 16))
    assert same(old.get_state(), new.get_state())


CONSTANTS = {
    "DEFAULT_OPTIMIZER": "default_optimizer",
    "DEFAULT_MODULE_ID": P,
    "ALL_MODULES": "__all_modules__",
    "COMPONENT_RL_MODULE": "rl_module",
    "DEFAULT_POLICY_ID": P,
    "POLICY_LOSS_KEY": "policy_loss",
    "VF_LOSS_KEY": "vf_loss",
    "ENTROPY_KEY": "entropy",
    "LEARNER_RESULTS_CURR_LR_KEY": "curr_lr",
    "LEARNER_RESULTS_CURR_KL_COEFF_KEY": "curr_kl_coeff",
}


@check(*CONSTANTS)
def use_constants(backend, tmp_path):
    assert {name: getattr(plugrad, name) for name in CONSTANTS} == CONSTANTS


@check("LearnerGroupConfig", "Catalog", "PPOTorchLearner", "PPOTorchRLModule", "NestedDict", "TrainingData")
def no_class(backend, tmp_path):
    for name in (
        "LearnerGroupConfig",
        "Catalog",
        "PPOTorchLearner",
        "PPOTorchRLModule",
        "NestedDict",
        "TrainingData",
    ):
        absent(plugrad, name)


@check("LearnerGroup(placement_group=)")
def no_placement_group(backend, tmp_path):
    with pytest.raises(TypeError, match="placement_group"):
        LearnerGroup(config=config(backend), placement_group=object())


# --- the walk ---


def is_member_of_the_learner(row: Row) -> bool:
    return row.here == "same" and row.name.startswith("`Learner.") and row.name.strip("`") not in CHECKS


DONE = {}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not is_member_of_the_learner(row)])
def test_a_row_is_as_it_says(name, backend, tmp_path):
    row, function = ROWS[name], CHECKS[name]
    if (function, backend) not in DONE:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(backend, tmp_path)
        DONE[function, backend] = [
            str(each.message) for each in caught if each.category is DeprecationWarning
        ]
    if row.here not in ("same", "none"):
        news = re.findall(r"\w+", row.here)
        assert any(new in message for message in DONE[function, backend] for new in news), row
    assert row.here != "none" or row.differs


def test_every_row_has_a_check_and_every_check_a_row():
    members = {name for name, row in ROWS.items() if is_member_of_the_learner(row)}
    assert {name.removeprefix("Learner.") for name in members} <= set(USES)
    assert set(ROWS) - members == set(CHECKS)
    assert len(ROWS) > 130
    for row in ROWS.values():
        assert set(row.documents.split()) <= set("ABCD"), row
        assert re.fullmatch(r"\d\.\d+\+?( - \d\.\d+)?(, \d\.\d+\+)?", row.ray), row

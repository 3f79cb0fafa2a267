"""RLlib's older names: they work with a warning, and overrides of them are called, once, inside the wrappers."""

import inspect
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from forked import forked
from learning import ValueLearner, digest, flat, ppo_batch, ppo_config, value_config, weights, with_modules

import plugrad
from plugrad import ALL_MODULES, Columns, Learner, hookimpl
from plugrad import DEFAULT_MODULE_ID as P
from plugrad.config import Config
from plugrad.deprecation import older_names
from plugrad.errors import ConfigError, RestoreMismatchError, UnknownModuleError
from plugrad_rllib import NAMES
from plugrad_rllib.additional import OlderUpdates
from plugrad_rllib.arguments import RENAMED_ARGUMENTS
from plugrad_rllib.group import OlderLearnerGroup
from plugrad_rllib.learner import OlderLearner
from plugrad_rllib.modules import OlderRLModule
from plugrad_rllib.saving import OlderSaving
from plugrad_rllib.settings import RENAMED_SETTINGS, OlderConfig

STEPS = {"num_env_steps_sampled_lifetime": 50}
SCHEDULE = [[0, 0.01], [100, 0.0]]


@contextmanager
def warned(*words):
    """A DeprecationWarning that has these words, attributed to this file."""
    with pytest.warns(DeprecationWarning, match=".*".join(words)) as caught:
        yield
    assert {each.filename for each in caught if each.category is DeprecationWarning} == {__file__}


def make(learner_class, **training):
    learner = learner_class(config=value_config(**training))
    learner.build()
    return learner


def mean_square(learner, batch, fwd_out):
    return learner.ops.mean(learner.ops.square(fwd_out[Columns.VF_PREDS] - batch[Columns.VALUE_TARGETS]))


def assert_same_update(old, new, batch=None, **settings):
    """Two learners of one seed end with equal states after an update; returns both results."""
    batch = ppo_batch() if batch is None else batch
    results = old.update(batch, **settings), new.update(batch, **settings)
    assert digest(old.get_state()) == digest(new.get_state())
    return results


# --- names of plugrad -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_an_older_name_is_found_with_a_warning_that_names_the_new_one(name):
    with warned(f"plugrad.{name} is an older name", "use "):
        found = getattr(plugrad, name)
    assert found is not None
    assert name not in plugrad.__all__


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Lerner'"):
        plugrad.Lerner  # noqa: B018


def test_importing_plugrad_warns_of_nothing_and_loads_no_older_class():
    code = "import plugrad, sys; assert 'plugrad_rllib' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:plugrad", "-c", code], check=True)


# --- older methods, called --------------------------------------------------------------------------------------


def test_compute_loss_is_compute_losses_with_their_sum():
    learner = with_modules(value_config(), "a", "b").build_learner()
    batch = {"a": ppo_batch(seed=1), "b": ppo_batch(seed=2)}
    fwd_out = {module_id: learner.module[module_id].forward_train(batch[module_id]) for module_id in batch}
    new = learner.compute_losses(fwd_out=fwd_out, batch=batch)
    with warned("ValueLearner.compute_loss", "use compute_losses"):
        old = learner.compute_loss(fwd_out=fwd_out, batch=batch)
    assert old == {**new, ALL_MODULES: new["a"] + new["b"]}


def test_states_by_older_names():
    learner = with_modules(value_config(lr=0.01), "a", "b").build_learner()
    learner.update({"a": ppo_batch(), "b": ppo_batch()})
    state = learner.get_state()
    with warned("get_module_state", "use get_weights"):
        assert digest(learner.get_module_state()) == digest(learner.get_weights())
    with warned("get_module_state"):
        assert list(learner.get_module_state(["b"])) == ["b"]
    with warned("get_optimizer_state", "_get_optimizer_state"):
        assert digest(learner.get_optimizer_state()) == digest(state["optimizer"])

    other = with_modules(value_config(lr=0.01, seed=2), "a", "b").build_learner()
    with warned("set_module_state", "use set_weights"):
        other.set_module_state(state["rl_module"])
    with warned("set_optimizer_state", "_set_optimizer_state"):
        other.set_optimizer_state(state["optimizer"])
    for component in ("rl_module", "optimizer"):
        assert digest(other.get_state(component)) == digest(learner.get_state(component))


def test_a_state_saved_by_the_older_name_is_a_checkpoint(tmp_path):
    learner = make(ValueLearner)
    learner.update(ppo_batch())
    with warned("save_state", "use save_to_path"):
        learner.save_state(tmp_path)
    assert digest(Learner.get_state(ValueLearner.from_checkpoint(tmp_path))) == digest(learner.get_state())
    other = make(ValueLearner)
    with warned("load_state", "use restore_from_path"):
        other.load_state(tmp_path)
    assert digest(other.get_state()) == digest(learner.get_state())


def test_optimizers_alone_are_saved_and_loaded(tmp_path):
    learner, other = make(ValueLearner), make(ValueLearner)
    learner.update(ppo_batch())
    with warned("_save_optimizers"):
        learner._save_optimizers(tmp_path)
    with warned("_load_optimizers"):
        other._load_optimizers(tmp_path)
    assert digest(other.get_state("optimizer")) == digest(learner.get_state("optimizer"))
    assert (weights(other) != weights(learner)).any()


def test_metadata_and_reset():
    learner = make(ValueLearner)
    with warned("_get_metadata", "get_metadata"):
        assert learner._get_metadata() == learner.get_metadata()
    assert learner.get_metadata()["module_ids"] == [P]
    before = weights(learner)
    learner.update(ppo_batch())
    with warned("_reset"):
        learner._reset()
    assert not learner._check_is_built(error=False)
    learner.build()
    assert (weights(learner) == before).all()


def test_num_iters_is_num_epochs():
    old, new = make(ValueLearner), make(ValueLearner)
    with warned("num_iters=", "use num_epochs="):
        old.update(ppo_batch(), minibatch_size=4, num_iters=3)
    new.update(ppo_batch(), minibatch_size=4, num_epochs=3)
    assert digest(old.get_state()) == digest(new.get_state())


def test_reduce_fn_gets_the_results_of_each_minibatch():
    old, new, reduced = (make(ValueLearner, lr=0.05) for _ in range(3))
    whole = new.update(ppo_batch(), minibatch_size=4, num_epochs=2)
    run = old._update_run
    with warned("reduce_fn="):
        each = old.update(ppo_batch(), minibatch_size=4, num_epochs=2, reduce_fn=None)
    assert old._update_run is run
    assert old.metrics.results[P]["total_loss"] == pytest.approx(whole[P]["total_loss"], rel=1e-6)
    assert len(each) == 8
    losses = [results[P]["total_loss"] for results in each]
    assert len(set(losses)) == 8
    assert np.mean(losses) == pytest.approx(whole[P]["total_loss"], rel=1e-6)
    assert each[0][P]["num_module_steps_trained"] == whole[P]["num_module_steps_trained"]
    assert digest(old.get_state()) == digest(new.get_state())

    with warned("reduce_fn="):
        last = reduced.update(
            ppo_batch(), minibatch_size=4, num_epochs=2, reduce_fn=lambda results: results[-1]
        )
    assert last[P]["total_loss"] == losses[-1]
    assert "total_loss" in reduced.update(ppo_batch())[P]  # and the next update is as ever


@pytest.mark.parametrize(
    "name", ["batch_refs", "episodes_refs", "batches", "data_iterators", "training_data"]
)
def test_what_update_cannot_take_is_an_error_that_names_the_way(name):
    learner = make(ValueLearner)
    with pytest.raises(ConfigError, match=rf"no {name}=. Here: .*update\("):
        learner.update(**{name: []})


# --- additional_update ------------------------------------------------------------------------------------------


def ppo(**training):
    return ppo_config(use_kl_loss=True, kl_coeff=0.2, kl_target=0.01, **training).build_learner()


def test_additional_update_moves_schedules_and_returns_rates():
    old, new = (with_modules(ppo_config(lr=SCHEDULE), "a", "b").build_learner() for _ in range(2))
    with warned("additional_update", "update"):
        results = old.additional_update(timestep=50)
    new.after_gradient_based_update(timesteps=STEPS)
    assert digest(old.get_state()) == digest(new.get_state())
    assert list(results) == ["a", "b"]
    assert results["a"]["default_optimizer_learning_rate"] == pytest.approx(0.005)
    assert results["a"]["default_optimizer_curr_lr"] == pytest.approx(0.005)


def test_additional_update_leaves_other_modules_alone():
    learner = with_modules(ppo_config(lr=SCHEDULE, entropy_coeff=SCHEDULE), "a", "b").build_learner()
    with warned("additional_update_for_module"):
        results = learner.additional_update_for_module(module_id="a", timestep=50)
    assert results["curr_entropy_coeff"] == pytest.approx(0.005)
    state = flat(learner.get_state())
    assert state["optimizer/a_default_optimizer/learning_rate"] == pytest.approx(0.005)
    assert state["optimizer/b_default_optimizer/learning_rate"] == pytest.approx(0.01)
    assert state["coefficients/b/entropy_coeff"] == pytest.approx(0.01)
    with warned("additional_update"), pytest.raises(UnknownModuleError):
        learner.additional_update(timestep=0, module_ids_to_update=["c"])


@pytest.mark.parametrize(("divergence", "factor"), [(0.1, 1.5), (0.001, 0.5), (0.01, 1.0)])
def test_additional_update_of_ppo_takes_sampled_kl_values(divergence, factor):
    learner = ppo()
    for times in (1, 2):
        with warned("additional_update"):
            results = learner.additional_update(timestep=0, sampled_kl_values={P: divergence})
        assert results[P]["curr_kl_coeff"] == pytest.approx(0.2 * factor**times)
    assert float(learner.coefficients[P]["kl_coeff"].numpy()) == pytest.approx(0.2 * factor**2)


def test_the_divergence_that_an_update_reported_moves_the_coefficient_once():
    learner = ppo()
    results = learner.update(ppo_batch())
    moved = results[P]["curr_kl_coeff"]
    with warned("additional_update"):
        again = learner.additional_update(timestep=0, sampled_kl_values={P: results[P]["mean_kl_loss"]})
    assert again[P]["curr_kl_coeff"] == pytest.approx(moved)


# --- overrides --------------------------------------------------------------------------------------------------


class Counting:
    """A plugin that doubles the losses and counts what it wraps."""

    def __init__(self):
        self.calls = 0

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        losses = yield
        self.calls += 1
        return {module_id: 2.0 * loss for module_id, loss in losses.items()}


class NewLosses(ValueLearner):
    def compute_losses(self, *, fwd_out, batch):
        losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
        return {module_id: 3.0 * loss for module_id, loss in losses.items()}


def old_losses():
    class OldLosses(ValueLearner):
        def compute_loss(self, *, fwd_out, batch):
            losses = super().compute_loss(fwd_out=fwd_out, batch=batch)
            return {module_id: 3.0 * losses[module_id] for module_id in fwd_out}

    return OldLosses


def test_an_overridden_compute_loss_is_called_with_a_warning_when_its_class_is_made():
    with warned("OldLosses.compute_loss, an override", "use compute_losses"):
        cls = old_losses()
    old, new = assert_same_update(make(cls), make(NewLosses))
    assert old[P] == pytest.approx(new[P])
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Heir(cls):
            """Its parent was warned of."""

    assert_same_update(make(Heir), make(NewLosses))


def test_an_override_that_is_called_by_its_older_name_runs_once():
    with warned("compute_loss"):
        cls = old_losses()
    batch = {P: ppo_batch()}
    learner = make(cls)
    given = {"fwd_out": {P: learner.module[P].forward_train(batch[P])}, "batch": batch}
    with warned("compute_loss"):
        assert learner.compute_loss(**given) == learner.compute_losses(**given)


def test_wrappers_still_wrap_and_super_reaches_the_provider_once():
    with warned("compute_loss"):
        cls = old_losses()
    reached = []

    class Reached(cls):
        def compute_loss_for_module(self, **given):
            reached.append(given["module_id"])
            return super().compute_loss_for_module(**given)

    plugins = Counting(), Counting()
    old = Reached(config=value_config(), plugins=[plugins[0]])
    new = NewLosses(config=value_config(), plugins=[plugins[1]])
    old.build(), new.build()
    assert_same_update(old, new, minibatch_size=8)
    assert plugins[0].calls == plugins[1].calls == len(reached)  # finite differences: once per parameter


def test_the_sum_under_all_modules_is_what_is_differentiated():
    with warned("compute_loss"):

        class Joint(ValueLearner):
            def compute_loss(self, *, fwd_out, batch):
                losses = super().compute_loss(fwd_out=fwd_out, batch=batch)
                losses[ALL_MODULES] = 3.0 * losses["a"] + losses["b"]
                return losses

    class NewJoint(ValueLearner):
        def compute_losses(self, *, fwd_out, batch):
            losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
            return {"a": 3.0 * losses["a"], "b": losses["b"]}

    learners = [
        with_modules(value_config(learner_class=each), "a", "b").build_learner() for each in (Joint, NewJoint)
    ]
    old, new = assert_same_update(*learners, batch={"a": ppo_batch(seed=1), "b": ppo_batch(seed=2)})
    assert old["a"]["total_loss"] == pytest.approx(new["a"]["total_loss"] / 3)
    assert old[ALL_MODULES]["total_loss"] == pytest.approx(new["a"]["total_loss"] + new["b"]["total_loss"])


def test_an_override_in_a_plain_mixin_is_called_too():
    class Mixin:
        def compute_loss(self, *, fwd_out, batch):
            return {
                module_id: 3.0 * mean_square(self, batch[module_id], fwd_out[module_id])
                for module_id in batch
            }

    with warned("Mixed.compute_loss"):

        class Mixed(Mixin, ValueLearner):
            pass

    assert_same_update(make(Mixed), make(NewLosses))


def test_overrides_of_several_classes_are_a_chain():
    with warned("compute_loss"):
        cls = old_losses()

    class Between(cls):
        def compute_losses(self, *, fwd_out, batch):
            losses = super().compute_losses(fwd_out=fwd_out, batch=batch)
            return {module_id: 5.0 * loss for module_id, loss in losses.items()}

    with warned("Last.compute_loss"):

        class Last(Between):
            def compute_loss(self, *, fwd_out, batch):
                losses = super().compute_loss(fwd_out=fwd_out, batch=batch)
                return {module_id: 7.0 * losses[module_id] for module_id in fwd_out}

    batch = {P: ppo_batch()}
    learner = make(Last)
    fwd_out = {P: learner.module[P].forward_train(batch[P])}
    plain = make(ValueLearner).compute_losses(fwd_out=fwd_out, batch=batch)[P]
    assert learner.compute_losses(fwd_out=fwd_out, batch=batch)[P] == pytest.approx(3 * 5 * 7 * plain)


def test_a_class_with_both_names_is_told_which_one_is_called():
    with warned("Both.compute_loss", "compute_losses alone; it is called"):

        class Both(NewLosses):
            def compute_loss(self, *, fwd_out, batch):
                raise AssertionError("its newer form is in the same class")

            def compute_losses(self, *, fwd_out, batch):
                return super().compute_losses(fwd_out=fwd_out, batch=batch)

    assert_same_update(make(Both), make(NewLosses))


def test_overrides_that_take_hps_get_the_settings_under_their_older_names():
    seen = {}
    with warned(r"compute_loss_for_module\(hps\)", "use config"):

        class Hps(ValueLearner):
            def compute_loss_for_module(self, *, module_id, hps, batch, fwd_out):
                seen["loss"] = float(hps.learning_rate), hps.grad_clip
                return 2.0 * super().compute_loss_for_module(
                    module_id=module_id, hps=hps, batch=batch, fwd_out=fwd_out
                )

            def configure_optimizers_for_module(self, module_id, hps):
                seen["optimizers"] = hps.get_hps_for_module(module_id).learning_rate
                super().configure_optimizers_for_module(module_id, hps)

            def postprocess_gradients_for_module(self, *, module_id, hps, module_gradients_dict):
                seen["gradients"] = hps.grad_clip_by
                return super().postprocess_gradients_for_module(
                    module_id=module_id, hps=hps, module_gradients_dict=module_gradients_dict
                )

    class Config(ValueLearner):
        def compute_loss_for_module(self, **given):
            return 2.0 * super().compute_loss_for_module(**given)

    assert_same_update(*(make(cls, lr=0.01, grad_clip=0.1) for cls in (Hps, Config)))
    assert seen == {"loss": (0.01, 0.1), "optimizers": 0.01, "gradients": "global_norm"}


def test_hps_reach_a_method_that_a_plugin_wraps():
    class Recording:
        @hookimpl(wrapper=True)
        def compute_loss_for_module(self, learner):
            return (yield)

    with warned("hps"):

        class Hps(ValueLearner):
            def compute_loss_for_module(self, *, module_id, hps, batch, fwd_out):
                return super().compute_loss_for_module(
                    module_id=module_id, hps=hps, batch=batch, fwd_out=fwd_out
                )

    learner = Hps(config=value_config(), plugins=[Recording()])
    learner.build()
    assert_same_update(learner, make(ValueLearner))
    batch = ppo_batch()
    given = {"module_id": P, "batch": batch, "fwd_out": learner.module[P].forward_train(batch)}
    with warned("hps="):
        loss = learner.compute_loss_for_module(hps=plugrad.LearnerHyperparameters(grad_clip=1.0), **given)
    assert loss == learner.compute_loss_for_module(config=learner.config, **given)


def test_overridden_additional_updates_are_called_after_each_update():
    calls = []
    with warned("additional_update_for_module"):

        class Additional(ValueLearner):
            def additional_update_for_module(self, *, module_id, config, timestep):
                results = super().additional_update_for_module(
                    module_id=module_id, config=config, timestep=timestep
                )
                calls.append((module_id, timestep))
                return {**results, "mine": len(calls)}

    config = value_config(learner_class=Additional, lr=SCHEDULE)
    learner = with_modules(config, "a", "b").build_learner()
    batch = {"a": ppo_batch()}
    results = learner.update(batch, timesteps=STEPS)
    assert calls == [("a", 50)]
    assert results["a"]["mine"] == 1
    state = flat(learner.get_state("optimizer"))
    assert state["optimizer/a_default_optimizer/learning_rate"] == pytest.approx(0.005)
    assert state["optimizer/b_default_optimizer/learning_rate"] == pytest.approx(
        0.01
    )  # it did not call super()
    learner.update(batch)  # without timesteps the schedules stay, as ever
    assert calls[1:] == [("a", 32)]
    assert flat(learner.get_state("optimizer"))[
        "optimizer/a_default_optimizer/learning_rate"
    ] == pytest.approx(0.005)

    with warned("additional_update"):
        results = learner.additional_update(timestep=100)
    assert calls[2:] == [("a", 100), ("b", 100)]
    assert results["b"]["mine"] == 4
    with warned("additional_update_for_module"):
        learner.additional_update_for_module(module_id="b", config=learner.config, timestep=100)
    assert calls[4:] == [("b", 100)]
    assert results["b"]["default_optimizer_learning_rate"] == pytest.approx(0.0)


def test_an_override_of_ppo_gets_the_sampled_divergence():
    from plugrad_ppo import PPOLearner

    seen = []
    with warned("additional_update"):

        class Mine(PPOLearner):
            def additional_update(self, *, timestep, module_ids_to_update, sampled_kl_values):
                seen.append(sampled_kl_values)
                return super().additional_update(
                    timestep=timestep,
                    module_ids_to_update=module_ids_to_update,
                    sampled_kl_values=sampled_kl_values,
                )

    learner = Mine(config=ppo_config(use_kl_loss=True))
    learner.build()
    results = learner.update(ppo_batch())
    expected = ppo().update(ppo_batch())
    assert seen == [{P: results[P]["mean_kl_loss"]}]
    assert results[P]["curr_kl_coeff"] == pytest.approx(expected[P]["curr_kl_coeff"])


def test_overrides_of_states_stand_in_state_weights_and_checkpoints(tmp_path):
    with warned("get_module_state"), warned("_get_metadata"):

        class Renaming(ValueLearner):
            def get_module_state(self, module_ids=None):
                return {
                    mid: {n: -w for n, w in each.items()} for mid, each in super().get_module_state().items()
                }

            def set_module_state(self, state):
                super().set_module_state(
                    {mid: {n: -w for n, w in each.items()} for mid, each in state.items()}
                )

            def get_optimizer_state(self):
                self.asked = super().get_optimizer_state()
                return self.asked

            def _get_metadata(self):
                return {**super()._get_metadata(), "mine": 1}

    learner, plain = make(Renaming), make(ValueLearner)
    learner.update(ppo_batch()), plain.update(ppo_batch())
    for given in (learner.get_state()["rl_module"], learner.get_weights()):
        assert (given[P]["pi.0.weight"] == -plain.get_weights()[P]["pi.0.weight"]).all()
    assert list(learner.asked) == [f"{P}_default_optimizer"]

    with warned("get_module_state"):
        assert digest(learner.get_module_state()) == digest(learner.get_weights())
    assert learner._get_metadata() == learner.get_metadata()

    learner.save_to_path(tmp_path)
    other = make(Renaming, seed=7)
    other.restore_from_path(tmp_path)
    assert digest(other.get_state()) == digest(learner.get_state())
    assert (weights(other) == weights(learner)).all()
    assert plugrad.checkpoint.load_checkpoint(tmp_path).metadata["mine"] == 1

    before = digest(other.get_state())
    state = learner.get_state()
    state["rl_module"][P]["pi.0.weight"] += 1.0
    state["optimizer"] = {"nothing": {}}
    with pytest.raises(RestoreMismatchError):
        other.set_state(state)
    assert digest(other.get_state()) == before


def test_overridden_saving_is_called(tmp_path):
    with warned("save_state"):

        class Saving(ValueLearner):
            def save_state(self, path):
                super().save_state(path)
                (tmp_path / "note").write_text("saved")

            def load_state(self, path):
                super().load_state(path)
                self.note = (tmp_path / "note").read_text()

            def _save_optimizers(self, path):
                with open(f"{path}/mine", "w") as file:
                    file.write("optimizers")

            def _load_optimizers(self, path):
                with open(f"{path}/mine") as file:
                    self.loaded = file.read()

    learner, other = make(Saving), make(Saving)
    for _ in range(3):
        learner.update(ppo_batch())
        assert learner.save_to_path(tmp_path / "checkpoint") == str(tmp_path / "checkpoint")
    other.restore_from_path(tmp_path / "checkpoint")
    assert (other.note, other.loaded) == ("saved", "optimizers")
    assert digest(other.get_state()) == digest(learner.get_state())


def test_an_overridden_update_with_num_iters_is_called():
    with warned("update.num_iters"):

        class Old(ValueLearner):
            def update(self, batch, *, minibatch_size=None, num_iters=1):
                self.iters = num_iters
                return super().update(batch, minibatch_size=minibatch_size, num_iters=num_iters)

    old, new = make(Old), make(ValueLearner)
    with warned("num_iters="):
        old.update(ppo_batch(), minibatch_size=4, num_epochs=3, timesteps=None)
    new.update(ppo_batch(), minibatch_size=4, num_epochs=3)
    assert old.iters == 3
    assert digest(old.get_state()) == digest(new.get_state())


def test_the_core_spells_the_names_that_the_plugin_knows():
    assert frozenset(NAMES) == older_names.OF_PLUGRAD
    assert dict(older_names.OF_SECTIONS) == {
        **{section: frozenset(names) for section, names in RENAMED_SETTINGS.items()},
        "training": frozenset({"model", *RENAMED_SETTINGS["training"]}),
    }
    overrides = {method: old for method, (_, old) in RENAMED_ARGUMENTS.items() if hasattr(Learner, method)}
    del overrides["additional_update_for_module"]  # an older name itself
    assert dict(older_names.OF_OVERRIDES) == overrides


def test_every_older_attribute_is_replaced_when_the_plugin_is_loaded():
    older_names.older_names("this test")
    for cls in (Learner, plugrad.LearnerGroup, plugrad.RLModule, plugrad.MultiRLModule, Config):
        for name in older_names.OF_CLASSES[cls.__name__]:
            assert not isinstance(inspect.getattr_static(cls, name), older_names.OlderName), name


def test_no_attribute_of_the_plugin_is_unknown_to_the_core():
    sources = {
        "Learner": (OlderLearner, OlderUpdates, OlderSaving),
        "LearnerGroup": (OlderLearnerGroup, OlderSaving),
        "Config": (OlderConfig,),
        "RLModule": (OlderRLModule,),
        "MultiRLModule": (OlderRLModule,),
    }
    for owner, classes in sources.items():
        names = {name for each in classes for name in vars(each) if not name.startswith("__")}
        assert names - {"_additional_update_of"} == set(older_names.OF_CLASSES[owner])


@pytest.mark.parametrize(
    "body",
    [
        "class Mine(Learner):\n    def compute_loss(self, **given): ...",
        "class Mixin:\n    def save_state(self, path): ...\nclass Mine(Mixin, Learner): ...",
        "class Mine(Learner):\n    def update(self, batch, *, num_iters=1): ...",
        "class Mine(Learner):\n    def configure_optimizers_for_module(self, module_id, hps): ...",
        "from plugrad import LearnerGroup\nclass Mine(LearnerGroup):\n    def async_update(self, batch): ...",
        "AlgorithmConfig().training(num_sgd_iter=3)",
        "AlgorithmConfig().resources",
        "Learner.hps",
    ],
)
def test_an_older_name_is_met_wherever_it_stands_first(python, body):
    code = f"import warnings\nwarnings.simplefilter('ignore')\nfrom plugrad import AlgorithmConfig, Learner\n{body}"
    assert "plugrad_rllib" in loaded_after(python, code)


@pytest.mark.parametrize(
    "body",
    [
        "class Mine(Learner):\n    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out): ...",
        "class Mine(Learner):\n    def update(self, batch=None, *, num_epochs=None, **settings): ...",
        "from plugrad import LearnerGroup\nclass Mine(LearnerGroup):\n    def help(self): ...",
        "AlgorithmConfig().training(num_epochs=3)",
        "from plugrad import *",
    ],
)
def test_code_of_today_loads_no_plugin_of_older_names(python, body):
    assert "plugrad_rllib" not in loaded_after(
        python, f"from plugrad import AlgorithmConfig, Learner\n{body}"
    )


@pytest.fixture(scope="module")
def python():
    with forked("import sys\nfrom plugrad import AlgorithmConfig, Learner, LearnerGroup") as python:
        yield python


def loaded_after(python, code):
    done = python.run(f"{code}\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()

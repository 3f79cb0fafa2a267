"""Optimizers of the framework itself, given by the user: stepped, clipped, scheduled, remembered and undone as ours."""

import needs
import numpy as np
import pytest
from learning import ValueLearner, digest, ppo_batch, value_config, weights, with_modules

from plugrad import DEFAULT_MODULE_ID, RLModuleSpec
from plugrad.errors import NonFiniteError, OptimizerError, RestoreMismatchError
from plugrad.hooks.backend_spec import Capability
from plugrad.optimizers import SGD

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
MODES = ["none", "forward_train", "complete_update"]


def momentum(backend, params, lr=0.5):
    """Gradient descent with momentum: the one formula that torch, Keras and plugrad share while the rate stays."""
    if backend == "torch":
        import torch

        return torch.optim.SGD(params, lr, momentum=0.9)
    if backend == "jax":
        import optax

        return optax.inject_hyperparams(optax.sgd)(learning_rate=lr, momentum=0.9)
    import tensorflow as tf

    return tf.keras.optimizers.SGD(lr, momentum=0.9)


def adam(backend, params, lr=0.5):
    if backend == "torch":
        import torch

        return torch.optim.Adam(params, lr)
    if backend == "jax":
        import optax

        return optax.inject_hyperparams(optax.adam)(learning_rate=lr)
    import tensorflow as tf

    return tf.keras.optimizers.Adam(lr)


class Native(ValueLearner):
    """Registers what `make` makes of a module's parameters."""

    make = staticmethod(momentum)

    def configure_optimizers_for_module(self, module_id, config=None):
        config = self.config.get_config_for_module(module_id) if config is None else config
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=self.make(self.config.backend, params),
            params=params,
            lr_or_lr_schedule=config.lr,
        )


class NativeAdam(Native):
    make = staticmethod(adam)


def built(backend, mode="none", learner_class=Native, **settings):
    settings = {"minibatch_size": 8, "lr": 0.01, **settings}
    config = value_config(backend, learner_class=learner_class, **settings)
    return config.framework(backend, compile=mode).build_learner()


def trained(learner, updates=3, rows=32):
    for n in range(updates):
        learner.update(ppo_batch(rows, seed=n))
    return learner


# --- numbers ---


@pytest.fixture(scope="module")
def neutral(backend):
    settings = {"optimizer": {"type": "sgd", "momentum": 0.9}, "grad_clip": 0.5}
    return weights(trained(built(backend, learner_class=ValueLearner, **settings), 5))


@pytest.mark.parametrize("mode", MODES)
def test_twenty_steps_are_those_of_the_neutral_optimizer_in_every_mode(backend, mode, neutral):
    learner = trained(built(backend, mode, grad_clip=0.5), 5)
    np.testing.assert_allclose(weights(learner), neutral, rtol=0, atol=1e-6)
    if backend == "torch" and mode == "complete_update":
        assert "own optimizers step in place" in learner.update_mode
        assert "default_policy_default_optimizer" in learner.update_mode
    else:
        assert learner.update_mode.startswith(mode)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "rmsprop"])
def test_torchs_own_agree_with_ours(kind):
    torch = needs.backend("torch")
    hyperparameters = {
        "adam": {"eps": 1e-5},
        "adamw": {"weight_decay": 0.1},
        "sgd": {"momentum": 0.9, "nesterov": True},
        "rmsprop": {"alpha": 0.9, "momentum": 0.5},
    }[kind]
    theirs = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
        "rmsprop": torch.optim.RMSprop,
    }

    class Torchs(Native):
        make = staticmethod(lambda backend, params: theirs[kind](params, lr=0.5, **hyperparameters))

    ours = built("torch", learner_class=ValueLearner, optimizer={"type": kind, **hyperparameters})
    np.testing.assert_allclose(
        weights(trained(built("torch", learner_class=Torchs), 5)),
        weights(trained(ours, 5)),
        rtol=0,
        atol=1e-6,
    )


def test_beside_a_neutral_one_on_the_same_module(backend):
    class Both(Native):
        natives = ("pi", "vf")

        def configure_optimizers_for_module(self, module_id, config=None):
            params = self.get_parameters(self.module[module_id])
            for prefix in ("pi", "vf"):
                own = [each for each in params if self.get_param_ref(each).split("/")[1].startswith(prefix)]
                native = prefix in self.natives
                self.register_optimizer(
                    module_id=module_id,
                    optimizer_name=prefix,
                    optimizer=self.make(self.config.backend, own) if native else SGD(momentum=0.9),
                    params=own,
                    lr_or_lr_schedule=0.01,
                )

        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            error = super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )
            return error + self.ops.mean(self.ops.square(fwd_out["action_dist_inputs"]))

    class One(Both):
        natives = ("vf",)

    class Neither(Both):
        natives = ()

    found = [weights(trained(built(backend, "auto", each))) for each in (Both, One, Neither)]
    np.testing.assert_allclose(found[0], found[2], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[1], found[2], rtol=0, atol=1e-6)


# --- learning rates ---


def test_a_schedule_moves_the_rate_without_a_new_trace(backend):
    traces: list[int] = []

    class Counting(NativeAdam):
        def compute_losses(self, *, fwd_out, batch):
            traces.append(1)
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

    learner = built(backend, "auto", Counting, lr=[[0, 0.1], [100, 0.0]])
    optimizer = learner.get_optimizer()
    assert learner._get_optimizer_lr(optimizer) == pytest.approx(0.1), "not what the optimizer was made with"
    learner.update(ppo_batch(8), timesteps={"num_env_steps_sampled_lifetime": 100})
    assert (type(learner._get_optimizer_lr(optimizer)), learner._get_optimizer_lr(optimizer)) == (float, 0.0)
    before, seen = weights(learner), len(traces)
    results = learner.update(ppo_batch(8), timesteps={"num_env_steps_sampled_lifetime": 50})
    np.testing.assert_array_equal(weights(learner), before)
    assert results[P]["default_optimizer_learning_rate"] == pytest.approx(0.05)
    assert backend == "torch" or len(traces) == seen


def test_every_param_group_of_torch_gets_it():
    torch = needs.backend("torch")

    class Groups(Native):
        @staticmethod
        def make(backend, params):
            rate = torch.tensor(0.3)
            return torch.optim.SGD([{"params": params[:2]}, {"params": params[2:], "lr": rate}], lr=0.2)

    learner = built("torch", learner_class=Groups)
    groups = learner.get_optimizer().param_groups
    assert [float(group["lr"]) for group in groups] == pytest.approx([0.01, 0.01])
    assert isinstance(groups[1]["lr"], torch.Tensor)
    plain = built("torch", learner_class=ValueLearner, optimizer={"type": "sgd"})
    np.testing.assert_allclose(weights(trained(learner)), weights(trained(plain)), rtol=0, atol=1e-6)


def two_rates(name, params):
    """Gradient descent with momentum: the first two parameters by a rate of 0.2, the others by 0.3."""
    if name == "torch":
        import torch

        groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.3}]
        return torch.optim.SGD(groups, lr=0.2, momentum=0.9)
    import optax

    rates = {
        label: optax.inject_hyperparams(optax.sgd)(learning_rate=rate, momentum=0.9)
        for label, rate in {"first": 0.2, "others": 0.3}.items()
    }
    return optax.multi_transform(
        rates, lambda tree: {ref: "first" if n < 2 else "others" for n, ref in enumerate(tree)}
    )


class TwoRates(Native):
    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        native = two_rates(self.config.backend, params)
        self.register_optimizer(module_id=module_id, optimizer=native, params=params)


def rates_of(learner, module_id=P):
    return learner.get_state()["optimizer"][f"{module_id}_default_optimizer"]["slots"]["learning_rates"]


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_several_rates_that_the_user_keeps_are_part_of_the_state(name, tmp_path):
    needs.backend(name)
    learner = trained(built(name, learner_class=TwoRates))
    other, restored = (built(name, learner_class=TwoRates, seed=seed) for seed in (2, 3))
    other.set_state(learner.get_state())
    restored.restore_from_path(learner.save_to_path(tmp_path / "saves"))
    for each in (learner, other, restored):
        assert rates_of(each) == pytest.approx([0.2, 0.3])
        trained(each, 2)
    assert digest(other.get_state()) == digest(restored.get_state()) == digest(learner.get_state())


def test_a_rate_of_a_param_group_that_the_user_changes_is_part_of_the_state():
    needs.backend("torch")
    learner, other = (trained(built("torch", learner_class=TwoRates)) for _ in range(2))
    learner.get_optimizer().param_groups[1]["lr"] = 0.1
    other.set_state(learner.get_state())
    assert [group["lr"] for group in other.get_optimizer().param_groups] == pytest.approx([0.2, 0.1])
    assert digest(trained(other).get_state()) == digest(trained(learner).get_state())


def test_an_older_state_with_the_first_of_several_rates_is_taken():
    needs.backend("jax")
    learner = trained(built("jax", learner_class=TwoRates))
    state = learner.get_state()
    del state["optimizer"][f"{P}_default_optimizer"]["slots"]["learning_rates"]
    learner.set_state(state)
    assert rates_of(learner) == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_additional_update_leaves_the_rates_of_other_modules_alone(name):
    needs.backend(name)
    learner = with_modules(value_config(name, learner_class=TwoRates), "a", "b").build_learner()
    with pytest.warns(DeprecationWarning, match="additional_update_for_module"):
        learner.additional_update_for_module(module_id="a", timestep=50)
    assert rates_of(learner, "b") == pytest.approx([0.2, 0.3])


# --- state ---


@pytest.mark.parametrize("learner_class", [Native, NativeAdam])
def test_a_fresh_learner_goes_on_where_another_stopped(backend, learner_class, tmp_path):
    learner = trained(built(backend, learner_class=learner_class))
    other, restored = (built(backend, learner_class=learner_class, seed=seed) for seed in (2, 3))
    other.set_state(learner.get_state())
    restored.restore_from_path(learner.save_to_path(tmp_path / "saves"))
    for each in (learner, other, restored):
        trained(each, 2)
    assert digest(other.get_state()) == digest(restored.get_state()) == digest(learner.get_state())


@pytest.mark.parametrize(
    ("backend_name", "name"),
    [("torch", name) for name in ("Adafactor", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop")]
    + [("tf2", "Nadam"), ("tf2", "Adafactor")],
)
def test_slots_that_not_all_parameters_have_or_that_have_no_names_are_saved(backend_name, name):
    framework = needs.backend(backend_name)
    own = getattr(framework.optim if backend_name == "torch" else framework.keras.optimizers, name)

    class Of(Native):
        make = staticmethod(lambda backend, params: own(params, 0.5) if backend == "torch" else own(0.5))

    learner = trained(built(backend_name, learner_class=Of))
    restored = built(backend_name, learner_class=Of, seed=3)
    restored.set_state(learner.get_state())
    assert digest(trained(restored).get_state()) == digest(trained(learner).get_state())


def test_slots_go_by_name_of_slot_and_parameter(backend):
    state = trained(built(backend)).get_state("optimizer")["optimizer"][f"{P}_default_optimizer"]
    slot = {"torch": "momentum_buffer", "tf2": "momentum", "jax": "inner_state.0.trace"}[backend]
    assert state["slots"][slot][f"{P}/vf.0.weight"].shape == (3, 4)
    assert float(state["learning_rate"]) == pytest.approx(0.01)


def test_a_state_from_before_the_first_step_takes_the_slots_away_again(backend):
    learner = built(backend, learner_class=NativeAdam)
    fresh = learner.get_state()
    first = weights(trained(learner))
    learner.set_state(fresh)
    assert digest(learner.get_state()) == digest(fresh)
    np.testing.assert_array_equal(weights(trained(learner)), first)


def test_slots_of_another_optimizer_or_framework_are_refused(backend):
    learner, others = built(backend, learner_class=NativeAdam), trained(built(backend)).get_state()
    before = digest(learner.get_state())
    with pytest.raises(RestoreMismatchError, match=r"missing: .*/slots/(exp_avg|velocity|inner_state)"):
        learner.set_state(others)
    slots = others["optimizer"][f"{P}_default_optimizer"]["slots"]
    theirs = {"torch": "momentum", "tf2": "momentum_buffer", "jax": "momentum"}[backend]
    own = next(name for name in slots if name.startswith(("momentum", "inner_state.0.trace")))
    slots[theirs] = slots.pop(own)
    with pytest.raises(RestoreMismatchError, match=theirs):
        built(backend).set_state(others)
    assert digest(learner.get_state()) == before


# --- undo ---


def spoiled(row):
    batch = ppo_batch(32)
    batch["value_targets"][row] = np.nan
    return batch


@pytest.mark.parametrize("updates", [0, 2])
def test_a_failed_update_puts_the_slots_back(backend, updates):
    learner = trained(built(backend, learner_class=NativeAdam), updates)
    before = digest(learner.get_state())
    with pytest.raises(NonFiniteError):
        learner.update(spoiled(20))
    assert digest(learner.get_state()) == before
    again, straight = (trained(each, 2) for each in (learner, built(backend, learner_class=NativeAdam)))
    if not updates:
        assert digest(again.get_state("optimizer")) == digest(straight.get_state("optimizer"))


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_a_minibatch_that_is_not_finite_is_left_out(backend, mode):
    settings = {"learner_class": NativeAdam, "nonfinite": "skip"}
    skipping, without = built(backend, mode, **settings), built(backend, mode, **settings)
    results = skipping.update(spoiled(5))
    without.update({name: column[8:] for name, column in ppo_batch(32).items()})
    assert results["__all_modules__"]["num_nonfinite_minibatches"] == 1
    np.testing.assert_allclose(weights(skipping), weights(without), rtol=0, atol=1e-7)
    states = [digest(each.get_state("optimizer")) for each in (skipping, without)]
    if mode == "none":
        assert states[0] == states[1]


# --- modules ---


def test_modules_come_and_go_with_theirs(backend):
    config = with_modules(value_config(backend, learner_class=NativeAdam, lr=0.01), "a")
    learner = config.build_learner()
    learner.update({"a": ppo_batch()})
    kept = digest(learner.get_state("optimizer"))
    learner.add_module(module_id="b", module_spec=RLModuleSpec())
    before = weights(learner, "b")
    learner.update({"b": ppo_batch()})
    assert np.abs(weights(learner, "b") - before).max() > 0.001
    learner.remove_module("b")
    assert digest(learner.get_state("optimizer")) == kept


# --- what is refused ---


def _bare(backend):
    class Bare(ValueLearner):
        def configure_optimizers(self):
            pass

    return value_config(backend, learner_class=Bare).build_learner()


def test_the_optimizer_stays_the_users_own_object(backend):
    class Given(ValueLearner):
        def configure_optimizers(self):
            params = self.get_parameters(self.module[P])
            self.given = momentum(backend, params, lr=0.25)
            self.register_optimizer(module_id=P, optimizer=self.given, params=params)

    learner = value_config(backend, learner_class=Given).build_learner()
    assert Capability.FRAMEWORK_OPTIMIZERS in learner.backend_info.capabilities
    assert learner.get_optimizer() is learner.given
    assert learner.get_optimizers_for_module(P) == [("default_optimizer", learner.given)]
    assert learner._get_optimizer_lr(learner.given) == pytest.approx(0.25), "no schedule: the user's own rate"
    with pytest.raises(OptimizerError, match="already"):
        learner.register_optimizer(
            module_id=P,
            optimizer_name="b",
            optimizer=learner.given,
            params=learner.get_parameters(learner.module[P]),
        )


def test_torchs_param_groups_must_be_the_params():
    torch = needs.backend("torch")
    learner = _bare("torch")
    params = learner.get_parameters(learner.module[P])
    for own in (params[1:], [*params, torch.nn.Parameter(torch.zeros(2))]):
        with pytest.raises(
            OptimizerError, match=r"param groups of torch\.optim\.SGD have \d+ parameters.*type params ="
        ):
            learner.register_optimizer(module_id=P, optimizer=torch.optim.SGD(own, 0.1), params=params)
    with pytest.raises(OptimizerError, match="LBFGS needs more"):
        learner.register_optimizer(module_id=P, optimizer=torch.optim.LBFGS(params), params=params)
    assert learner.get_optimizers_for_module() == []


def test_a_keras_optimizer_must_be_new_and_have_a_plain_rate():
    tf = needs.backend("tf2")
    learner = _bare("tf2")
    params = learner.get_parameters(learner.module[P])
    used = tf.keras.optimizers.SGD(0.1)
    used.build(params)
    decaying = tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9))
    scaling = tf.keras.optimizers.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))
    bad = [(used, "built already"), (decaying, "lr_or_lr_schedule="), (scaling, "float32")]
    if hasattr(tf.keras.optimizers, "Muon"):  # it reads the names of Keras' own variables
        bad.append((tf.keras.optimizers.Muon(0.1), "Muon cannot be built for tf.Variables"))
    for optimizer, said in bad:
        with pytest.raises(OptimizerError, match=said):
            learner.register_optimizer(module_id=P, optimizer=optimizer, params=params)
    assert learner.get_optimizers_for_module() == []


def test_what_is_no_optimizer_is_refused(backend):
    learner = _bare(backend)
    params = learner.get_parameters(learner.module[P])
    name = {
        "torch": r"no torch\.optim\.Optimizer",
        "tf2": r"no tf\.keras\.optimizers\.Optimizer",
        "jax": r"no optax\.GradientTransformation",
    }[backend]
    with pytest.raises(OptimizerError, match=f"str is no optimizer of plugrad.optimizers and {name}"):
        learner.register_optimizer(module_id=P, optimizer="adam", params=params)

"""The promise of the contract on every backend: subclasses override, plugins wrap, and each runs exactly once.

Most tests double something and look at how far one step of plain gradient descent goes: a wrapper that is lost leaves
a factor of 2 out, one that runs twice brings another in.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning import LOOKS, ppo_batch, ppo_config, value_config, weights

from plugrad import CONTRACT_VERSION, DEFAULT_MODULE_ID, Columns, Learner, hookimpl
from plugrad.errors import BackendNotFoundError, PluginConflictError, PluginError
from plugrad.hooks.manager import hook_methods
from plugrad.hooks.registry import load_backend
from plugrad.testing.tiny_learners import digest

P = DEFAULT_MODULE_ID


def test_our_backends_are_written_for_the_present_contract(backend: str) -> None:
    assert load_backend(backend).implementation.backend_info().contract_version == CONTRACT_VERSION


def sgd(backend: str, compile_: str = "none", **training: Any) -> Any:
    """One step of gradient descent per update, nothing clipped."""
    settings = {"lr": 0.1, "optimizer": {"type": "sgd"}, "grad_clip": None, **training}
    return ppo_config(backend, **settings).framework(backend, compile=compile_)


def built(config: Any, cls: type[Learner] = Learner, *plugins: Any) -> Learner:
    learner = cls(config=config, plugins=plugins)
    learner.build()
    return learner


def step_of(learner: Learner) -> Any:
    """How far one update moves the weights."""
    before = weights(learner)
    learner.update(ppo_batch())
    return weights(learner) - before


@cache
def plain_step(backend: str) -> Any:
    """The step of a learner without overrides and plugins."""
    return step_of(built(sgd(backend)))


def assert_factor(learner: Learner, factor: float) -> None:
    """Its first step is `factor` times the plain one."""
    expected = factor * plain_step(learner.config.backend)
    assert np.linalg.norm(expected) > 1e-2
    assert np.linalg.norm(step_of(learner) - expected) < 1e-4 * np.linalg.norm(expected)


# --- what doubles a step, hook by hook ----------------------------------------------------------------------------


def doubled(values: Any) -> dict[str, Any]:
    return {name: 2.0 * value for name, value in values.items()}


def doubled_clip(clip: Any) -> Any:
    def double(*args: Any, **kwargs: Any) -> Any:
        clipped, norm = clip(*args, **kwargs)
        return doubled(clipped), norm

    return double


DOUBLE: dict[str, Callable[[Any], Any]] = {
    "compute_losses": doubled,
    "compute_loss_for_module": lambda loss: 2.0 * loss,
    "differentiate": lambda answer: (answer[0], answer[1], doubled(answer[2])),
    "compute_gradients": doubled,
    "reduce_gradients": doubled,
    "postprocess_gradients": doubled,
    "postprocess_gradients_for_module": doubled,
    "get_clip_function": doubled_clip,
}
METHODS = {hook: method for method, hook in hook_methods(Learner).items()}


def wrapper(hook: str, change: Callable[[Any], Any]) -> Any:
    """A listener that wraps one hook."""

    @hookimpl(wrapper=True)
    def function(self) -> Iterator[Any]:
        return change((yield))

    return type(f"Wraps_{hook}", (), {hook: function})()


def overriding(hook: str, change: Callable[[Any], Any], *bases: type) -> type[Any]:
    """A class whose method changes what `super()` gives; a plain mixin without bases."""
    method = METHODS[hook]

    def override(self, *args: Any, **kwargs: Any) -> Any:
        return change(getattr(super(cls, self), method)(*args, **kwargs))

    cls = type(f"Overrides_{hook}", bases, {method: override})
    return cls


@pytest.mark.smoke
@pytest.mark.parametrize("hook", DOUBLE)
def test_a_wrapper_changes_what_the_step_uses(backend, hook):
    assert_factor(built(sgd(backend), Learner, wrapper(hook, DOUBLE[hook])), 2)


@pytest.mark.parametrize("hook", ["compute_losses", "differentiate"])
def test_an_override_changes_what_the_step_uses_and_super_goes_down_once(backend, hook):
    assert_factor(built(sgd(backend), overriding(hook, DOUBLE[hook], Learner)), 2)


@pytest.mark.parametrize("hook", ["compute_losses", "compute_loss_for_module", "compute_gradients"])
def test_a_wrapper_wraps_an_override_and_is_not_run_again_by_its_super(backend, hook):
    cls = overriding(hook, DOUBLE[hook], Learner)
    assert_factor(built(sgd(backend), cls, wrapper(hook, DOUBLE[hook])), 4)


def test_an_override_of_apply_gradients_decides_what_is_applied(backend):
    class Twice(Learner):
        def apply_gradients(self, gradients_dict):
            super().apply_gradients(doubled(gradients_dict))

    applied = wrapper("apply_gradients", lambda nothing: nothing)
    assert_factor(built(sgd(backend), Twice, applied), 2)


def test_mixins_and_generations_of_subclasses_each_run_once(backend):
    parent = overriding("compute_losses", doubled, Learner)
    mixins = [overriding("compute_losses", doubled) for _ in range(2)]
    cls = type("Child", (*mixins, parent), {})
    wrappers = [wrapper("compute_losses", doubled) for _ in range(2)]
    assert_factor(built(sgd(backend), cls, *wrappers), 2**5)


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_wrappers_of_several_hooks_add_up_in_every_mode(backend, mode):
    hooks = ["compute_losses", "compute_loss_for_module", "compute_gradients"]
    plugins = [wrapper(hook, DOUBLE[hook]) for hook in hooks]
    assert_factor(built(sgd(backend, mode), Learner, *plugins), 8)


def test_plugins_belong_to_one_learner(backend):
    wrapped, plain = built(sgd(backend), Learner, wrapper("compute_losses", doubled)), built(sgd(backend))
    assert_factor(plain, 1)
    assert_factor(wrapped, 2)


# --- an overridden _update ----------------------------------------------------------------------------------------


class CallsSuper(Learner):
    def _update(self, batch):
        return super()._update(batch)


class StepsItself(Learner):
    """A step of its own, as users of RLlib write it."""

    def _update(self, batch):
        variables = [each.optimizer.parameters for each in self.registered_optimizers.values()]

        def loss_fn():
            fwd_out = {each: self.module[each].forward_train(rows) for each, rows in batch.items()}
            return self.compute_losses(fwd_out=fwd_out, batch=batch), fwd_out

        losses, fwd_out, gradients = self._differentiate(variables, loss_fn)
        self.apply_gradients(self.postprocess_gradients(gradients))
        return fwd_out, losses, {}


@pytest.mark.parametrize("cls", [CallsSuper, StepsItself])
@pytest.mark.parametrize("hook", ["compute_losses", "compute_gradients"])
def test_a_wrapper_is_honoured_by_an_overridden_update(backend, cls, hook):
    assert_factor(built(sgd(backend), cls, wrapper(hook, DOUBLE[hook])), 2)


def test_an_overridden_update_can_itself_be_wrapped(backend):
    seen = []

    class Watches:
        @hookimpl(wrapper=True)
        def update(self, learner, batch):
            fwd_out, losses, metrics = yield
            seen.append((type(learner), list(batch), list(fwd_out), list(losses)))
            return fwd_out, losses, metrics

    assert_factor(built(sgd(backend), CallsSuper, Watches()), 1)
    assert seen == [(CallsSuper, [P], [P], [P])]


# --- in which order, and how often --------------------------------------------------------------------------------


class Diary:
    """Wraps the loss and writes down when it is entered and left."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        self.log.append(f"{self.name} in")
        losses = yield
        self.log.append(f"{self.name} out")
        return losses


def writes(log: list[str]) -> type[Learner]:
    class Writes(Learner):
        def compute_losses(self, **arguments):
            log.append("class in")
            losses = super().compute_losses(**arguments)
            log.append("class out")
            return losses

    return Writes


ONCE = ["b in", "a in", "class in", "class out", "a out", "b out"]


def test_the_last_plugin_is_outermost_and_the_class_last_of_all(backend):
    log: list[str] = []
    learner = built(sgd(backend), writes(log), Diary("a", log), Diary("b", log))
    learner.update(ppo_batch())
    assert log == ONCE * (1 + LOOKS.get(backend, 0))


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_in_a_compiled_program_hooks_run_once_when_it_is_traced(backend, mode):
    log: list[str] = []
    learner = built(sgd(backend, mode, minibatch_size=8), writes(log), Diary("a", log), Diary("b", log))
    for seed in range(3):
        learner.update(ppo_batch(seed=seed))
    eager = "eager" in learner.update_mode
    assert log == ONCE * (LOOKS.get(backend, 0) + (3 * 2 if eager else 1))


class Ordered:
    """Writes down when it is entered and left, and changes the losses."""

    def __init__(self, name: str, log: list[str], change: Callable[[Any], Any]) -> None:
        self.name, self.log, self.change = name, log, change

    def around(self) -> Iterator[Any]:
        self.log.append(f"{self.name} in")
        losses = yield
        self.log.append(f"{self.name} out")
        return self.change(losses)


class First(Ordered):
    @hookimpl(wrapper=True, tryfirst=True)
    def compute_losses(self):
        return (yield from self.around())


class Between(Ordered):
    @hookimpl(wrapper=True)
    def compute_losses(self):
        return (yield from self.around())


class Last(Ordered):
    @hookimpl(wrapper=True, trylast=True)
    def compute_losses(self):
        return (yield from self.around())


@pytest.mark.parametrize("mode", ["none", "complete_update"])
def test_three_plugins_stand_where_their_marks_say_and_one_doubles_what_is_applied(backend, mode):
    """tryfirst is outermost and trylast innermost, though they were registered the other way round."""
    log: list[str] = []
    changes = {First: lambda losses: losses, Between: doubled, Last: lambda losses: losses}
    plugins = [cls(cls.__name__, log, change) for cls, change in changes.items()]
    learner = built(sgd(backend, mode), Learner, *plugins)
    assert_factor(learner, 2)
    assert learner.update_mode.startswith(mode), learner.update_mode
    assert log[:6] == ["First in", "Between in", "Last in", "Last out", "Between out", "First out"]


# --- a plugin that raises -----------------------------------------------------------------------------------------


def raising(hook: str, moment: str) -> Any:
    """A listener that raises before or after what it wraps."""

    @hookimpl(wrapper=True)
    def function(self) -> Iterator[Any]:
        if moment == "before":
            raise ZeroDivisionError("its own")
        yield
        raise ZeroDivisionError("its own")

    return type("Raises", (), {hook: function})()


@pytest.mark.parametrize("mode", ["none", "complete_update"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("hook", ["compute_losses", "after_gradient_based_update"])
def test_an_error_of_a_plugin_names_it_and_changes_nothing(backend, hook, moment, mode):
    around = [wrapper(hook, lambda answer: answer) for _ in range(2)]
    learner = built(sgd(backend, mode), Learner, around[0], raising(hook, moment), around[1])
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError, match="its own") as raised:
        learner.update(ppo_batch())
    with_error_note = [note for note in raised.value.__notes__ if note.startswith("raised by")]
    assert with_error_note == [f"raised by listener 'Raises', hook {hook!r}"]
    assert digest(learner.get_state()) == before


def test_an_error_below_a_wrapper_is_not_the_wrappers(backend):
    class Fails(Learner):
        def compute_losses(self, **arguments):
            raise ZeroDivisionError("the class's own")

    learner = built(sgd(backend), Fails, wrapper("compute_losses", lambda losses: losses))
    with pytest.raises(ZeroDivisionError, match="the class's own") as raised:
        learner.update(ppo_batch())
    assert not any("Wraps" in note for note in getattr(raised.value, "__notes__", []))


def test_what_runs_around_super_runs_once_per_update(backend):
    """PPO itself wraps this hook: its coefficient moves by one factor per update, not two."""
    calls = []

    class Counts(Learner):
        def after_gradient_based_update(self, *, timesteps):
            calls.append(timesteps)
            super().after_gradient_based_update(timesteps=timesteps)

    config = sgd(backend, use_kl_loss=True, kl_coeff=0.2, kl_target=1e-9)
    learner = built(config, Counts, wrapper("after_gradient_based_update", lambda nothing: nothing))
    results = learner.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 5})
    assert results[P]["curr_kl_coeff"] == pytest.approx(0.3)
    assert calls == [{"num_env_steps_sampled_lifetime": 5}]


# --- every hook ---------------------------------------------------------------------------------------------------


def wraps_everything(heard: set[str]) -> Any:
    """A listener that wraps every hook of a method and changes nothing."""

    def passes(hook: str) -> Any:
        @hookimpl(wrapper=True)
        def function(self) -> Iterator[Any]:
            heard.add(hook)
            return (yield)

        return function

    return type("WrapsEverything", (), {hook: passes(hook) for hook in METHODS})()


def test_every_hook_of_a_method_is_heard_and_a_wrapper_that_does_nothing_changes_nothing(backend):
    heard: set[str] = set()
    config = sgd(backend, optimizer={"type": "adam"}, grad_clip=0.5, lr=[[0, 0.01], [100, 0.1]])
    learner, plain = built(config, Learner, wraps_everything(heard)), built(config)
    for each in (learner, plain):
        each.update(ppo_batch(), timesteps={"num_env_steps_sampled_lifetime": 10})
    np.testing.assert_array_equal(weights(learner), weights(plain))
    asked_by_users = {
        "get_optimizer",
        "get_optimizers_for_module",
        "get_exploration_inputs",
        "get_exploration_tensors",
        "jvp",
        "hvp",
    }
    of_others = {
        "wrap_module",
        "export_onnx",
        "batch_program",
        "seeded_generators",
    }  # users' models, many seeds
    assert set(METHODS) - heard <= asked_by_users | of_others
    assert learner.get_optimizers_for_module(P)[0][1] is learner.get_optimizer()
    learner.compute_actions(ppo_batch()["obs"])
    learner.compute_actions(learner.ops.asarray(ppo_batch()["obs"]), as_tensors=True)
    vectors = {name: each for name, each in learner.get_weights()[P].items() if name.startswith("vf.")}
    for product in (learner.jvp, learner.hvp):
        product(P, lambda: mean_of_values(learner), vectors)
    assert heard == set(METHODS) - of_others


def mean_of_values(learner: Any) -> Any:
    obs = learner.ops.asarray(ppo_batch()["obs"])
    return learner.ops.mean(learner.module[P].forward_train({"obs": obs})["vf_preds"])


def test_a_wrapped_method_takes_arguments_as_the_method_does(backend):
    heard: set[str] = set()
    learner, plain = built(sgd(backend), Learner, wraps_everything(heard)), built(sgd(backend))
    for each in (learner, plain):
        (param, *_) = each.get_parameters(each.module[P])
        assert each.get_param_ref(param) == each.get_param_ref(param=param) == f"{P}/pi.0.weight"
        assert each.should_module_be_updated(P)
        assert each.should_module_be_updated(module_id=P, multi_agent_batch=None)
        assert each.get_optimizer(P) is each.get_optimizer(module_id=P)
        with pytest.raises(TypeError, match="modul_id"):
            each.get_optimizer(modul_id=P)


# --- who may answer -----------------------------------------------------------------------------------------------


def test_a_second_backend_on_a_learner_is_an_error_that_names_both(backend):
    second = load_backend("numpy").implementation
    words = rf"listener 'plugrad.testing.numpy_backend' answers .*; backend '{backend}' answers it already"
    with pytest.raises(PluginConflictError, match=words):
        built(sgd(backend), Learner, second)


def test_a_listener_that_answers_the_loss_is_told_who_does(backend):
    class Answers:
        @hookimpl
        def compute_loss_for_module(self, fwd_out):
            return fwd_out[Columns.VF_PREDS]

    words = r"listener 'Answers' answers 'compute_loss_for_module', .*; algorithm 'ppo' .*wrapper=True"
    with pytest.raises(PluginConflictError, match=words):
        built(sgd(backend), Learner, Answers())


def test_a_wrapper_that_nothing_would_run_is_an_error(backend):
    with pytest.raises(PluginError, match="'Wraps_ops' wraps 'ops', which cannot be wrapped"):
        built(sgd(backend), Learner, wrapper("ops", lambda ops: ops))


def test_a_misspelt_backend_is_an_error_with_the_closest(backend):
    with pytest.raises(BackendNotFoundError, match=rf"no backend '{backend}x'; .*Did you mean '{backend}'\?"):
        ppo_config(f"{backend}x").build_learner()


def test_a_misspelt_hook_is_an_error_with_the_closest(backend):
    class Misspelt:
        @hookimpl(wrapper=True)
        def compute_loses(self, learner):
            return (yield)

    with pytest.raises(PluginError, match=r"'Misspelt' implements 'compute_loses'.*'compute_losses'\?"):
        built(sgd(backend), Learner, Misspelt())


def test_a_plain_config_needs_a_loss_and_says_where(backend):
    words = "Learner has no loss: PlainConfig belongs to no algorithm; .* override compute_loss_for_module"
    with pytest.raises(PluginError, match=words) as refused:
        built(value_config(backend, learner_class=Learner))
    assert refused.value.facts == {"hook": "compute_loss_for_module"}


def joint_loss(learner: Learner, fwd_out: Any, batch: Any) -> dict[str, Any]:
    return {each: learner.ops.mean(out[Columns.VF_PREDS] * batch[each]["x"]) for each, out in fwd_out.items()}


class JointLoss(Learner):
    def compute_losses(self, *, fwd_out, batch):
        return joint_loss(self, fwd_out, batch)


class OwnStep(StepsItself, JointLoss):
    """Its loss is in `compute_losses`, its step its own."""


@pytest.mark.parametrize("cls", [JointLoss, OwnStep])
def test_a_loss_of_ones_own_is_loss_enough(backend, cls):
    learner = built(value_config(backend, learner_class=cls), cls)
    before = weights(learner)
    rng = np.random.default_rng(0)
    learner.update({Columns.OBS: rng.normal(size=(8, 3)), "x": np.ones(8, np.float32)})
    assert (weights(learner) != before).any()


# --- listeners by name --------------------------------------------------------------------------------------------

EARS = """
from plugrad import hookimpl
heard = []
@hookimpl
def learner_built(learner):
    heard.append(learner)
@hookimpl(wrapper=True)
def compute_losses():
    losses = yield
    return {module_id: 2.0 * loss for module_id, loss in losses.items()}
"""


@pytest.fixture
def ears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A listener that is installed under the name 'ears'."""
    info = tmp_path / "plugrad_ears-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugrad-ears\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[plugrad.plugins]\nears = plugrad_ears\n")
    (tmp_path / "plugrad_ears.py").write_text(EARS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import plugrad_ears  # type: ignore[import-not-found]

    yield plugrad_ears
    del sys.modules["plugrad_ears"]


@pytest.mark.parametrize(("named", "asked"), [(("ears",), None), ((), "ears")])
def test_a_listener_that_config_or_environment_names_hears_and_wraps(
    backend, ears, monkeypatch, named, asked
):
    if asked is not None:
        monkeypatch.setenv("PLUGRAD_PLUGINS", asked)
    learner = sgd(backend).plugins(*named).build_learner()
    assert ears.heard == [learner]
    assert_factor(learner, 2)


def test_a_listener_that_nobody_names_is_not_there(backend, ears, monkeypatch):
    monkeypatch.setenv("PLUGRAD_PLUGINS", "none")
    sgd(backend).build_learner()
    assert ears.heard == []

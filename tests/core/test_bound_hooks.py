"""Hooks are bound when a learner is built: which names there are, and what a call costs."""

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace

import numpy as np
import pytest
from forked import forked

from plugrad import hookimpl
from plugrad.errors import OptimizerError, PluginError, UnknownParameterError
from plugrad.hooks.gradient_spec import GradientSpec
from plugrad.hooks.manager import HookManager, Plugin, has_one_answer, specifications
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_config, tiny_learner

SIGNATURES = Path(__file__).with_name("hook_signatures.txt")


def signatures() -> list[str]:
    """`name(arguments) -> one answer`, or `all answers`, of every hook."""
    return [
        f"{name}({', '.join(spec.__code__.co_varnames[1 : spec.__code__.co_argcount])})"
        f" -> {'one answer' if has_one_answer(spec) else 'all answers'}"
        for name, spec in sorted(specifications().items())
    ]


def test_every_hook_has_the_name_arguments_and_answers_that_plugins_were_written_for():
    """A hook may be added: add its line. No line may change or go."""
    assert signatures() == SIGNATURES.read_text().splitlines()


def frames_below(call, *, until: str) -> int:
    """The Python frames from a call to the function with a name, that function's included."""
    found, here = [], sys._getframe()

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == until and not found:
            above, number = frame, 0
            while above is not None and above is not here:
                above, number = above.f_back, number + 1
            found.append(number - 1)  # without the lambda that calls

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found[0]


def test_a_hook_that_is_called_without_a_config_gets_that_of_its_module():
    learner = tiny_learner("numpy", grad_clip=0.5, grad_clip_by="value")
    parameters = learner.get_parameters(learner.module["default_policy"])
    gradients = {learner.get_param_ref(each): 2.0 * np.ones_like(each.numpy()) for each in parameters}
    clipped = learner.postprocess_gradients_for_module(
        module_id="default_policy", module_gradients_dict=gradients
    )
    assert clipped.keys() == gradients.keys()
    assert all((np.asarray(each) == 0.5).all() for each in clipped.values())
    assert learner.get_noise_columns("default_policy") == {}
    with pytest.raises(OptimizerError, match="'default_optimizer' already"):
        learner.configure_optimizers_for_module("default_policy")


def test_a_hook_that_nobody_wraps_is_one_call_of_the_provider():
    learner = tiny_learner("numpy")
    below = frames_below(
        lambda: learner.before_gradient_based_update(timesteps={}), until="before_gradient_based_update"
    )
    assert below == 1
    below = frames_below(lambda: learner._convert_to_numpy({}), until="convert_to_numpy")
    assert below == 1


class Calls:
    """Wraps a hook and notes it."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    @hookimpl(wrapper=True)
    def before_gradient_based_update(self):
        self.calls.append(self.name)
        answer = yield
        self.calls.append(f"{self.name} ends")
        return answer


def test_a_hook_that_is_wrapped_runs_the_wrappers_and_then_the_override():
    calls: list[str] = []

    class Own(ActorCriticLearner):
        def before_gradient_based_update(self, *, timesteps):
            calls.append("override")
            super().before_gradient_based_update(timesteps=timesteps)

    learner = Own(config=tiny_config("numpy"), plugins=[Calls("inner", calls), Calls("outer", calls)])
    learner.build()
    learner.update(tiny_batch())
    assert calls == ["outer", "inner", "override", "inner ends", "outer ends"]


def test_a_wrapper_around_a_hook_that_nobody_overrides_ends_at_the_provider():
    calls: list[str] = []
    learner = ActorCriticLearner(config=tiny_config("numpy"), plugins=[Calls("only", calls)])
    learner.build()
    learner.before_gradient_based_update(timesteps={})
    assert calls == ["only", "only ends"]


def test_an_override_is_called_and_reaches_the_provider_by_super():
    calls = []

    class Own(ActorCriticLearner):
        def get_parameters(self, module):
            calls.append(module)
            return super().get_parameters(module)

    learner = Own(config=tiny_config("numpy"))
    learner.build()
    found = learner.get_parameters(learner.module["default_policy"])
    assert len(found) == len(tiny_learner("numpy").get_parameters(learner.module["default_policy"])) > 0
    assert calls[-1] is learner.module["default_policy"]


def test_an_attribute_that_was_set_before_the_build_is_called_in_place_of_the_provider():
    learner = ActorCriticLearner(config=tiny_config("numpy"))
    calls = []
    learner.before_gradient_based_update = lambda *, timesteps: calls.append(timesteps)
    learner.build()
    learner.update(tiny_batch())
    assert calls == [{}]


def test_a_build_after_a_failed_one_binds_the_hooks_anew():
    class FailsOnce(ActorCriticLearner):
        fails = True

        def configure_optimizers(self):
            if self.fails:
                self.fails = False
                raise ZeroDivisionError
            super().configure_optimizers()

    learner = FailsOnce(config=tiny_config("numpy"))
    with pytest.raises(ZeroDivisionError):
        learner.build()
    learner.build()
    other = tiny_learner("numpy")
    learner.update(tiny_batch())
    other.update(tiny_batch())
    assert (
        learner.get_weights()["default_policy"]["pi.0.weight"]
        == other.get_weights()["default_policy"]["pi.0.weight"]
    ).all()


def test_a_provider_that_takes_some_of_the_arguments_is_called_with_them():
    learner = tiny_learner("numpy")
    inputs = learner._get_exploration_inputs(module_id="default_policy", fwd_out={"action_dist_inputs": 7})
    assert inputs == 7


def test_a_plugin_that_is_registered_after_the_build_is_refused_by_name():
    learner = tiny_learner("numpy")
    with pytest.raises(PluginError, match=r"'Late'.*registered after the learner was built.*config\.plugins"):
        learner._hooks._pluggy.register(Late())


class Late:
    """Comes after the build."""

    @hookimpl
    def update_ended(self, results):
        raise AssertionError("nobody calls it")


def test_a_hook_with_defaults_is_one_call_of_the_provider_whichever_arguments_are_left_out():
    learner = tiny_learner("numpy")
    for call in (
        lambda: learner.should_module_be_updated("default_policy"),
        lambda: learner.should_module_be_updated("default_policy", None),
        lambda: learner.should_module_be_updated(multi_agent_batch=None, module_id="default_policy"),
    ):
        assert frames_below(call, until="should_module_be_updated") == 1
        assert call() is True
    assert frames_below(lambda: learner.get_optimizer(), until="get_optimizer") == 1
    assert learner.get_optimizer("default_policy") is learner.get_optimizer()


def test_a_bound_hook_takes_named_arguments_only_where_its_method_does():
    learner = tiny_learner("numpy")
    with pytest.raises(TypeError, match="positional"):
        learner.register_optimizer("default_policy", "mine", None, [])
    with pytest.raises(TypeError, match="params"):
        learner.register_optimizer(optimizer=learner.get_optimizer())


class Gradients:
    """A backend whose gradients are what it is called with."""

    @hookimpl
    def compute_gradients(self, learner, loss_per_module, kwargs):
        return {"learner": learner, "losses": loss_per_module, **kwargs}


@hookimpl
def compute_gradients(learner, loss_per_module, kwargs):
    """The same as a function."""
    return {"learner": learner, "losses": loss_per_module, **kwargs}


@pytest.mark.parametrize("is_method", [True, False])
def test_a_provider_takes_further_named_arguments_as_its_last_one_without_a_call_in_between(is_method):
    implementation = Gradients() if is_method else SimpleNamespace(compute_gradients=compute_gradients)
    hooks = HookManager([Plugin("backend", "mine", implementation)], {})
    bound = hooks.bound_provider("compute_gradients", "a learner", GradientSpec.compute_gradients)
    assert bound({"p0": 1.0}, tape=3) == {"learner": "a learner", "losses": {"p0": 1.0}, "tape": 3}
    assert bound(loss_per_module={}) == {"learner": "a learner", "losses": {}}
    assert frames_below(lambda: bound({}, a=1), until="compute_gradients") == 1


def test_a_wrapper_of_a_hook_with_defaults_gets_the_arguments_that_were_left_out():
    seen = []

    class Sees:
        @hookimpl(wrapper=True)
        def should_module_be_updated(self, learner, module_id, multi_agent_batch):
            seen.append((module_id, multi_agent_batch))
            return (yield)

    learner = tiny_learner("numpy", plugins=[Sees()])
    assert learner.should_module_be_updated("default_policy") is True
    assert seen == [("default_policy", None)]


def test_applying_gradients_is_the_learners_check_and_the_provider():
    learner = tiny_learner("numpy")
    version = learner.weights_version
    found = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "apply_gradients":
            found.append(Path(frame.f_code.co_filename).name)

    sys.setprofile(look)
    try:
        learner.apply_gradients({})
    finally:
        sys.setprofile(None)
    assert len(found) == 2
    assert found[0] == "learner.py"
    assert learner.weights_version == version + 1
    with pytest.raises(UnknownParameterError):
        learner.apply_gradients({"default_policy/nothing": 0.0})


def frames_of_a_hook_that_fills_in_the_config(**config) -> int:
    learner = tiny_learner("numpy", grad_clip=0.5, grad_clip_by="value")
    parameters = learner.get_parameters(learner.module["default_policy"])
    gradients = {learner.get_param_ref(each): 2.0 * np.ones_like(each.numpy()) for each in parameters}
    return frames_below(
        lambda: learner.postprocess_gradients_for_module(
            module_id="default_policy", module_gradients_dict=gradients, **config
        ),
        until="postprocess_gradients_for_module",
    )


@pytest.mark.parametrize("given", ["", 'config=tiny_config("numpy")'])
def test_a_hook_that_fills_in_the_config_is_one_call_of_the_cores_provider(given):
    """In a process of its own: where a program uses names of older versions, this hook takes `hps`, by a frame."""
    with forked("from test_bound_hooks import *", Path(__file__).parent) as python:
        done = python.run(f"print(frames_of_a_hook_that_fills_in_the_config({given}))")
    assert done.stdout == "1\n", done.stderr


def test_a_provider_whose_config_is_always_one_gets_it_where_it_is_left_out():
    configs = []

    @hookimpl
    def postprocess_gradients_for_module(learner, module_id, config, module_gradients_dict):
        configs.append(config)
        return module_gradients_dict

    own = SimpleNamespace(postprocess_gradients_for_module=postprocess_gradients_for_module)

    class OfAlgorithm(ActorCriticLearner):
        def _plugins(self):
            return [*super()._plugins(), Plugin("algorithm", "own", own)]

    learner = OfAlgorithm(config=tiny_config("numpy"))
    learner.build()
    answer = learner.postprocess_gradients_for_module(module_id="default_policy", module_gradients_dict={})
    assert answer == {}
    assert configs == [learner.config_view("default_policy")]

"""Modules that come and go, on the numpy backend: the others stay as they are, an error changes nothing."""

import tempfile

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from learning import OBSERVATIONS, TWO_ACTIONS, digest, flat, ppo_batch, ppo_config, with_modules

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Learner, MultiRLModuleSpec, RLModuleSpec, hookimpl
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import (
    BatchError,
    ConfigError,
    NotBuiltError,
    OptimizerError,
    RestoreMismatchError,
    UnknownModuleError,
)
from plugrad.learner.update.optimizers import registration_of
from plugrad.optimizers import make_optimizer
from plugrad.rl_module.random_module import RandomRLModule

SPEC = RLModuleSpec(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
OTHER = RLModuleSpec(
    observation_space=gym.spaces.Box(-1, 1, (2,)),
    action_space=gym.spaces.Discrete(3),
    model_config={"fcnet_hiddens": [3]},
)


def built(*module_ids, cls=Learner, plugins=(), **training):
    config = ppo_config(**{"shuffle_batch_per_epoch": True, "minibatch_size": 8, **training})
    learner = cls(config=with_modules(config, *module_ids), plugins=plugins)
    learner.build()
    return learner


def train(learner, *module_ids, seed=0):
    return learner.update({each: ppo_batch(seed=seed) for each in module_ids})


def part(learner, module_id):
    """Everything of one module in the state, by path."""
    whole = digest(learner.get_state())
    names = (f"/{module_id}/", f"/{module_id}_default_optimizer/")
    return {
        path: each
        for path, each in whole.items()
        if any(name in f"/{path}/" for name in names) or path.endswith(f"/{module_id}")
    }


def everything(learner):
    """What an error must leave alone."""
    return (
        digest(learner.get_state()),
        learner.config,
        list(learner.module.items()),
        list(learner.registered_optimizers.items()),
    )


class Diary:
    def __init__(self):
        self.heard = []

    @hookimpl
    def module_added(self, learner, module_id):
        self.heard.append(("added", module_id, sorted(learner.module)))

    @hookimpl
    def module_removed(self, learner, module_id):
        self.heard.append(("removed", module_id, sorted(learner.module)))


# --- what comes and goes -------------------------------------------------------------------------------------------


def test_a_module_is_added_trained_and_removed_and_nothing_of_it_stays():
    learner = built("a")
    train(learner, "a")
    known = set(flat(learner.get_state()))
    learner.add_module(module_id="b", module_spec=SPEC)
    assert train(learner, "a", "b").keys() == {"a", "b", ALL_MODULES}
    learner.compute_actions(np.zeros((1, 3), np.float32), module_id="b")
    learner.remove_module("b")
    assert set(flat(learner.get_state())) == known
    assert not part(learner, "b")
    assert list(learner.metrics.results) == ["a", ALL_MODULES]
    assert train(learner, "a").keys() == {"a", ALL_MODULES}
    for use in (
        lambda: train(learner, "b"),
        lambda: learner.compute_actions(np.zeros((1, 3)), module_id="b"),
        lambda: learner.remove_module("b"),
    ):
        with pytest.raises(UnknownModuleError, match="'b'"):
            use()


def test_a_module_that_is_removed_takes_nothing_of_modules_whose_ids_contain_its_own(tmp_path):
    learner, other = built("b", "a/b", "b/c"), built("a/b", "b/c")
    train(learner, "b", "a/b", "b/c")
    train(other, "a/b", "b/c")
    learner.remove_module("b")
    assert digest(learner.get_state()) == digest(other.get_state())
    restored = Learner.from_checkpoint(learner.save_to_path(tmp_path / "saved"))
    assert digest(restored.get_state()) == digest(other.get_state())


def test_the_answer_is_the_spec_that_stands_in_the_config():
    learner = built("a")
    given = learner.config
    spec = learner.add_module(module_id="b", module_spec=OTHER)
    assert isinstance(spec, MultiRLModuleSpec)
    assert spec is learner.config.rl_module_spec
    assert spec.rl_module_specs["b"] == OTHER
    assert spec.rl_module_specs["a"] == given.rl_module_spec.rl_module_specs["a"]
    assert list(given.rl_module_spec.rl_module_specs) == ["a"]
    assert list(learner.remove_module("a").rl_module_specs) == ["b"]


def test_a_spec_is_completed_by_the_config_and_may_be_written_into_afterwards():
    learner = built("a")
    model = {"fcnet_hiddens": [5]}
    learner.add_module(module_id="b", module_spec=RLModuleSpec(model_config=model, inference_only=True))
    model["fcnet_hiddens"].append(6)
    made = learner.config.rl_module_spec.rl_module_specs["b"]
    assert (made.observation_space, made.action_space) == (OBSERVATIONS, TWO_ACTIONS)
    assert made.model_config == {"fcnet_hiddens": [5]}
    assert made.inference_only is False
    assert learner.module["b"].model_config == {"fcnet_hiddens": [5]}


def test_a_module_that_is_added_equals_one_that_was_there_from_the_start():
    late, early = built("a"), built("a", "b")
    late.add_module(module_id="b", module_spec=early.config.rl_module_spec.rl_module_specs["b"])
    assert digest(late.get_weights()) == digest(early.get_weights())
    for learner in (late, early):
        train(learner, "a", "b")
    assert digest(late.get_state()) == digest(early.get_state())


def test_a_module_that_is_added_follows_its_schedules_from_the_present_timestep():
    learner = built("a", lr=[[0, 0.5], [100, 0.25]], entropy_coeff=[[0, 1.0], [100, 0.0]])
    learner.update({"a": ppo_batch()}, timesteps={"num_env_steps_sampled_lifetime": 100})
    learner._set_optimizer_lr(learner.get_optimizer("a"), 0.125)
    learner.add_module(module_id="b", module_spec=SPEC)
    assert learner._get_optimizer_lr(learner.get_optimizer("b")) == 0.25
    assert learner.coefficients["b"]["entropy_coeff"].numpy() == 0.0
    assert learner._get_optimizer_lr(learner.get_optimizer("a")) == 0.125


def test_the_other_module_goes_on_as_if_nothing_had_happened():
    plain, changed = built("a", lr=[[0, 1e-2], [100, 1e-3]]), built("a", lr=[[0, 1e-2], [100, 1e-3]])
    changes = (
        lambda: changed.add_module(module_id="b", module_spec=OTHER),
        lambda: changed.remove_module("b"),
        lambda: changed.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.5}),
    )
    for n, change in enumerate(changes):
        for learner in (plain, changed):
            learner.update({"a": ppo_batch(seed=n)}, timesteps={"num_env_steps_sampled_lifetime": 10 * n})
        before = part(changed, "a")
        change()
        assert part(changed, "a") == before
    train(plain, "a", seed=9)
    changed.update({"a": ppo_batch(seed=9), "b": ppo_batch(seed=8)})
    assert part(changed, "a") == part(plain, "a")
    assert before != part(plain, "a")


def test_an_id_that_comes_again_begins_anew_with_its_new_settings():
    learner = built("a")
    learner.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.5, "entropy_coeff": 0.25})
    first = part(learner, "b")
    train(learner, "b")
    assert part(learner, "b") != first
    assert learner._get_optimizer_lr(learner.get_optimizer("b")) == 0.5
    learner.remove_module("b")
    assert learner.config.algorithm_config_overrides_per_module == {}
    learner.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.125})
    assert learner._get_optimizer_lr(learner.get_optimizer("b")) == 0.125
    assert float(learner.coefficients["b"]["entropy_coeff"].numpy()) == learner.config.entropy_coeff
    learner.remove_module("b")
    learner.add_module(module_id="b", module_spec=SPEC, config_overrides={"lr": 0.5, "entropy_coeff": 0.25})
    assert part(learner, "b") == first


def test_overrides_that_the_config_has_for_the_module_already_are_used():
    config = ppo_config().rl_module(algorithm_config_overrides_per_module={"b": {"lr": 0.25}})
    learner = with_modules(config, "a").build_learner()
    learner.add_module(module_id="b", module_spec=SPEC)
    assert learner._get_optimizer_lr(learner.get_optimizer("b")) == 0.25


def test_acting_after_a_change_uses_the_module_that_is_there_now():
    learner = built("a")
    obs = np.ones((2, 3), np.float32)
    values = []
    for hiddens in ([4], [5]):
        spec = RLModuleSpec(model_config={"fcnet_hiddens": hiddens})
        learner.add_module(module_id="b", module_spec=spec)
        values.append(learner.compute_values(obs, module_id="b"))
        learner.remove_module("b")
    assert not np.array_equal(*values)


def test_who_is_trained_can_be_said_with_the_change():
    learner = built("a")
    learner.add_module(module_id="b", module_spec=SPEC, new_should_module_be_updated=["b"])
    before = part(learner, "a")
    assert train(learner, "a", "b").keys() == {"b", ALL_MODULES}
    assert part(learner, "a") == before
    learner.add_module(module_id="c", module_spec=SPEC)
    assert learner.config.policies_to_train == ["b"]
    learner.remove_module("b", new_should_module_be_updated={"c", "a"})
    assert sorted(learner.config.policies_to_train) == ["a", "c"]
    learner.remove_module("c")
    assert learner.config.policies_to_train == ["a"]


@pytest.mark.parametrize("policies", [["a"], {"a": None}])
def test_policies_follow(policies):
    learner = ppo_config().multi_agent(policies=policies).build_learner()
    learner.add_module(module_id="b", module_spec=SPEC)
    assert list(learner.config.policies) == ["a", "b"]
    learner.remove_module("a")
    assert list(learner.config.policies) == ["b"]
    learner.config.validate()


def test_listeners_are_told():
    diary = Diary()
    learner = built("a", plugins=[diary])
    learner.add_module(module_id="b", module_spec=SPEC)
    learner.remove_module("a")
    assert diary.heard == [("added", "b", ["a", "b"]), ("removed", "a", ["b"])]


def test_building_a_module_can_be_wrapped():
    class Zeros:
        @hookimpl(wrapper=True)
        def build_module(self, module_id, weights):
            for each in weights.values():
                each[...] = {"a": 1.0, "b": 2.0}[module_id]
            return (yield)

    learner = built("a", plugins=[Zeros()])
    learner.add_module(module_id="b", module_spec=SPEC)
    for module_id, value in (("a", 1.0), ("b", 2.0)):
        assert all((each == value).all() for each in learner.get_weights()[module_id].values())


# --- what is refused ------------------------------------------------------------------------------------------------


class Fails(Learner):
    def configure_optimizers_for_module(self, module_id, config=None):
        super().configure_optimizers_for_module(module_id, config=config)
        if module_id == "b":
            self._set_optimizer_lr(self.get_optimizer("a"), 7.0)
            self.stream("a", "minibatches").random()
            raise RuntimeError("halfway")


class Refuses:
    @hookimpl
    def module_added(self, learner):
        learner.counters["mine"] = 1
        raise RuntimeError("not this one")

    @hookimpl
    def module_removed(self):
        raise RuntimeError("not this one")


@pytest.mark.parametrize("module_id", ["", "a/b", "a b", "ä", "a\n", "x" * 129, ALL_MODULES, None, 3])
def test_an_id_that_cannot_be_written_everywhere_is_refused(module_id):
    learner = built("a")
    before = everything(learner)
    with pytest.raises(ConfigError, match="module id"):
        learner.add_module(module_id=module_id, module_spec=SPEC)
    assert everything(learner) == before


@pytest.mark.parametrize("module_id", ["b", "A-z_0.9", "x" * 128])
def test_an_id_of_the_good_characters_is_taken(module_id):
    learner = built("a")
    learner.add_module(module_id=module_id, module_spec=SPEC)
    assert list(learner.module) == ["a", module_id]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"module_id": "a"}, r"remove_module\('a'\) first"),
        ({"module_spec": None}, "expected an RLModuleSpec, found NoneType"),
        ({"module_spec": RLModuleSpec(model_config={"fcnet_hidens": [3]})}, "Did you mean 'fcnet_hiddens'"),
        ({"config_overrides": {"lrr": 1.0}}, "Did you mean 'lr'"),
        ({"config_overrides": {"lr": -1.0}}, "lr must be"),
        ({"new_should_module_be_updated": ["bb"]}, "no module 'bb' in a, b"),
        ({"new_should_module_be_updated": lambda module_id: True}, "should_module_be_updated"),
        ({"new_should_module_be_updated": "a"}, "policies_to_train"),
    ],
)
def test_what_cannot_be_added_changes_nothing(arguments, said):
    learner = built("a")
    train(learner, "a")
    before = everything(learner)
    with pytest.raises(ConfigError, match=said):
        learner.add_module(**{"module_id": "b", "module_spec": SPEC, **arguments})
    assert everything(learner) == before
    learner.add_module(module_id="b", module_spec=SPEC)
    train(learner, "a", "b")


def test_a_failure_halfway_leaves_the_learner_as_it_was():
    plain, learner = built("a"), built("a", cls=Fails)
    for each in (plain, learner):
        train(each, "a")
    before = everything(learner)
    with pytest.raises(RuntimeError, match="halfway"):
        learner.add_module(module_id="b", module_spec=SPEC)
    assert everything(learner) == before
    for each in (plain, learner):
        train(each, "a", seed=1)
    assert digest(learner.get_state()) == digest(plain.get_state())


def test_a_listener_that_fails_undoes_the_change():
    learner = built("a", "b", plugins=[Refuses()])
    train(learner, "a", "b")
    learner.compute_actions(np.zeros((1, 3), np.float32), module_id="b")
    before = everything(learner)
    with pytest.raises(RuntimeError, match="not this one"):
        learner.add_module(module_id="c", module_spec=SPEC)
    assert everything(learner) == before
    with pytest.raises(RuntimeError, match="not this one"):
        learner.remove_module("b")
    assert everything(learner) == before
    assert "b" in learner.metrics.results
    assert train(learner, "a", "b").keys() == {"a", "b", ALL_MODULES}


def test_the_last_module_stays():
    learner = built("a")
    with pytest.raises(ConfigError, match="only module: add another"):
        learner.remove_module("a")
    train(learner, "a")


class Shares(Learner):
    def configure_optimizers(self):
        params = [param for module in self.module.values() for param in self.get_parameters(module)]
        self.register_optimizer(
            optimizer=make_optimizer(self.config.optimizer), params=params, lr_or_lr_schedule=1e-2
        )


def test_a_module_whose_optimizer_steps_another_one_too_is_not_removed():
    learner = built("a", "b", cls=Shares)
    before = everything(learner)
    with pytest.raises(OptimizerError, match="also steps parameters of a"):
        learner.remove_module("b")
    assert everything(learner) == before
    learner.add_module(module_id="c", module_spec=SPEC)
    train(learner, "a", "b", "c")
    assert registration_of(learner, learner.get_optimizer("c")).modules == {"c"}
    learner.remove_module("c")


def test_a_learner_that_is_not_built_says_so():
    learner = Learner(config=ppo_config())
    with pytest.raises(NotBuiltError):
        learner.add_module(module_id="b", module_spec=SPEC)
    with pytest.raises(NotBuiltError):
        learner.remove_module("b")


# --- disk -----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_has_the_modules_of_the_day(tmp_path):
    learner = built("a")
    learner.add_module(
        module_id="b", module_spec=OTHER, config_overrides={"lr": 0.5}, new_should_module_be_updated=["b"]
    )
    learner.remove_module("a")
    batch = {"b": ppo_batch(inputs=2, actions=3)}
    learner.update(batch)
    learner.save_to_path(tmp_path)
    restored = Learner.from_checkpoint(tmp_path)
    assert restored.config == learner.config
    assert digest(restored.get_state()) == digest(learner.get_state())
    for each in (learner, restored):
        each.update(batch)
    assert digest(restored.get_state()) == digest(learner.get_state())


def test_a_checkpoint_of_other_modules_is_refused_and_changes_nothing(tmp_path):
    learner = built("a")
    learner.save_to_path(tmp_path)
    learner.add_module(module_id="b", module_spec=SPEC)
    before = everything(learner)
    with pytest.raises(RestoreMismatchError, match="b"):
        learner.restore_from_path(tmp_path)
    assert everything(learner) == before


# --- any order ------------------------------------------------------------------------------------------------------

IDS = ("a", "b", "c")


class Changes(RuleBasedStateMachine):
    """Against a model: one learner per module, which trains alone. Both must agree on every byte of the module."""

    @initialize()
    def begin(self):
        self.learner = built("a", hiddens=(1,))
        self.alone = {"a": built("a", hiddens=(1,))}
        self.saves = 0

    def teardown(self):
        if not hasattr(self, "learner"):
            return
        assert sorted(self.learner.module) == sorted(self.alone)
        for module_id, learner in self.alone.items():
            assert part(self.learner, module_id) == part(learner, module_id)

    @rule(module_id=st.sampled_from(IDS), rate=st.sampled_from([1e-3, 1e-1]))
    def add(self, module_id, rate):
        arguments = {"module_id": module_id, "module_spec": SPEC, "config_overrides": {"lr": rate}}
        if module_id in self.alone:
            with pytest.raises(ConfigError):
                self.learner.add_module(**arguments)
            return
        self.learner.add_module(**arguments)
        config = ppo_config(hiddens=(1,), shuffle_batch_per_epoch=True, minibatch_size=8)
        overrides = {module_id: {"lr": rate}}
        config = config.rl_module(algorithm_config_overrides_per_module=overrides)
        self.alone[module_id] = with_modules(config, module_id).build_learner()

    @rule(module_id=st.sampled_from(IDS))
    def remove(self, module_id):
        if module_id in self.alone and len(self.alone) > 1:
            self.learner.remove_module(module_id)
            del self.alone[module_id]
            return
        with pytest.raises((UnknownModuleError, ConfigError)):
            self.learner.remove_module(module_id)

    @rule(some=st.sets(st.sampled_from(IDS), min_size=1), seed=st.integers(0, 9))
    def update(self, some, seed):
        known = sorted(some & self.alone.keys())
        if known:
            train(self.learner, *known, seed=seed)
        for module_id in known:
            train(self.alone[module_id], module_id, seed=seed)

    @precondition(lambda self: self.saves < 2)
    @rule()
    def save_and_restore(self):
        self.saves += 1
        with tempfile.TemporaryDirectory() as path:
            self.learner.save_to_path(path)
            self.learner = Learner.from_checkpoint(path)


def test_any_order_of_changes_keeps_every_module_its_own():
    run_state_machine_as_test(
        Changes, settings=settings(max_examples=12, stateful_step_count=12, derandomize=True, deadline=None)
    )


class CountsQuestions(Learner):
    questions = 0

    def _is_module_compatible_with_learner(self, module):
        self.questions += 1
        return super()._is_module_compatible_with_learner(module)


def test_which_modules_a_backend_trains_is_asked_once_and_again_when_modules_come():
    learner = CountsQuestions(config=ppo_config())
    learner.build()
    assert learner.questions == 1
    learner.update(ppo_batch(16))
    learner.compute_actions(np.zeros((2, 3), np.float32))
    assert learner.questions == 1
    learner.add_module(module_id="b", module_spec=RLModuleSpec())
    assert learner.questions == 3  # both modules, once each
    assert learner.trainable_module_ids == [DEFAULT_MODULE_ID, "b"]


def one_step(module_id):
    return SingleAgentEpisode(
        observations=np.zeros((2, 3), np.float32),
        actions=np.array([1]),
        rewards=np.ones(1),
        terminated=True,
        extra_model_outputs={"action_logp": np.array([-0.7]), "action_dist_inputs": np.zeros((1, 2))},
        module_id=module_id,
    )


@pytest.mark.parametrize("trained", [None, ["a"]])
def test_episodes_of_an_opponent_that_computes_no_values_train_the_others(trained):
    specs = MultiRLModuleSpec(rl_module_specs={"a": SPEC, "b": RLModuleSpec(module_class=RandomRLModule)})
    config = ppo_config().rl_module(rl_module_spec=specs).multi_agent(policies_to_train=trained)
    alone, both = config.build_learner(), config.build_learner()
    expected = alone.update(episodes=[one_step("a")])
    results = both.update(episodes=[one_step("b"), one_step("a")])
    assert set(results) == {"a", ALL_MODULES}
    assert results["a"]["total_loss"] == expected["a"]["total_loss"]
    assert digest(both.get_weights()) == digest(alone.get_weights())


def test_episodes_of_opponents_alone_are_nothing_to_train_on():
    learner = with_modules(ppo_config(), "a", "b").multi_agent(policies_to_train=["a"]).build_learner()
    with pytest.raises(BatchError, match=r"nothing to train: rows of b; policies_to_train=\['a'\]"):
        learner.update(episodes=[one_step("b")])


def test_episodes_of_a_module_that_is_not_there_are_refused_beside_others():
    learner = with_modules(ppo_config(), "a", "b").multi_agent(policies_to_train=["a"]).build_learner()
    with pytest.raises(UnknownModuleError, match="'c'"):
        learner.update(episodes=[one_step("a"), one_step("c")])

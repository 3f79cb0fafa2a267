"""A learner's state: whole, exact, by name, in copies; in memory and on disk."""

import numpy as np
import pytest
from learning import digest, flat, ppo_batch, ppo_config, weights, with_modules

from plugrad import DEFAULT_MODULE_ID, Learner, RLModuleSpec, hookimpl
from plugrad.errors import CheckpointError, ConfigError, NonFiniteError, RestoreMismatchError
from plugrad.learner.state.state import digest as digest_of
from plugrad.optimizers import SGD
from plugrad_ppo import PPOLearner

P = DEFAULT_MODULE_ID
COMPONENTS = ["rl_module", "optimizer", "targets", "coefficients", "counters", "streams", "plugin_state"]


def config(**settings):
    return ppo_config(
        **{
            "minibatch_size": 8,
            "shuffle_batch_per_epoch": True,
            "use_kl_loss": True,
            "lr": [[0, 0.01], [100, 0.001]],
            **settings,
        }
    )


def trained(updates=1, **settings):
    learner = config(**settings).build_learner()
    train(learner, updates)
    return learner


def train(learner, updates):
    for n in range(updates):
        learner.update(ppo_batch(seed=n), timesteps={"num_env_steps_sampled_lifetime": 16 * n})


# --- in memory ---


def test_a_state_has_every_component_by_name_and_plain_values():
    learner = trained()
    learner.compute_actions(np.zeros((1, 3)))
    state = learner.get_state()
    assert list(state) == COMPONENTS
    assert list(state["rl_module"][P]) == list(learner.get_weights()[P])
    slots = state["optimizer"][f"{P}_default_optimizer"]["slots"]
    assert slots["m"][f"{P}/pi.0.weight"].shape == (3, 4)
    assert {type(value) for value in flat(state).values()} == {np.ndarray, int, str}
    arrays = [value for value in flat(state).values() if isinstance(value, np.ndarray)]
    assert {value.dtype for value in arrays} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("before", "after"), [(3, 2), (0, 2), (2, 0)])
def test_any_learner_goes_on_exactly_as_the_one_whose_state_it_took(before, after):
    source, other = trained(before), trained(after, seed=99)
    other.compute_actions(np.zeros((4, 3)))
    other.set_state(source.get_state())
    assert digest(other.get_state()) == digest(source.get_state())
    for learner in (source, other):
        train(learner, 2)
    assert digest(other.get_state()) == digest(source.get_state())
    obs = np.zeros((20, 3))
    np.testing.assert_array_equal(
        source.compute_actions(obs)["actions"], other.compute_actions(obs)["actions"]
    )


def test_rolling_back_is_exact():
    learner = trained(3)
    early = learner.get_state()
    kept = digest(early)
    train(learner, 2)
    late = digest(learner.get_state())
    assert digest(early) == kept != late
    learner.set_state(early)
    assert digest(learner.get_state()) == kept
    train(learner, 2)
    assert digest(learner.get_state()) == late


def test_states_are_copies_both_ways():
    learner = trained()
    state = learner.get_state()
    before = digest(state)
    for value in flat(state).values():
        if isinstance(value, np.ndarray):
            value += 1.0
    state["counters"].clear()
    assert digest(learner.get_state()) == before
    fresh = learner.get_state()
    learner.set_state(fresh)
    fresh["rl_module"][P]["pi.0.weight"] += 1.0
    fresh["optimizer"][f"{P}_default_optimizer"]["slots"]["m"][f"{P}/pi.0.weight"] += 1.0
    assert digest(learner.get_state()) == before


def test_components_are_chosen_by_name():
    learner = trained()
    assert list(learner.get_state("rl_module")) == ["rl_module"]
    assert list(learner.get_state(["optimizer", "rl_module"])) == ["rl_module", "optimizer"]
    assert list(learner.get_state(not_components="optimizer")) == [c for c in COMPONENTS if c != "optimizer"]
    assert learner.get_state(not_components=COMPONENTS) == {}
    with pytest.raises(ConfigError, match=r"no state component 'rl_modul'.*Did you mean 'rl_module'"):
        learner.get_state("rl_modul")


@pytest.mark.parametrize("component", COMPONENTS)
def test_setting_a_component_leaves_the_others(component):
    source, learner = trained(3), trained(1, seed=5)
    before = {name: digest(learner.get_state(name)) for name in COMPONENTS}
    learner.set_state(source.get_state(component))
    for name in COMPONENTS:
        expected = digest(source.get_state(name)) if name == component else before[name]
        assert digest(learner.get_state(name)) == expected


def test_weights_are_read_and_set_by_module():
    learner = with_modules(config(), "a", "b").build_learner()
    other = with_modules(config(seed=7), "a", "b").build_learner()
    before = weights(other, "b")
    other.set_weights({"a": learner.get_weights()["a"]})
    np.testing.assert_array_equal(weights(other, "a"), weights(learner, "a"))
    np.testing.assert_array_equal(weights(other, "b"), before)
    other.module["b"].set_state({"rl_module": learner.get_weights()["b"]})
    np.testing.assert_array_equal(weights(other, "b"), weights(learner, "b"))


def fail(learner):
    with pytest.raises(NonFiniteError):
        learner.update(ppo_batch() | {"advantages": np.full(16, np.inf, np.float32)})


CHANGES = {
    "update": lambda learner: learner.update(ppo_batch()),
    "an update that fails": fail,
    "forward_backward and optim_step": lambda learner: (
        learner.forward_backward(ppo_batch()),
        learner.optim_step(),
    ),
    "apply_gradients": lambda learner: learner.apply_gradients({}),
    "set_state": lambda learner: learner.set_state(learner.get_state()),
    "set_weights": lambda learner: learner.set_weights(learner.get_weights()),
    "add_module": lambda learner: learner.add_module(
        module_id="more", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [4]})
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_may_change_weights_makes_another_version_of_them(change):
    learner = trained()  # the first update is rehearsed, which makes a version more
    before = learner.weights_version
    change(learner)
    assert learner.weights_version > before


def _edit(state, path, value=None):
    *parents, name = path
    for parent in parents:
        state = state[parent]
    if value is None:
        del state[name]
    else:
        state[name] = value


M = f"{P}_default_optimizer"
WRONG = {
    "a weight is missing": [(("rl_module", P, "pi.0.bias"), None)],
    "a module is missing": [(("rl_module", P), None)],
    "another module": [(("rl_module", "stranger"), {"w": np.zeros(1)})],
    "a shape": [(("rl_module", P, "pi.0.bias"), np.zeros(5, np.float32))],
    "a dtype": [(("rl_module", P, "pi.0.bias"), np.zeros(4))],
    "a list": [(("rl_module", P, "pi.0.bias"), [0.0] * 4)],
    "a slot is missing": [(("optimizer", M, "slots", "m"), None)],
    "an optimizer is missing": [(("optimizer", M), None)],
    "a rate": [(("optimizer", M, "learning_rate"), 0.1)],
    "a coefficient": [(("coefficients", P, "kl_coeff"), np.zeros(2, np.float32))],
    "a counter": [(("counters", "weights_seq_no"), "three")],
    "a counter that is no number": [(("counters", "weights_seq_no"), float("nan"))],
    "a counter that is true": [(("counters", "weights_seq_no"), True)],
    "counters": [(("counters",), 3)],
    "the seed": [(("streams", "seed"), None)],
    "generators": [(("streams", "generators"), None)],
    "a generator": [(("streams", "generators", f"{P}/minibatches", "state"), None)],
    "a generator's kind": [(("streams", "generators", f"{P}/minibatches", "bit_generator"), "MT19937")],
    "a generator's numbers": [(("streams", "generators", f"{P}/minibatches", "state", "state"), -1)],
    "a component": [(("optimiser",), {})],
    "a component that is no dict": [(("rl_module",), np.zeros(3, np.float32))],
}


@pytest.fixture(scope="module")
def learner():
    return trained(2)


@pytest.mark.parametrize("kind", WRONG)
def test_a_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(learner, kind):
    state = trained(3, seed=5).get_state()
    for path, value in WRONG[kind]:
        _edit(state, path, value)
    before = digest(learner.get_state())
    with pytest.raises(RestoreMismatchError, match="Nothing was changed") as caught:
        learner.set_state(state)
    assert isinstance(caught.value, ValueError)
    assert WRONG[kind][0][0][-1] in str(caught.value)
    assert digest(learner.get_state()) == before


def test_all_differences_are_listed_at_once(learner):
    state = learner.get_state()
    _edit(state, ("rl_module", P, "pi.0.bias"))
    _edit(state, ("rl_module", P, "stranger"), np.zeros(2, np.float32))
    _edit(state, ("optimizer", M, "slots", "m", f"{P}/vf.out.bias"), np.zeros(2, np.float32))
    with pytest.raises(RestoreMismatchError) as caught:
        learner.set_state(state)
    facts = caught.value.facts
    assert facts["missing"] == [f"rl_module/{P}/pi.0.bias"]
    assert facts["unexpected"] == [f"rl_module/{P}/stranger"]
    assert facts["mismatched"] == [
        f"optimizer/{M}/slots/m/{P}/vf.out.bias (expected float32[1], found float32[2])"
    ]
    for names in facts.values():
        assert names[0] in str(caught.value)


def test_weights_that_do_not_fit_are_refused_before_any_module_is_changed():
    learner = with_modules(config(), "a", "b").build_learner()
    before = digest(learner.get_state())
    wrong = trained(seed=5).get_weights()[P]
    with pytest.raises(RestoreMismatchError, match="module 'b'"):
        learner.set_weights({"a": wrong, "b": {**wrong, "more": np.zeros(1)}})
    with pytest.raises(KeyError, match="no module 'c'"):
        learner.set_weights({"a": wrong, "c": wrong})
    assert digest(learner.get_state()) == before


# --- on disk ---


class Ear:
    def __init__(self):
        self.heard = []

    @hookimpl
    def checkpoint_saved(self, path):
        self.heard.append(("saved", path))

    @hookimpl
    def checkpoint_restored(self, learner, path):
        self.heard.append(("restored", path, learner.counters["weights_seq_no"]))


def test_a_checkpoint_brings_everything_back(tmp_path):
    ear = Ear()
    source = Learner(config=config(), plugins=[ear])
    source.build()
    train(source, 3)
    path = tmp_path / "saved"
    assert source.save_to_path(path) == str(path)
    other = trained(1, seed=99)
    other.restore_from_path(path)
    assert digest(other.get_state()) == digest(source.get_state())
    new = Learner.from_checkpoint(path, plugins=[ear])
    assert digest(new.get_state()) == digest(source.get_state())
    assert new.config == source.config
    for learner in (source, other, new):
        train(learner, 2)
    assert digest(other.get_state()) == digest(new.get_state()) == digest(source.get_state())
    assert ear.heard == [("saved", str(path)), ("restored", str(path), 3)]


def test_counters_of_ones_own_may_be_any_real_numbers(tmp_path):
    learner = trained(1)
    learner.counters |= {"seconds/p": 1.5, "rows/p": np.int64(3), "share/p": np.float32(0.25)}
    learner.counters |= {"best": -np.inf, "least": np.float64(np.inf), "many": 2**80}
    other = trained(0)
    other.set_state(learner.get_state())
    restored = Learner.from_checkpoint(learner.save_to_path(tmp_path / "saves"))
    for each in (other, restored):
        assert each.counters == learner.counters
        assert {type(number) for number in each.counters.values()} == {int, float}


@pytest.mark.parametrize(
    "value",
    [True, np.bool_(True), np.arange(3.0), "x", float("nan"), None, 1j],
    ids=lambda value: repr(value),
)
def test_a_counter_that_could_not_be_loaded_is_refused_when_it_is_saved(value, tmp_path):
    learner = trained(1)
    learner.save_to_path(tmp_path)
    learner.counters["best"] = value
    for save in (learner.get_state, lambda: learner.save_to_path(tmp_path)):
        with pytest.raises(CheckpointError, match=r"learner\.counters\['best'\] is"):
            save()
    train(learner, 1)
    assert "best" not in Learner.from_checkpoint(tmp_path).counters, "the former save is whole"
    learner.counters["best"] = 1.0
    assert Learner.from_checkpoint(learner.save_to_path(tmp_path)).counters["best"] == 1.0


def test_a_stream_or_seed_that_could_not_be_loaded_is_refused_when_it_is_saved():
    for stranger in (np.random.Generator(np.random.Philox(1)), np.random.RandomState(1)):
        learner = trained(1)
        learner.streams["own"] = stranger
        with pytest.raises(CheckpointError, match=r"learner\.stream\('own'\) makes one"):
            learner.get_state()
    learner = trained(1)
    learner.seed = np.int64(4)
    trained(0).set_state(learner.get_state())
    for seed in ("x", 1.5, True):
        learner.seed = seed
        with pytest.raises(CheckpointError, match="expected an int"):
            learner.get_state()


def test_a_counter_of_plugrads_own_is_finite():
    learner = trained(1)
    learner.counters["weights_seq_no"] = float("inf")
    with pytest.raises(CheckpointError, match="weights_seq_no"):
        learner.get_state()


def test_a_learner_without_a_seed_comes_back_with_its_own(tmp_path):
    source = config().debugging(seed=None).build_learner()
    source.save_to_path(tmp_path)
    new = Learner.from_checkpoint(tmp_path)
    for learner in (source, new):
        train(learner, 1)
    assert digest(new.get_state()) == digest(source.get_state())


def test_older_saves_are_kept_as_told_and_each_can_be_opened(tmp_path):
    learner = config().build_learner()
    digests = []
    for _ in range(3):
        train(learner, 1)
        learner.save_to_path(tmp_path, keep=2)
        digests.append(digest(learner.get_state()))
    saves = sorted(each.name for each in tmp_path.iterdir() if each.is_dir())
    assert len(saves) == 2
    for save, expected in zip(saves, digests[1:], strict=True):
        learner.restore_from_path(tmp_path / save)
        assert digest(learner.get_state()) == expected
    learner.restore_from_path(tmp_path)
    assert digest(learner.get_state()) == digests[-1]


def test_one_component_can_be_restored(tmp_path):
    source, other = trained(2), trained(1, seed=3)
    source.save_to_path(tmp_path)
    optimizer = digest(other.get_state("optimizer"))
    other.restore_from_path(tmp_path, component="rl_module")
    assert digest(other.get_state("rl_module")) == digest(source.get_state("rl_module"))
    assert digest(other.get_state("optimizer")) == optimizer


def test_a_checkpoint_of_other_networks_is_refused_and_changes_nothing(tmp_path):
    trained(hiddens=(5,)).save_to_path(tmp_path)
    learner = trained()
    before = digest(learner.get_state())
    with pytest.raises(RestoreMismatchError, match=r"pi\.0\.weight.*\[3, 4\].*\[3, 5\]"):
        learner.restore_from_path(tmp_path)
    assert digest(learner.get_state()) == before


def test_where_nothing_was_saved_nothing_is_restored(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        trained().restore_from_path(tmp_path / "nowhere")


def test_learners_of_equal_state_have_one_digest_whatever_came_and_went() -> None:
    config = ppo_config(use_kl_loss=True)
    one, other = config.build_learner(), config.build_learner()
    spec = RLModuleSpec(model_config={"fcnet_hiddens": [4]})
    other.add_module(module_id="guest", module_spec=spec)
    other.remove_module(DEFAULT_MODULE_ID)
    other.add_module(module_id=DEFAULT_MODULE_ID, module_spec=spec)
    other.remove_module("guest")
    one.update(ppo_batch())  # moves the module's coefficient away from that of all modules
    other.set_state(one.get_state())
    assert digest_of(one) == digest_of(other)


class Unnamed(SGD):
    """Prints as an object of a class without `__repr__` does: with its address."""

    __repr__ = object.__repr__


class WithUnnamed(PPOLearner):
    def configure_optimizers_for_module(self, module_id, config=None):
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(module_id=module_id, optimizer=Unnamed(), params=params)


def test_equal_learners_are_equal_whatever_their_optimizers_print():
    one, other = (config().learners(learner_class=WithUnnamed).build_learner() for _ in range(2))
    other.set_state(one.get_state())
    assert digest_of(one) == digest_of(other)

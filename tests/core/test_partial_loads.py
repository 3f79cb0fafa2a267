"""What a load of less than a whole checkpoint leaves behind: nothing, or a line that names it and says what to type.

The matrix: ways to load, for PPO, DQN and SAC. Target networks follow the weights, and the statistics of
`normalize_observations` come along or are named.
"""

import logging
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from partial_loads import AGENTS, KINDS, RAW, WITH_TARGETS, P, Parts, config_of, equal, trained

from plugrad import load_policy
from plugrad.errors import CheckpointError, RestoreMismatchError

LEFT_BEHIND = r"statistics of observations stay as they are.*set_statistics"
NOT_SAVED = (
    r"has no statistics of normalize_observations of (default_policy|left|left, right): .*set_statistics"
)


class Load(NamedTuple):
    """One way to load.

    Attributes:
        run: `run(source, other, paths)`; paths are those of `Saved`.
        modules: ids of the modules whose weights it loads.
        warns: what the warning says if statistics stay behind; None: they come along.
    """

    run: Callable[[Any, Any, "Saved"], Any]
    modules: tuple[str, ...] = (P,)
    warns: str | None = None


class Saved(NamedTuple):
    """Where a run is saved: whole, its learners alone, and the policy of one module."""

    algorithm: str
    learners: str
    policy: str


ONE = {
    "set_weights": Load(
        lambda source, other, saved: other.learner_group.set_weights(source.learner_group.get_weights()),
        warns=LEFT_BEHIND,
    ),
    "set_state of rl_module": Load(
        lambda source, other, saved: other.learner_group.set_state(
            source.learner_group.get_state("rl_module")
        ),
        warns=LEFT_BEHIND,
    ),
    "learner group, component": Load(
        lambda source, other, saved: other.learner_group.restore_from_path(
            saved.algorithm, component="rl_module"
        ),
        warns=LEFT_BEHIND,
    ),
    "learner group, its own save": Load(
        lambda source, other, saved: other.learner_group.restore_from_path(
            saved.learners, component=f"rl_module/{P}"
        ),
        warns=LEFT_BEHIND,
    ),
    "algorithm, component": Load(
        lambda source, other, saved: other.restore_from_path(saved.algorithm, component="rl_module")
    ),
    "algorithm, component of one id": Load(
        lambda source, other, saved: other.restore_from_path(saved.algorithm, component=f"rl_module/{P}")
    ),
    "algorithm, a save of learners": Load(
        lambda source, other, saved: other.restore_from_path(saved.learners, component="rl_module"),
        warns=NOT_SAVED,
    ),
}
"""With one agent and one module."""


def left_again(source, other, saved):
    """The left agent's module goes, another one takes its id, and the weights are loaded into that one."""
    other.add_module("spare", from_module="left", agent_to_module={"left": "spare", "right": "right"})
    other.remove_module("left")
    other.add_module("left", from_module="right", agent_to_module={"left": "left", "right": "right"})
    other.remove_module("spare")
    other.restore_from_path(saved.algorithm, component="rl_module/left")


TWO = {
    "both, algorithm": Load(
        lambda source, other, saved: other.restore_from_path(saved.algorithm, component="rl_module"),
        modules=("left", "right"),
    ),
    "one, algorithm": Load(
        lambda source, other, saved: other.restore_from_path(saved.algorithm, component="rl_module/left"),
        modules=("left",),
    ),
    "one, a save of learners": Load(
        lambda source, other, saved: other.restore_from_path(saved.learners, component="rl_module/left"),
        modules=("left",),
        warns=NOT_SAVED,
    ),
    "one, set_weights": Load(
        lambda source, other, saved: other.learner_group.set_weights(
            source.learner_group.get_weights(["left"])
        ),
        modules=("left",),
        warns=LEFT_BEHIND,
    ),
    "one, set_state": Load(
        lambda source, other, saved: other.learner_group.set_state(
            source.learner_group.get_state("rl_module/left")
        ),
        modules=("left",),
        warns=LEFT_BEHIND,
    ),
    "one, learner group": Load(
        lambda source, other, saved: other.learner_group.restore_from_path(
            saved.algorithm, component="rl_module/left"
        ),
        modules=("left",),
        warns=LEFT_BEHIND,
    ),
    "removed, added again and loaded": Load(left_again, modules=("left",)),
}
"""With two agents and a module for each."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """`sources(kind, two=)`: a run, and where it is saved; the same ones for all tests here."""
    made: dict[Any, Any] = {}

    def source(kind, two=False):
        if (kind, two) not in made:
            folder = tmp_path_factory.mktemp(kind)
            saved = Saved(*(str(folder / name) for name in Saved._fields))
            run = trained(kind, two=two)
            run.save_to_path(saved.algorithm)
            run.learner_group.save_to_path(saved.learners)
            run.get_policy("left" if two else P).save(saved.policy)
            made[kind, two] = run, saved
        return made[kind, two]

    yield source
    for run, _ in made.values():
        run.stop()


CASES = [(False, way) for way in ONE] + [(True, way) for way in TWO]


@pytest.mark.parametrize(("two", "way"), CASES, ids=[way for _, way in CASES])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_bring_their_targets_and_their_statistics_or_a_line_names_these(sources, kind, two, way):
    load = (TWO if two else ONE)[way]
    source, saved = sources(kind, two)
    other = trained(kind, seed=9, num_steps=10, two=two)
    theirs, before = Parts(source), Parts(other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load.run(source, other, saved)
    found = Parts(other)
    for module_id in found.weights:
        loaded = module_id in load.modules
        assert equal(found.weights[module_id], (theirs if loaded else before).weights[module_id])
        if kind in WITH_TARGETS and loaded:
            assert found.target_is_weights(module_id)
        elif kind in WITH_TARGETS:
            assert equal(found.targets[module_id], before.targets[module_id])
            assert not found.target_is_weights(module_id)
        carried = loaded and load.warns is None
        assert equal(found.statistics[module_id], (theirs if carried else before).statistics[module_id])
        assert not loaded or np.array_equal(found.acts[module_id], theirs.acts[module_id]) == carried
        if kind in WITH_TARGETS:
            assert not equal(theirs.targets[module_id], before.targets[module_id])
    if load.warns is None:
        assert caught == []
    else:
        (line,) = caught
        assert re.search(load.warns, str(line.message))
        other.set_statistics(statistics_of(source, load.modules))  # as the line says
        acts = Parts(other).acts
        assert all(np.array_equal(acts[each], theirs.acts[each]) for each in load.modules)
    other.stop()


def statistics_of(run, module_ids):
    """The part of `get_statistics` that is of these modules."""
    found = run.get_statistics()["observations"]
    return {"observations": {each: found[each] for each in module_ids}}


def test_the_matrix_has_at_least_thirty_loads():
    assert len(CASES) * len(KINDS) >= 30


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_module_of_another_name_are_named_too(sources, kind):
    source, _ = sources(kind, two=True)
    other = trained(kind, seed=9, num_steps=10)
    with pytest.warns(UserWarning, match=LEFT_BEHIND):
        other.learner_group.set_weights({P: source.learner_group.get_weights()["right"]})
    other.set_statistics({"observations": {P: source.get_statistics()["observations"]["right"]}})
    found = Parts(other)
    assert np.array_equal(found.acts[P], Parts(source).acts["right"])
    assert kind not in WITH_TARGETS or found.target_is_weights(P)
    other.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_module_has_the_weights_targets_and_statistics_of_the_one_it_copies(kind):
    run = trained(kind, two=True)
    before = Parts(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.add_module("third", from_module="left")
    found = Parts(run)
    assert equal(found.weights["third"], before.weights["left"])
    assert equal(found.statistics["third"], before.statistics["left"])
    assert np.array_equal(found.acts["third"], before.acts["left"])
    assert kind not in WITH_TARGETS or found.target_is_weights("third")
    for module_id in AGENTS:
        assert equal(found.weights[module_id], before.weights[module_id])
        assert equal(found.statistics[module_id], before.statistics[module_id])
        assert kind not in WITH_TARGETS or equal(found.targets[module_id], before.targets[module_id])
    run.stop()


# --- policies: they have weights and statistics, and nothing to train on with ---


@pytest.mark.parametrize("two", [False, True], ids=["one", "two"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_file_and_a_checkpoint_act_as_the_run_did(sources, kind, two):
    source, saved = sources(kind, two)
    module_id = "left" if two else P
    acts = Parts(source).acts[module_id]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policies = load_policy(saved.policy), load_policy(saved.algorithm, module_id=module_id)
    for policy in policies:
        np.testing.assert_array_equal(policy.predict(RAW)[0], acts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_without_statistics_says_so_when_it_is_made_saved_and_loaded(sources, kind, tmp_path):
    source, saved = sources(kind)
    lacking = "the statistics are the env runners'.*Algorithm.get_policy"
    with pytest.warns(UserWarning, match=lacking):
        policy = source.learner_group.get_policy()
    for path in (policy.save(tmp_path / "policy"), saved.learners):
        with pytest.warns(UserWarning, match=lacking):
            load_policy(path)


@pytest.mark.filterwarnings("ignore:normalize_observations=True")
@pytest.mark.parametrize("component", [None, "rl_module"])
def test_a_policy_file_is_no_checkpoint_and_the_error_says_what_each_is_for(sources, component):
    _, saved = sources("ppo")
    other = trained("ppo", seed=9, num_steps=10)
    before = Parts(other)
    doors: list[Callable[..., Any]] = [other.restore_from_path, other.learner_group.restore_from_path]
    doors += [other.learner_group.acting_learner.learner.restore_from_path]
    said = r"is a file, .*load_policy\(path\).* restore the checkpoint"
    for restore in doors:
        with pytest.raises(CheckpointError, match=said):
            restore(saved.policy, component=component)
    assert equal(Parts(other).weights[P], before.weights[P])
    other.stop()


def test_weights_that_a_module_saved_name_the_door_that_takes_them(tmp_path):
    source, other = (
        config_of("ppo", normalized=False).build_learner(),
        config_of("ppo", seed=9).build_learner(),
    )
    source.module[P].save_to_path(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"weights alone, which learner.module.restore_from_path\(path\)"
    ):
        other.restore_from_path(tmp_path, component="rl_module")
    other.module.restore_from_path(tmp_path)
    assert equal(other.get_weights()[P], source.get_weights()[P])


# --- only one of the two normalises ---


@pytest.mark.parametrize("component", ["rl_module", f"rl_module/{P}"])
@pytest.mark.parametrize("where", Saved._fields[:2])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_saw_other_numbers_are_refused_by_a_run_and_named_by_its_learners(
    sources, tmp_path, kind, normalized, where, component
):
    """Both ways: of a run with statistics in one without, and of a run without in one with."""
    source, saved = sources(kind)
    if normalized:
        source = trained(kind, normalized=False, num_steps=10)
        saved = Saved(*(str(tmp_path / name) for name in Saved._fields))
        source.save_to_path(saved.algorithm)
        source.learner_group.save_to_path(saved.learners)
        source.stop()
    other = trained(kind, seed=9, normalized=normalized, num_steps=10)
    before, path = other.learner_group.get_weights()[P], getattr(saved, where)
    then, now = ("without", "with") if normalized else ("with", "without")
    with pytest.raises(
        RestoreMismatchError, match=f"a run {then} normalize_observations, .* {now} it: .*set"
    ):
        other.restore_from_path(path, component=component)
    assert equal(other.learner_group.get_weights()[P], before)
    said = rf"normalize_observations={not normalized}, and this learner has {normalized}: .*Build with"
    with pytest.warns(UserWarning, match=said):
        other.learner_group.restore_from_path(path, component=component)
    other.stop()


# --- statistics of rewards, on whose scale values are ---


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """A run of PPO that normalises rewards alone, and where it is saved, whole and its learners."""
    folder = tmp_path_factory.mktemp("scaled")
    run = trained("ppo", normalized=False, rewards=True)
    saved = Saved(*(str(folder / name) for name in Saved._fields))
    run.save_to_path(saved.algorithm)
    run.learner_group.save_to_path(saved.learners)
    yield run, saved
    run.stop()


def test_weights_bring_the_statistics_of_rewards_or_a_line_names_them(scaled):
    run, saved = scaled
    theirs = run.get_statistics()["rewards"]
    other = trained("ppo", seed=9, num_steps=10, normalized=False, rewards=True)
    before = other.get_statistics()["rewards"]
    for load in (
        lambda: other.learner_group.set_weights(run.learner_group.get_weights()),
        lambda: other.learner_group.restore_from_path(saved.algorithm, component="rl_module"),
    ):
        with pytest.warns(UserWarning, match=r"statistics of rewards stay as they are.*set_statistics"):
            load()
    with pytest.warns(UserWarning, match=r"has no statistics of normalize_rewards: .*set_statistics"):
        other.restore_from_path(saved.learners, component="rl_module")
    assert equal(other.get_statistics()["rewards"], before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.restore_from_path(saved.algorithm, component="rl_module")
    assert equal(other.get_statistics()["rewards"], theirs)
    assert not equal(before, theirs)
    other.stop()


def test_values_on_another_scale_of_rewards_are_named(scaled):
    _, saved = scaled
    other = trained("ppo", seed=9, num_steps=10, normalized=False)
    with pytest.warns(
        UserWarning, match=r"values that they predict are of rewards on another scale.*build with"
    ):
        other.restore_from_path(saved.algorithm, component="rl_module")
    other.stop()


# --- a learner's own doors, which know no statistics ---


def learner_of(kind, seed=0):
    return config_of(kind, seed=seed, normalized=False).training(minibatch_size=None).build_learner()


def transitions(kind, rows=8, seed=0):
    rng, space = np.random.default_rng(seed), KINDS[kind][1]
    space.seed(seed)
    return {
        "obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": np.array([space.sample() for _ in range(rows)]),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminateds": np.zeros(rows, bool),
        "truncateds": np.zeros(rows, bool),
    }


def updated(kind):
    """Whose target network is not equal to its weights."""
    learner = learner_of(kind)
    for seed in range(3):
        learner.update(transitions(kind, seed=seed))
    return learner


def is_target(learner, weights):
    """Whether the target network has these weights, as the state of the learner says."""
    target = learner.get_state("targets")["targets"][P]
    found = {name: each for name, each in target.items() if name in weights}
    return bool(found) and all(np.array_equal(each, weights[name]) for name, each in found.items())


LOADS = {
    "set_weights": lambda learner, source, path: learner.set_weights(source.get_weights()),
    "set_state": lambda learner, source, path: learner.set_state(source.get_state("rl_module")),
    "component": lambda learner, source, path: learner.restore_from_path(path, component="rl_module"),
    "one module": lambda learner, source, path: learner.restore_from_path(path, component=f"rl_module/{P}"),
    "weights and optimizers": lambda learner, source, path: learner.set_state(
        source.get_state(["rl_module", "optimizer", "coefficients"])
    ),
    "the module's own door": lambda learner, source, path: learner.module[P].restore_from_path(path),
    "all modules' door": lambda learner, source, path: learner.module.restore_from_path(path),
    "the module's state": lambda learner, source, path: learner.module[P].set_state(source.get_weights()[P]),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", WITH_TARGETS)
def test_target_networks_follow_weights_that_are_loaded_without_them(kind, load, tmp_path, caplog):
    source, learner = updated(kind), learner_of(kind, seed=9)
    source.save_to_path(tmp_path)
    with caplog.at_level(logging.INFO, "plugrad"):
        LOADS[load](learner, source, tmp_path)
        assert is_target(learner, source.get_weights()[P])
    assert sum("follows the weights that were loaded" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("kind", WITH_TARGETS)
def test_the_next_update_reads_the_targets_that_followed(kind):
    """The state need not be looked at first."""
    source, learner, other = updated(kind), learner_of(kind, seed=9), learner_of(kind, seed=9)
    for each in (learner, other):
        each.module[P].set_state(source.get_weights()[P])
    _ = other.get_state()
    rows = transitions(kind, seed=7)
    assert learner.update(rows)[P]["total_loss"] == other.update(rows)[P]["total_loss"]
    fresh = learner_of(kind, seed=9)
    fresh.set_weights(source.get_weights())
    assert fresh.update(rows)[P]["total_loss"] == other.metrics.results[P]["total_loss"]


@pytest.mark.parametrize("kind", WITH_TARGETS)
@pytest.mark.parametrize("components", [None, ["rl_module", "targets"]])
def test_targets_that_are_loaded_are_those_of_the_state(kind, components):
    source, learner = updated(kind), learner_of(kind, seed=9)
    learner.set_state(source.get_state(components))
    assert not is_target(learner, source.get_weights()[P])
    for name, each in source.get_state("targets")["targets"][P].items():
        np.testing.assert_array_equal(learner.get_state("targets")["targets"][P][name], each)


def test_an_undone_load_leaves_the_targets():
    source, learner = updated("dqn"), updated("dqn")
    before = learner.get_state("targets")["targets"][P]

    class Broken(Exception):
        pass

    def load_and_fail(*, timesteps):
        learner.module[P].set_state(learner_of("dqn", seed=9).get_weights()[P])
        raise Broken

    learner.after_gradient_based_update = load_and_fail
    with pytest.raises(Broken):
        learner.update(transitions("dqn"))
    del learner.after_gradient_based_update
    assert not is_target(learner, source.get_weights()[P])
    for name, each in learner.get_state("targets")["targets"][P].items():
        np.testing.assert_array_equal(each, before[name])


# --- statistics by themselves ---


def test_statistics_that_do_not_fit_change_nothing():
    run = trained("ppo", rewards=True)
    before = run.get_statistics()
    good = {"count": 3, "mean": np.zeros(3), "m2": np.ones(3)}
    for bad in (
        {"observations": {P: good, "stranger": good}},
        {"observations": {P: {**good, "mean": np.zeros(4)}}},
        {"observations": {P: good}, "rewards": {**good, "count": -1}},
    ):
        with pytest.raises(RestoreMismatchError):
            run.set_statistics(bad)
        assert equal(run.get_statistics()["observations"][P], before["observations"][P])
        assert equal(run.get_statistics()["rewards"], before["rewards"])
    run.stop()


def test_other_components_bring_no_statistics(sources):
    _, saved = sources("ppo")
    other = trained("ppo", seed=9, num_steps=10)
    before = Parts(other)
    other.restore_from_path(saved.algorithm, component="optimizer")
    assert equal(Parts(other).statistics[P], before.statistics[P])
    assert equal(Parts(other).weights[P], before.weights[P])
    assert other.iteration == 0
    other.stop()

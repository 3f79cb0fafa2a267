"""Every component of a learner's state is read, undone, hashed and removed with its module, by its one entry."""

from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, with_modules
from needs import backends_under_test

from plugrad import Learner
from plugrad.checkpoint import load_checkpoint
from plugrad.checkpoint.content import FORMAT_VERSION
from plugrad.errors import CheckpointError
from plugrad.learner.state.components import COMPONENTS, Component
from plugrad.learner.state.state import Snapshot, restore_on_error
from plugrad.learner.state.state import digest as digest_of


class WithTargets(Learner):
    """Every component of its state has something in it."""

    def get_target_parameters(self, module_id: str, config: Any = None) -> list[str]:
        return ["vf.out.weight"]


class Notes(Component):
    """What an author of a new component writes."""

    name = "notes"
    attributes = ("notes",)

    def get(self, learner, parts):
        return {module_id: {"n": learner.notes[module_id]} for module_id in parts}

    def set(self, learner, state):
        learner.notes.update({module_id: each["n"] for module_id, each in state.items()})

    def values(self, learner):
        return dict(learner.notes)

    def restore(self, learner, values):
        learner.notes = dict(values)


def built(backend):
    config = ppo_config(backend, minibatch_size=8, shuffle_batch_per_epoch=True, use_kl_loss=True)
    config = config.framework(backend, compile="none").learners(learner_class=WithTargets)
    learner = with_modules(config, "a", "b").build_learner()
    learner.notes = {"a": 1, "b": 2}
    for module_id in ("a", "b"):
        learner.register_state(f"{module_id}/size", 1.0)
    learner.update({"a": ppo_batch(), "b": ppo_batch(seed=1)})
    return learner


@pytest.fixture(scope="module", params=["numpy", *backends_under_test()])
def learner(request):
    return built(request.param)


def changed(state):
    """Another state that fits: numbers one higher, and random numbers from further on."""
    if isinstance(state, np.ndarray):
        return np.asarray(state + 1, state.dtype)
    if not isinstance(state, dict):
        return state + 1 if isinstance(state, int) else state
    if state.get("bit_generator") == "PCG64":
        return {**state, "state": {**state["state"], "state": state["state"]["state"] + 1}}
    return {name: changed(each) for name, each in state.items()}


def names(state):
    """Of all modules, optimizers, counters and streams in a state."""
    for name, each in state.items():
        yield name
        if isinstance(each, dict):
            yield from names(each)


@pytest.fixture(params=[*COMPONENTS, "notes"])
def component(request, monkeypatch):
    if request.param == "notes":
        monkeypatch.setitem(COMPONENTS, "notes", Notes())
    return request.param


def test_a_component_is_in_the_state_and_can_be_asked_for(learner, component):
    state = learner.get_state(component)
    assert list(state) == [component]
    assert digest(learner.get_state()[component]) == digest(state[component])
    assert any(belongs_to(name, "a") for name in names(state[component]))
    if COMPONENTS[component].has_parts:
        part = next(iter(state[component]))
        assert list(learner.get_state(f"{component}/{part}")[component]) == [part]


def test_a_component_is_undone_and_hashed(learner, component):
    before, hashed = learner.get_state(), digest_of(learner)
    other = changed(learner.get_state(component))
    snapshot = Snapshot(learner)
    learner.set_state(other)
    assert digest(learner.get_state(component)) == digest(other) != digest({component: before[component]})
    assert digest_of(learner) != hashed
    snapshot.restore()
    assert digest(learner.get_state()) == digest(before)
    assert digest_of(learner) == hashed


def test_a_component_of_a_module_goes_with_it_and_comes_back_after_an_error(learner, component):
    before, hashed = learner.get_state(), digest_of(learner)
    others = {name for name in names(before[component]) if not belongs_to(name, "a")}
    with undone(learner):
        learner.remove_module("a")
        assert set(names(learner.get_state()[component])) == others < set(names(before[component]))
        learner.set_state(changed(learner.get_state(component)))
    assert digest(learner.get_state()) == digest(before)
    assert digest_of(learner) == hashed


def test_a_component_is_saved_and_resumed(learner, component, tmp_path):
    before = learner.get_state()
    learner.save_to_path(tmp_path / "c")
    assert component in load_checkpoint(tmp_path / "c").state
    learner.set_state(changed(learner.get_state(component)))
    saved = digest({component: before[component]})
    assert digest(learner.get_state(component)) != saved
    learner.restore_from_path(tmp_path / "c", component=component)
    assert digest(learner.get_state(component)) == saved
    learner.set_state(before)


def test_a_component_that_an_older_checkpoint_lacks_stays_as_it_is_and_a_newer_format_is_written(
    learner, monkeypatch, tmp_path
):
    learner.save_to_path(tmp_path / "older")
    component = Notes()
    component.since = FORMAT_VERSION + 1
    monkeypatch.setitem(COMPONENTS, "notes", component)
    before = learner.get_state()
    learner.restore_from_path(tmp_path / "older")
    assert digest(learner.get_state()) == digest(before)
    learner.save_to_path(tmp_path / "newer")
    with pytest.raises(
        CheckpointError, match=rf"format version {component.since}, .* reads up to {FORMAT_VERSION}"
    ):
        load_checkpoint(tmp_path / "newer")


@contextmanager
def undone(learner):
    with suppress(ZeroDivisionError), restore_on_error(learner):
        yield
        raise ZeroDivisionError


def belongs_to(name, module_id):
    """`a` itself, `a/<purpose>`, `<counter>/a` and `a_<optimizer>`."""
    return module_id in name.split("/") or name.startswith(f"{module_id}_")

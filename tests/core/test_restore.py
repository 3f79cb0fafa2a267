"""Restoring gives exactly the state, or the part of it, that was asked for; or an error that changes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import digest, flat, ppo_batch, ppo_config, with_modules

from plugrad import ALL_MODULES, Learner
from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.learner.state.components import COMPONENTS

OPTIMIZER = "b_default_optimizer"
WITH_PARTS = [name for name, each in COMPONENTS.items() if each.has_parts and each.since == 1]
"""Without the state of plugins, which takes names that nobody has registered yet: tests/core/test_plugin_state.py."""


class WithTargets(Learner):
    """Every component of its state has something in it."""

    def get_target_parameters(self, module_id, config=None):
        return ["vf.out.weight", "vf.out.bias"]


def built(seed=1):
    config = ppo_config(
        minibatch_size=16,
        hiddens=(2,),
        shuffle_batch_per_epoch=True,
        use_kl_loss=True,
        lr=[[0, 0.01], [200, 0.001]],
        seed=seed,
    )
    return with_modules(config.learners(learner_class=WithTargets), "a", "b").build_learner()


def train(learner, start, stop):
    for n in range(start, stop):
        batch = {"a": ppo_batch(seed=n), "b": ppo_batch(24, seed=n + 100)}
        learner.update(batch, timesteps={"num_env_steps_sampled_lifetime": 16 * n})


@pytest.fixture(scope="module")
def learner():
    learner = built()
    train(learner, 0, 3)
    return learner


@pytest.fixture(scope="module")
def other_state():
    other = built(seed=7)
    train(other, 0, 4)
    return other.get_state()


# --- damaged states ---


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every entry, inner ones too."""
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        yield (*path, name)
        yield from places(value, (*path, name))


def damage(value: Any, kind: str) -> Any:
    """A value that is not the one that was saved; None for none at all."""
    if kind == "reshaped" and isinstance(value, np.ndarray):
        return np.zeros((*value.shape, 2), value.dtype)
    if kind == "retyped" and isinstance(value, np.ndarray):
        return value.astype(np.float64)
    if kind == "flattened" and isinstance(value, Mapping):
        return {f"{name}/x": each for name, each in value.items()} or []
    return {"listed": [1.0], "text": "3", "none": None, "emptied": {}, "object": object()}.get(kind, ())


KINDS = ["deleted", "renamed", "more", "number", "reshaped", "retyped", "flattened"]
KINDS += ["listed", "text", "none", "emptied", "object"]


@pytest.mark.counts
@settings(max_examples=1000)
@given(data=st.data(), components=st.sets(st.sampled_from(WITH_PARTS), min_size=1))
def test_a_damaged_state_is_refused_and_changes_nothing(learner, other_state, data, components):
    state = copied(other_state)
    for component in sorted(components):
        *parents, name = data.draw(st.sampled_from(list(places(other_state[component]))))
        inner: Any = state[component]
        for parent in parents:
            inner = inner[parent]
        break_entry(inner, name, data.draw(st.sampled_from(KINDS)))
    before = digest(learner.get_state())
    with pytest.raises(RestoreMismatchError, match="Nothing was changed") as caught:
        learner.set_state(state)
    named = [place for kind in caught.value.facts.values() for place in kind]
    assert {place.split("/")[0] for place in named} == components, "all differences are listed at once"
    assert digest(learner.get_state()) == before


def break_entry(inner: dict[Any, Any], name: str, kind: str) -> None:
    if kind == "deleted":
        del inner[name]
    elif kind == "renamed":
        inner[f"{name}2"] = inner.pop(name)
    elif kind == "number":
        inner[3] = inner.pop(name)
    elif kind == "more":
        inner["more"] = np.zeros(1, np.float32)
    else:
        inner[name] = damage(inner[name], kind)


@settings(max_examples=100)
@given(data=st.data())
def test_damaged_counters_and_streams_are_refused_or_taken_exactly(learner, other_state, data):
    before = learner.get_state()
    state = copied(other_state)
    *parents, name = data.draw(
        st.sampled_from([path for path in places(state) if path[0] in ("counters", "streams")])
    )
    inner: Any = state
    for parent in parents:
        inner = inner[parent]
    inner[name] = data.draw(st.sampled_from([None, -1, 2**200, 1.5, "x", True, {}, [], {3: 4}, np.zeros(2)]))
    try:
        learner.set_state(state)
    except RestoreMismatchError:
        assert digest(learner.get_state()) == digest(before)
    else:
        assert digest(learner.get_state()) == digest(state)
        learner.set_state(before)


def copied(tree: Any) -> Any:
    return {name: copied(each) for name, each in tree.items()} if isinstance(tree, dict) else tree


@pytest.mark.parametrize("state", [None, [], np.zeros(3), "state", {3: {}}, {"rl_module": None}])
def test_what_is_no_state_is_refused(learner, state):
    with pytest.raises(RestoreMismatchError, match="Nothing was changed"):
        learner.set_state(state)
    with pytest.raises((RestoreMismatchError, KeyError)):
        learner.set_weights(state)


# --- parts ---


@pytest.mark.parametrize(
    ("component", "not_components", "expected"),
    [
        ("rl_module/b", None, {"rl_module": ["b"]}),
        (["optimizer/" + OPTIMIZER, "rl_module"], None, {"rl_module": ["a", "b"], "optimizer": [OPTIMIZER]}),
        ("rl_module", "rl_module/a", {"rl_module": ["b"]}),
        ({"coefficients/a", "rl_module/a"}, (), {"rl_module": ["a"], "coefficients": ["a"]}),
        (
            None,
            ["rl_module", "optimizer/" + OPTIMIZER, "counters", "streams", "plugin_state"],
            {
                "optimizer": ["a_default_optimizer"],
                "targets": ["a", "b"],
                "coefficients": ["a", "b", ALL_MODULES],
            },
        ),
    ],
)
def test_parts_are_chosen_by_path_and_keep_their_place(learner, component, not_components, expected):
    state, whole = learner.get_state(component, not_components=not_components), learner.get_state()
    assert {name: list(parts) for name, parts in state.items()} == expected
    for name, parts in expected.items():
        assert digest(state[name]) == digest({part: whole[name][part] for part in parts})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("rl_module/c", r"no state component 'rl_module/c'; there are .*rl_module/a, rl_module/b"),
        ("rl_modul/a", r"Did you mean 'rl_module"),
        ("optimizer/b", rf"Did you mean 'optimizer/b|{OPTIMIZER}"),
        ("counters/a", "no state component 'counters/a'"),
        ("rl_module/", "no state component 'rl_module/'"),
        ("", "no state component ''"),
    ],
)
def test_an_unknown_part_is_named_with_those_that_there_are(learner, tmp_path, path, words):
    learner.save_to_path(tmp_path)
    before = digest(learner.get_state())
    for ask in (
        lambda: learner.get_state(path),
        lambda: learner.get_state(not_components=[path]),
        lambda: learner.restore_from_path(tmp_path, component=path),
    ):
        with pytest.raises(ConfigError, match=words):
            ask()
    assert digest(learner.get_state()) == before


PATHS = ["rl_module/b", f"optimizer/{OPTIMIZER}", "coefficients/b", "rl_module", "counters", "streams"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("way", ["memory", "disk"])
def test_a_part_is_restored_and_nothing_else(tmp_path, way, path):
    """Of the rest only the target network of loaded weights changes: it becomes equal to them."""
    source, other = built(seed=7), built()
    train(source, 0, 2)
    train(other, 0, 1)
    for learner in (
        source,
        other,
    ):  # targets keep their first weights, so that equal ones are seen to be copied
        for module_id, target in learner.get_state("targets")["targets"].items():
            assert any(
                (value != learner.get_weights()[module_id][name]).any() for name, value in target.items()
            )
    part = source.get_state(path)
    followers = {
        module_id: {name: weights[name] for name in other.get_state("targets")["targets"][module_id]}
        for module_id, weights in part.get("rl_module", {}).items()
    }
    expected = flat(other.get_state()) | flat(part) | flat({"targets": followers})
    if way == "memory":
        other.set_state(source.get_state(path))
    else:
        source.save_to_path(tmp_path)
        other.restore_from_path(tmp_path, component=path)
    found = flat(other.get_state())
    named = tuple(flat(source.get_state(path)))
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert set(found) - set(expected) == set()
    assert named


def test_a_part_of_a_module_that_is_not_there_is_refused_with_the_modules_that_are(learner):
    before = digest(learner.get_state())
    weights = learner.get_weights()["a"]
    with pytest.raises(RestoreMismatchError, match=r"unexpected: rl_module/c/.*") as caught:
        learner.set_state({"rl_module": {"a": weights, "c": weights}})
    assert "rl_module/a, rl_module/b" in str(caught.value)
    assert caught.value.facts["missing"] == []
    with pytest.raises(KeyError, match="no module 'c'; there are: a, b"):
        learner.set_weights({"a": weights, "c": weights})
    assert digest(learner.get_state()) == before


def test_a_part_must_be_complete(learner):
    before = digest(learner.get_state())
    part = learner.get_state("rl_module/b")
    missing = next(iter(part["rl_module"]["b"]))
    del part["rl_module"]["b"][missing]
    with pytest.raises(RestoreMismatchError, match=f"missing: rl_module/b/{missing}"):
        learner.set_state(part)
    assert digest(learner.get_state()) == before

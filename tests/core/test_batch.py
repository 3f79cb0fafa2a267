"""Batches: three forms of one thing, and every refusal says where, what was expected and what was found."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad import DEFAULT_MODULE_ID, Columns, MultiAgentBatch, RLModule, RLModuleSpec
from plugrad.batch import Rows, by_module, check, missing_column
from plugrad.batch.checks import BatchChecks
from plugrad.errors import BatchError, MissingColumnError, UnknownModuleError
from plugrad.spaces import register
from plugrad.spaces.kinds import KINDS
from plugrad.testing.tiny_learners import OBSERVATIONS, ActorCriticLearner, tiny_batch, tiny_config

P = DEFAULT_MODULE_ID
B = 6


class Stateful(RLModule):
    def get_initial_state(self):
        return {"h": np.zeros(2, np.float32)}


def module(observation: gym.Space[Any] | None = None, action: gym.Space[Any] | None = None, kind=RLModule):
    observation = Box(-1, 1, (3,)) if observation is None else observation
    return kind(observation_space=observation, action_space=Discrete(2) if action is None else action)


def good() -> dict[str, Any]:
    return {
        Columns.OBS: np.zeros((B, 3), np.float32),
        Columns.ACTIONS: np.arange(B) % 2,
        Columns.ADVANTAGES: np.ones(B),
        Columns.LOSS_MASK: np.ones(B, bool),
        "mine": np.zeros((B, 2, 2), np.uint8),
    }


# --- the three forms ----------------------------------------------------------------------------------------------


def test_three_forms_are_one_and_arrays_are_the_callers_own():
    columns = good()
    forms = [columns, {P: columns}, MultiAgentBatch({P: columns}, env_steps=B)]
    for form in forms:
        found = by_module(form)
        assert list(found) == [P]
        assert list(found[P]) == list(columns)
        assert all(found[P][name] is array for name, array in columns.items())
        found[P]["new"] = found["q"] = {}
    assert list(columns) == list(good())
    assert MultiAgentBatch({P: columns}, env_steps=B).count == B


def test_lists_become_arrays_and_whatever_has_a_shape_stays():
    class Tensor:
        shape, dtype = (2,), "framework.float32"

    tensor = Tensor()
    found = by_module({P: {"a": [1, 2], "b": [[1.0, 2.0], [3.0, 4.0]], "c": tensor}})[P]
    assert (found["a"].tolist(), found["b"].shape) == ([1, 2], (2, 2))
    assert found["c"] is tensor
    assert check({P: found}, {P: module()}) == {P: 2}


@pytest.mark.parametrize(
    ("batch", "expected", "found", "words"),
    [
        (None, "mapping", "NoneType", "a batch is {module_id: {column: array}}.*found NoneType"),
        ([1], "mapping", "list", "found list"),
        ({P: {}, "obs": np.ones(2)}, "columns of modules", ["obs"], "mixes columns and modules.*'obs'"),
        ({"obs": [[1.0], [1.0, 2.0]]}, "an array", None, "'default_policy', column 'obs': expected an array"),
    ],
)
def test_what_is_no_batch_is_refused(batch, expected, found, words):
    with pytest.raises(BatchError, match=words) as refused:
        by_module(batch)
    assert refused.value.facts["expected"] == expected
    assert found is None or refused.value.facts["found"] == found


# --- what is good -------------------------------------------------------------------------------------------------


def awkward(array: Any) -> Any:
    """The same values, neither contiguous nor writable."""
    strided = np.repeat(array, 2, axis=0)[::2]
    strided.flags.writeable = False
    return strided


@pytest.mark.parametrize(
    "change",
    [
        {},
        {Columns.OBS: np.zeros((B, 3))},
        {Columns.OBS: np.zeros((B, 3), np.int8)},
        {Columns.OBS: np.full((B, 3), 1e9)},  # values are not checked against the bounds
        {Columns.OBS: np.full((B, 3), np.nan)},  # what nobody reads may be anything
        {Columns.ACTIONS: np.zeros(B, np.uint8)},
    ],
)
@pytest.mark.parametrize("how", [np.asarray, awkward])
def test_good_batches_are_good_and_rows_are_counted(change, how):
    columns = {name: how(array) for name, array in {**good(), **change}.items()}
    before = {name: array.copy() for name, array in columns.items()}
    assert check({P: columns}, {P: module()}) == {P: B}
    for name, array in before.items():
        np.testing.assert_array_equal(columns[name], array)


@pytest.mark.parametrize(
    ("spaces", "obs", "actions"),
    [
        ((Discrete(5), MultiDiscrete([2, 3])), (B,), np.array([[1, 2]] * B)),
        ((Box(0, 255, (4, 4, 3), np.uint8), Box(-1, 1, (2,))), (B, 4, 4, 3), np.full((B, 2), 7.5)),
        ((Box(0, 1, ()), Discrete(3, start=5)), (B,), np.full(B, 2)),
        ((Dict({"a": Discrete(2), "b": Box(0, 1, (3, 2))}), Discrete(2)), (B, 8), np.zeros(B, int)),
    ],
)
def test_every_space_has_its_own_good_shape(spaces, obs, actions):
    assert check({P: {Columns.OBS: np.zeros(obs), Columns.ACTIONS: actions}}, {P: module(*spaces)}) == {P: B}


def test_a_module_without_rows_beside_others_is_counted_as_empty():
    empty = {name: array[:0] for name, array in good().items()}
    modules = {"a": module(), "b": module(), "c": module()}
    assert check({"a": good(), "b": empty, "c": {}}, modules) == {"a": B, "b": 0, "c": 0}


@pytest.mark.parametrize(
    ("kind", "extra"),
    [(Stateful, {}), (RLModule, {Columns.SEQ_LENS: np.full(B, 4)}), (RLModule, {Columns.LOSS_MASK: np.ones((B, 4))})],
)  # fmt: skip
def test_sequences_have_two_leading_dimensions(kind, extra):
    batch = {Columns.OBS: np.zeros((B, 4, 3)), Columns.ACTIONS: np.zeros((B, 4), int), **extra}
    assert check({P: batch}, {P: module(kind=kind)}) == {P: B}
    with pytest.raises(BatchError, match=r"expected shape \[B, T, 3\], found shape \[6, 4, 5\]"):
        check({P: {**batch, Columns.OBS: np.zeros((B, 4, 5))}}, {P: module(kind=kind)})


# --- what is refused ----------------------------------------------------------------------------------------------

ACTIONS = Columns.ACTIONS


@pytest.mark.parametrize(
    ("column", "values", "expected", "found"),
    [
        ("mine", np.array(["a"] * B), "numbers or booleans", "dtype <U1"),
        ("mine", np.array(["a"] * B, ">U3"), "numbers or booleans", "dtype >U3"),
        ("mine", np.array([b"a"] * B), "numbers or booleans", "dtype |S1"),
        ("mine", np.array([{}] * B), "numbers or booleans", "dtype object"),
        ("mine", np.zeros(B, complex), "numbers or booleans", "dtype complex128"),
        ("mine", np.zeros(B, "datetime64[s]"), "numbers or booleans", "dtype datetime64[s]"),
        ("mine", np.zeros(B, [("a", "f4")]), "numbers or booleans", "dtype [('a', '<f4')]"),
        ("mine", None, "numbers or booleans", "dtype object"),
        ("mine", 1.0, "a leading dimension of rows", "a scalar"),
        ("mine", np.zeros(B - 1), "6 rows like the other columns", "5 rows"),
        ("mine", np.zeros(0), "6 rows like the other columns", "0 rows"),
        (Columns.OBS, np.zeros((B, 4)), "shape [B, 3]", "shape [6, 4]"),
        (Columns.OBS, np.zeros(B), "shape [B, 3]", "shape [6]"),
        (Columns.OBS, np.zeros((B, 1, 3)), "shape [B, 3]", "shape [6, 1, 3]"),
        (ACTIONS, np.zeros((B, 1), int), "shape [B]", "shape [6, 1]"),
        (ACTIONS, np.full(B, 2), "0-based actions of Discrete(2)", "values from 2 to 2"),
        (ACTIONS, np.arange(B) - 1, "0-based actions of Discrete(2)", "values from -1 to 4"),
        (ACTIONS, np.zeros(B), "integers of Discrete(2)", "dtype float64"),
    ],
)
def test_each_refusal_says_where_what_was_expected_and_what_was_found(column, values, expected, found):
    with pytest.raises(BatchError) as refused:
        check({P: {**good(), column: values}}, {P: module()})
    facts = {"module_id": P, "column": column, "expected": expected, "found": found}
    assert refused.value.facts == facts
    said = f"module 'default_policy', column {column!r}: expected {expected}, found {found}"
    assert str(refused.value) == said


changes = st.sampled_from(
    [
        {},
        {ACTIONS: np.zeros(B, int)},
        {ACTIONS: np.full(B, 2)},
        {ACTIONS: np.zeros(B, np.int32)},
        {ACTIONS: np.zeros(B)},
        {Columns.OBS: np.zeros((B, 4), np.float32)},
        {Columns.LOSS_MASK: np.zeros(B, bool)},
        {Columns.ACTION_MASK: np.ones((B, 2), bool)},
        {Columns.ACTION_MASK: np.zeros((B, 2), bool)},
        {"mine": np.zeros(B - 1)},
        {"mine": np.array(["a"] * B)},
    ]
)


@given(st.lists(st.tuples(changes, st.booleans()), max_size=6))
def test_what_is_checked_of_a_batch_does_not_depend_on_those_before_it(batches):
    def checked(check_one, batch, modules):
        try:
            return check_one(batch, modules)
        except BatchError as error:
            return str(error)

    checks, two, three = BatchChecks(), {P: module()}, {P: module(action=Discrete(3))}
    for change, has_three in batches:
        batch, modules = {P: {**good(), **change}}, three if has_three else two
        assert checked(checks.check, batch, modules) == checked(check, batch, modules)


@pytest.mark.parametrize("start", [0, 3])
def test_an_action_of_several_parts_is_checked_part_by_part(start):
    modules = {P: module(action=MultiDiscrete([2, 4], start=[start, start]))}
    batch = good()
    batch[ACTIONS] = np.array([[1, 3]] * B)
    assert check({P: batch}, modules) == {P: B}
    batch[ACTIONS] = np.array([[3, 1]] * B)
    with pytest.raises(
        BatchError, match=r"'actions': expected 0-based actions of MultiDiscrete.*from 1 to 3"
    ):
        check({P: batch}, modules)


def test_the_refusal_is_of_the_module_that_is_wrong():
    modules = {"a": module(), "b": module(observation=Box(-1, 1, (5,)))}
    with pytest.raises(BatchError, match=r"^module 'b', column 'obs'"):
        check({"a": good(), "b": good()}, modules)


def test_an_unknown_module_gets_the_known_ones_and_the_closest():
    with pytest.raises(UnknownModuleError) as refused:
        check({"polcy": good()}, {"policy": module(), "other": module()})
    assert str(refused.value).startswith("module 'polcy', columns ['obs', 'actions', ")
    assert str(refused.value).endswith("the learner has: policy, other. Did you mean 'policy'?")
    facts = {"module_id": "polcy", "column": "obs", "expected": ["policy", "other"], "found": "polcy"}
    assert refused.value.facts == {**facts, "known": ["policy", "other"]}


@pytest.mark.parametrize("batch", [{}, {P: {}}, {P: {"obs": np.zeros((0, 3))}}])
def test_no_rows_at_all_are_refused(batch):
    with pytest.raises(BatchError, match="no rows: nothing to train on") as refused:
        check(batch, {P: module()})
    assert refused.value.facts["expected"] == "at least 1 row"


dtypes = st.sampled_from(["f4", "f8", "i4", "u1", "?", "U2", "S2", "O", "c16", "M8[s]", "m8[s]"])
columns = st.dictionaries(
    st.sampled_from(["obs", "actions", "mine", "other"]),
    dtypes.flatmap(
        lambda dtype: hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3).map(
            lambda shape: np.zeros(shape, dtype)
        )
    ),
    max_size=4,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "unknown"]), columns, max_size=2))
def test_any_batch_is_either_good_or_refused_by_name(batch):
    modules = {"a": module(), "b": module(observation=Box(-1, 1, ()), action=Box(-1, 1, (2,)))}
    refused, rows = None, {}
    try:
        rows = check(by_module(batch), modules)
    except BatchError as error:
        refused = error
    if refused:
        assert {"expected", "found"} <= set(refused.facts) or "known" in refused.facts
        return
    assert any(rows.values())
    for module_id, own in batch.items():
        assert {len(array) for array in own.values()} <= {rows[module_id]}
        assert {array.dtype.kind for array in own.values()} <= set("biuf")
        if rows[module_id]:
            spaces = modules[module_id].observation_space, modules[module_id].action_space
            for name, space in zip((Columns.OBS, ACTIONS), spaces, strict=True):
                assert name not in own or own[name].shape[1:] == space.shape


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_are_taken_when_they_are_asked_for_and_once():
    taken = []

    def take(column):
        taken.append(column)
        return column[[2, 0]]

    rows = Rows(P, {"a": np.arange(3), "b": np.arange(3) * 10}, take)
    assert (list(rows), len(rows), "a" in rows, "c" in rows) == (["a", "b"], 2, True, False)
    assert not taken
    assert rows["b"].tolist() == [20, 0]
    assert rows["b"] is rows["b"]
    assert len(taken) == 1
    assert rows.get("c", "default") == "default"


def test_a_missing_column_gets_the_present_ones_and_the_closest():
    with pytest.raises(MissingColumnError) as missing:
        Rows(P, {"advantages": 1, "obs": 2}, lambda column: column)["advantage"]
    assert str(missing.value) == (
        "module 'default_policy', column 'advantage': expected by the forward pass or the loss, "
        "found only: advantages, obs. Did you mean 'advantages'?"
    )
    found = ["advantages", "obs"]
    facts = {"module_id": P, "column": "advantage", "expected": "advantage", "found": found}
    assert missing.value.facts == facts
    assert isinstance(missing.value, KeyError)
    assert "found only: none" in str(missing_column(P, "obs", {}))


# --- spaces are asked once ------------------------------------------------------------------------------------------


class Asked(gym.Space[Any]):
    """Directions, for which a Discrete space stands; counts how often it is asked for it."""

    num_asked = 0

    def __init__(self, number: int = 2) -> None:
        super().__init__()
        self.number = number


def discrete_of(space: Asked) -> Discrete:
    Asked.num_asked += 1
    return Discrete(space.number)


def register_asked() -> None:
    register(
        Asked,
        as_space=discrete_of,
        to_array=lambda space, value: value,
        from_array=lambda space, array: int(array),
        arguments=lambda space: {"number": space.number},
        make=lambda data: Asked(data["number"]),
    )


@pytest.fixture
def no_more_kinds():
    kinds = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(kinds)


@pytest.mark.usefixtures("no_more_kinds")
def test_spaces_are_asked_once_and_numbers_are_checked_each_time():
    register_asked()
    checks, modules = BatchChecks(), {P: module(action=Asked())}
    assert checks.check({P: good()}, modules) == {P: B}
    known = Asked.num_asked
    assert checks.check({P: {**good(), "more": np.zeros(B)}}, modules) == {P: B}
    for _ in range(2):
        with pytest.raises(BatchError, match=r"0-based actions of Discrete\(2\), found values from 0 to 2"):
            checks.check({P: {**good(), ACTIONS: np.arange(B) % 3}}, modules)
        assert checks.check({P: good()}, modules) == {P: B}
    # Shapes are compared with the spaces in each new form of a batch: once for "more", and once back.
    assert Asked.num_asked - known <= 4


def test_a_space_that_a_module_gets_later_is_what_its_batches_are_checked_against():
    checks, one = BatchChecks(), module()
    assert checks.check({P: good()}, {P: one}) == {P: B}
    modules = {P: one}
    checks.check({P: good()}, modules)
    one.action_space = Discrete(1)
    for _ in range(2):
        with pytest.raises(BatchError, match=r"0-based actions of Discrete\(1\)"):
            checks.check({P: good()}, modules)
    one.action_space = MultiDiscrete([2, 2])
    for _ in range(2):
        with pytest.raises(BatchError, match=r"'actions': expected shape \[B, 2\], found shape \[6\]"):
            checks.check({P: good()}, modules)
    one.action_space, one.observation_space = Discrete(2), Box(-1, 1, (4,))
    with pytest.raises(BatchError, match=r"'obs': expected shape \[B, 4\], found shape \[6, 3\]"):
        checks.check({P: good()}, modules)


@pytest.mark.usefixtures("no_more_kinds")
def test_a_kind_that_is_registered_later_is_what_batches_are_checked_against():
    class Later(Asked):
        pass

    checks, modules = BatchChecks(), {P: module(action=Later())}
    batch = {P: {**good(), ACTIONS: np.arange(B) % 3}}
    assert checks.check(batch, modules) == {P: B}  # nothing is known of the space
    register_asked()
    for _ in range(2):
        with pytest.raises(BatchError, match=r"0-based actions of Discrete\(2\)"):
            checks.check(batch, modules)


def test_a_module_that_takes_the_place_of_another_is_checked_against_its_own_spaces():
    config = tiny_config("numpy", modules=["a", "b"])
    learner = ActorCriticLearner(config=config)
    learner.build()
    batch = {"a": tiny_batch(), "b": tiny_batch()}
    learner.update(batch)
    state = learner.get_state()
    learner.set_state(state)
    wrong = {"a": tiny_batch(), "b": {**tiny_batch(), ACTIONS: np.full(16, 2)}}
    for _ in range(2):
        with pytest.raises(BatchError, match=r"module 'b', column 'actions': .* of Discrete\(2\)"):
            learner.update(wrong)
    learner.remove_module("b")
    spec = RLModuleSpec(observation_space=Dict({"x": OBSERVATIONS}), action_space=Discrete(3))
    learner.add_module(module_id="b", module_spec=spec)
    wrong["b"][Columns.OBS] = {"x": wrong["b"][Columns.OBS]}
    learner.update(wrong)  # now it is not wrong
    with pytest.raises(BatchError, match=r"module 'a', column 'actions': .* of Discrete\(2\)"):
        learner.update({**wrong, "a": {**tiny_batch(), ACTIONS: np.full(16, 2)}})
    wrong["b"][ACTIONS] = np.full(16, 3)
    with pytest.raises(BatchError, match=r"module 'b', column 'actions': .* of Discrete\(3\)"):
        learner.update(wrong)

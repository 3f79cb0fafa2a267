"""Malformed batches by kind, drawn by hypothesis: each is one good batch with one thing wrong with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from learning import ppo_batch

from plugrad.errors import BatchError

MODULES = ("a", "b")
ROWS = 6
COLUMNS = tuple(ppo_batch(1))
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Malformed(NamedTuple):
    """A batch, and where the error must point: None where that is not one module or one column."""

    batch: Any
    module_id: Any = None
    column: Any = None


_GOOD = {module_id: ppo_batch(ROWS, seed) for seed, module_id in enumerate(MODULES)}


def good() -> dict[Any, dict[Any, np.ndarray]]:
    """Rows of two modules."""
    return {module_id: dict(columns) for module_id, columns in _GOOD.items()}


def _changed(draw: Draw, columns: Any, make: Callable[[np.ndarray], Any]) -> Malformed:
    batch, module_id = good(), draw(st.sampled_from(MODULES))
    column = draw(st.sampled_from(columns))
    batch[module_id][column] = make(batch[module_id][column])
    return Malformed(batch, module_id, column)


def unknown_module(draw: Draw) -> Malformed:
    near = st.sampled_from(["A", "aa", "b ", "", "default_policy", "__all_modules__", "../a", "a\0"])
    name = draw(near | st.text() | st.integers() | st.none() | st.tuples(st.integers()))
    batch = {**good(), name: ppo_batch(ROWS)} if name not in MODULES else {"c": ppo_batch(ROWS)}
    return Malformed(batch, "c" if name in MODULES else name)


def column_name(draw: Draw) -> Malformed:
    name = draw(st.integers() | st.none() | st.binary(max_size=3) | st.tuples(st.text(max_size=2)))
    batch, module_id = good(), draw(st.sampled_from(MODULES))
    batch[module_id][name] = np.zeros(ROWS)
    return Malformed(batch, module_id, name)


def lengths(draw: Draw) -> Malformed:
    rows = draw(st.integers(0, 200).filter(lambda rows: rows != ROWS))
    return _changed(draw, COLUMNS, lambda good: np.resize(good, (rows, *good.shape[1:])))


def shape(draw: Draw) -> Malformed:
    more = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple))
    drop = draw(st.booleans())

    def make(good: np.ndarray) -> np.ndarray:
        inner = (*more, *good.shape[1:]) if drop or good.ndim == 1 else more
        return np.zeros((ROWS, *(inner if inner != good.shape[1:] else (*inner, 1))), good.dtype)

    return _changed(draw, ("obs", "actions"), make)


def objects(draw: Draw) -> Malformed:
    values = [None, {}, object(), [1], "x", 2**70, lambda: 0]
    chosen = draw(st.lists(st.sampled_from(values), min_size=ROWS, max_size=ROWS))

    def make(_: np.ndarray) -> np.ndarray:
        array = np.empty(ROWS, object)
        array[:] = chosen
        return array

    return _changed(draw, COLUMNS, make)


def dtype(draw: Draw) -> Malformed:
    kinds = st.sampled_from(["c8", "c16", "M8[s]", "m8[D]", [("x", "f4")]])
    sized = st.tuples(st.sampled_from(["U", ">U", "S", "V"]), st.integers(1, 20))
    chosen = np.dtype(draw(kinds | sized.map(lambda each: f"{each[0]}{each[1]}")))
    shaped = draw(st.booleans())
    return _changed(draw, COLUMNS, lambda good: np.zeros(good.shape if shaped else ROWS, chosen))


def float_actions(draw: Draw) -> Malformed:
    chosen = draw(st.sampled_from(["f2", "f4", "f8", "?"]))
    value = draw(st.floats(0, 1))
    return _changed(draw, ("actions",), lambda good: np.full(good.shape, value, chosen))


def no_action(draw: Draw) -> Malformed:
    wrong = draw(st.integers(-(2**31), -1) | st.integers(2, 2**31 - 1))
    where, chosen = draw(st.integers(0, ROWS - 1)), draw(st.sampled_from(["i4", "i8"]))

    def make(good: np.ndarray) -> np.ndarray:
        actions = good.astype(chosen)
        actions[where] = wrong
        return actions

    return _changed(draw, ("actions",), make)


class Explodes:
    """Is no array, and says so in its own way."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("boom")


def no_array(draw: Draw) -> Malformed:
    ragged = st.lists(st.lists(st.integers(), max_size=3), min_size=2).filter(
        lambda rows: len({*map(len, rows)}) > 1
    )
    others = st.sampled_from([None, {1, 2}, b"abc", "text", object(), Explodes(), range, np.zeros])
    return _changed(
        draw, COLUMNS, lambda _: draw(ragged | others | st.dictionaries(st.text(), st.integers()))
    )


def scalar(draw: Draw) -> Malformed:
    value = draw(st.floats() | st.integers(-5, 5) | st.booleans())
    wrapped = draw(st.booleans())
    return _changed(draw, COLUMNS, lambda _: np.array(value) if wrapped else value)


def no_rows(draw: Draw) -> Malformed:
    ids = draw(st.lists(st.sampled_from(MODULES), unique=True))
    columns = draw(st.lists(st.sampled_from(COLUMNS), unique=True))
    widths = {"obs": (0, 3), "action_dist_inputs": (0, 2)}
    batch = {each: {column: np.zeros(widths.get(column, (0,))) for column in columns} for each in ids}
    return Malformed(batch, ids[0] if ids else None, columns[0] if ids and columns else None)


def no_batch(draw: Draw) -> Malformed:
    leaf = st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())
    mixed = st.sampled_from(COLUMNS).map(lambda column: {**good(), column: np.zeros(ROWS)})
    return Malformed(draw(leaf.filter(lambda batch: batch is not None) | mixed))


FOUND_BY_THE_CHECK = {
    each.__name__: each
    for each in (
        *(unknown_module, column_name, lengths, shape, objects, dtype),
        *(float_actions, no_action, no_array, scalar, no_rows, no_batch),
    )
}


def missing_column(draw: Draw) -> Malformed:
    batch, module_id = good(), draw(st.sampled_from(MODULES))
    column = draw(st.sampled_from([each for each in COLUMNS if each != "action_dist_inputs"]))
    del batch[module_id][column]
    return Malformed(batch, module_id, column)


def non_finite(draw: Draw) -> Malformed:
    value = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    where = draw(st.integers(0, ROWS - 1))

    def make(good: np.ndarray) -> np.ndarray:
        values = good.copy()
        values[where] = value
        return values

    return _changed(draw, ("obs", "action_logp", "advantages", "value_targets"), make)


def broadcast(draw: Draw) -> Malformed:
    shapes = st.sampled_from([(ROWS, 1), (ROWS, 2), (ROWS, ROWS), (ROWS, 1, 1)])
    chosen = draw(shapes)
    scalars = ("action_logp", "advantages", "value_targets")
    return _changed(draw, scalars, lambda good: np.resize(good, chosen))


KINDS = {**FOUND_BY_THE_CHECK, **{each.__name__: each for each in (missing_column, non_finite, broadcast)}}


def malformed(kind: str) -> st.SearchStrategy[Malformed]:
    """Batches of one kind."""
    return st.composite(lambda draw: KINDS[kind](draw))()


def assert_named(wrong: Malformed, error: BatchError) -> None:
    """The error says which module and column it is of, what was expected and what was found."""
    facts, said = error.facts, str(error)
    assert {"module_id", "column", "expected", "found"} <= facts.keys()
    for fact, expected in (("module_id", wrong.module_id), ("column", wrong.column)):
        if expected is not None:
            assert facts[fact] == expected
            assert repr(expected) in said
    assert "found" in said
    assert "expected" in said or wrong.module_id is None

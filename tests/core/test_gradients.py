"""Flat buffers and clips: equal to plain numpy by name, whatever the shapes, and never copied without need."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad import numpy_ops as ops
from plugrad.errors import ConfigError
from plugrad.gradients import (
    FlatGradients,
    Layout,
    as_flat,
    clip_gradients,
    flat_of,
    layouts_in,
)

shapes = st.lists(
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3).map(tuple), min_size=1, max_size=5
).map(tuple)
limits = st.floats(1e-3, 1e3)


@st.composite
def layouts(draw: Any, prefix: str = "p") -> Layout:
    drawn = draw(shapes)
    return Layout(tuple(f"{prefix}/{n}" for n in range(len(drawn))), drawn)


def arrays_of(layout: Layout, seed: int = 0, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        ref: np.asarray(scale * rng.standard_normal(shape), np.float32)
        for ref, shape in zip(layout.refs, layout.shapes, strict=True)
    }


def flat_gradients(*found: Layout) -> tuple[FlatGradients, dict[str, Any]]:
    named = {ref: array for n, each in enumerate(found) for ref, array in arrays_of(each, n).items()}
    return FlatGradients(ops, [(each, each.join(ops, named)) for each in found]), named


def assert_same(found: Any, expected: Any) -> None:
    assert list(found) == list(expected)
    for ref, array in expected.items():
        np.testing.assert_array_equal(found[ref], array)
        assert np.shape(found[ref]) == np.shape(array)


# --- layout -------------------------------------------------------------------------------------------------------


@given(layouts())
def test_split_undoes_join(layout):
    named = arrays_of(layout)
    flat = layout.join(ops, named)
    assert flat.shape == (layout.size,)
    np.testing.assert_array_equal(flat, np.concatenate([array.ravel() for array in named.values()]))
    assert_same(layout.split(ops, flat), named)


@given(layouts(), st.data())
def test_what_is_missing_or_none_counts_as_zero(layout, data):
    named = arrays_of(layout)
    kept = data.draw(st.sets(st.sampled_from(layout.refs)))
    absent = data.draw(st.sampled_from(["missing", "none"]))
    partial = {r: (a if r in kept else None) for r, a in named.items() if r in kept or absent == "none"}
    found = layout.split(ops, layout.join(ops, partial))
    assert_same(found, {ref: array if ref in kept else np.zeros_like(array) for ref, array in named.items()})
    assert all(array.dtype == np.float32 for array in found.values())


# --- gradients by name --------------------------------------------------------------------------------------------


@given(layouts("a"), layouts("b"))
def test_flat_gradients_read_as_the_dict_they_stand_for(first, second):
    gradients, named = flat_gradients(first, second)
    assert_same(gradients, named)
    assert len(gradients) == len(named)
    assert gradients.layouts == (first, second)
    assert ("a/0" in gradients, "c/0" in gradients) == (True, False)
    assert_same(gradients.only([second]), {ref: named[ref] for ref in second.refs})


@given(layouts("a"), layouts("b"), st.data())
def test_an_edit_is_in_the_flat_gradient_and_nowhere_else(first, second, data):
    gradients, named = flat_gradients(first, second)
    ref = data.draw(st.sampled_from(first.refs))
    other = gradients.flat(second)
    gradients[ref] = 2.0 * named[ref] + 1.0
    named[ref] = 2.0 * named[ref] + 1.0
    np.testing.assert_array_equal(gradients.flat(first), first.join(ops, named))
    assert gradients.flat(second) is other
    np.testing.assert_array_equal(gradients.only([first]).flat(first), first.join(ops, named))


def test_nothing_is_copied_until_somebody_edits():
    layout = Layout(("a", "b"), ((2, 2), (3,)))
    flat = np.arange(7, dtype=np.float32)
    gradients = FlatGradients(ops, [(layout, flat)])
    assert dict(gradients).keys() == {"a", "b"}
    assert gradients.flat(layout) is flat
    assert gradients.only([layout]).flat(layout) is flat
    gradients["b"] = np.zeros(3, np.float32)
    assert gradients.flat(layout).tolist() == [0, 1, 2, 3, 0, 0, 0]
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_gradient_can_be_replaced_but_neither_removed_nor_invented():
    gradients, _ = flat_gradients(Layout(("a",), ((2,),)))
    with pytest.raises(TypeError, match="'a' cannot be removed: set it to zeros"):
        del gradients["a"]
    with pytest.raises(KeyError):
        gradients["b"] = np.zeros(2)


@given(layouts("a"), layouts("b"), st.booleans())
def test_a_plain_dict_is_as_good_as_flat_gradients(first, second, plain):
    gradients, named = flat_gradients(first, second)
    given_ = dict(gradients) if plain else gradients
    np.testing.assert_array_equal(flat_of(ops, given_, second), second.join(ops, named))
    assert_same(as_flat(ops, given_), named)
    assert layouts_in(given_, [first, second]) == [first, second]
    assert layouts_in(given_, [second]) == [second]


def test_an_optimizer_without_any_gradient_is_left_out():
    first, second = Layout(("a", "b"), ((2,), (1,))), Layout(("c",), ((1,),))
    only_b = {"a": None, "b": np.ones(1), "c": None}
    assert layouts_in(only_b, [first, second]) == [first]
    assert layouts_in(flat_gradients(first)[0], [first, second]) == [first]
    assert list(as_flat(ops, only_b)) == ["b"]
    assert as_flat(ops, {"a": None}).layouts == ()


# --- clips --------------------------------------------------------------------------------------------------------


def norm_of(named: dict[str, Any]) -> float:
    return float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in named.values())))


def clipped_by_hand(named: dict[str, Any], limit: float, kind: str) -> dict[str, Any]:
    if kind == "value":
        return {ref: np.clip(array, -limit, limit) for ref, array in named.items()}
    norms = {ref: norm_of(named if kind == "global_norm" else {ref: named[ref]}) for ref in named}
    return {ref: array * min(1.0, limit / (norms[ref] + 1e-6)) for ref, array in named.items()}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", ["value", "norm", "global_norm"])
@given(first=layouts("a"), second=layouts("b"), limit=limits, scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_clips_agree_with_numpy_by_name(kind, plain, first, second, limit, scale):
    gradients, named = flat_gradients(first, second)
    gradients.update({ref: np.float32(scale) * array for ref, array in named.items()})
    named = {ref: np.float32(scale) * array for ref, array in named.items()}
    given_ = dict(gradients) if plain else gradients
    clipped, norm = clip_gradients(ops, given_, grad_clip=limit, grad_clip_by=kind)
    np.testing.assert_allclose(norm, norm_of(named), rtol=1e-5)
    expected = clipped_by_hand(named, limit, kind)
    assert list(clipped) == list(expected)
    for ref, array in expected.items():
        np.testing.assert_allclose(clipped[ref], array, rtol=1e-5)
        assert clipped[ref].dtype == np.float32
    assert_same(gradients, named)


@pytest.mark.parametrize("kind", ["value", "norm", "global_norm"])
@given(layout=layouts(), limit=limits)
def test_nothing_leaves_a_clip_beyond_the_limit(kind, layout, limit):
    gradients, _ = flat_gradients(layout)
    clipped, _ = clip_gradients(ops, gradients, grad_clip=limit, grad_clip_by=kind)
    most = {
        "value": max(float(np.abs(array).max()) for array in clipped.values()),
        "norm": max(norm_of({ref: array}) for ref, array in clipped.items()),
        "global_norm": norm_of(dict(clipped)),
    }
    assert most[kind] <= limit * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["value", "norm", "global_norm"])
def test_gradients_within_the_limit_stay_as_they_are(kind):
    gradients, named = flat_gradients(Layout(("a", "b"), ((4,), (2, 3))))
    clipped, _ = clip_gradients(ops, gradients, grad_clip=100.0, grad_clip_by=kind)
    assert_same(clipped, named)
    clipped, _ = clip_gradients(ops, gradients, grad_clip=float("inf"), grad_clip_by=kind)
    assert_same(clipped, named)


def test_a_norm_of_zero_divides_nothing_by_zero():
    gradients = {"a": np.zeros(3, np.float32)}
    for kind in ("value", "norm", "global_norm"):
        clipped, norm = clip_gradients(ops, gradients, grad_clip=0.5, grad_clip_by=kind)
        assert (clipped["a"].tolist(), float(norm)) == ([0.0, 0.0, 0.0], 0.0)


def test_without_a_limit_the_norm_is_measured_and_nothing_changes():
    gradients, named = flat_gradients(Layout(("a",), ((5,),)))
    clipped, norm = clip_gradients(ops, gradients, grad_clip=None, grad_clip_by="global_norm")
    assert_same(clipped, named)
    np.testing.assert_allclose(norm, norm_of(named), rtol=1e-6)


def test_no_gradients_have_the_norm_zero():
    clipped, norm = clip_gradients(ops, {}, grad_clip=1.0, grad_clip_by="global_norm")
    assert (dict(clipped), float(norm)) == ({}, 0.0)


def test_a_nan_is_never_hidden_by_a_clip_of_the_norm():
    gradients = {"a": np.array([1.0, np.nan], np.float32), "b": np.ones(1, np.float32)}
    for kind in ("norm", "global_norm"):
        clipped, norm = clip_gradients(ops, gradients, grad_clip=1.0, grad_clip_by=kind)
        assert np.isnan(norm)
        assert np.isnan(clipped["a"]).any()


def test_another_way_of_clipping_is_an_error():
    with pytest.raises(ConfigError, match="grad_clip_by='nrom': use 'value', 'norm' or 'global_norm'"):
        clip_gradients(ops, {"a": np.ones(2)}, grad_clip=1.0, grad_clip_by="nrom")

"""Rows of observations, the networks that read their parts, and images in every layout, in numpy."""

import json
import logging

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from plugrad import Columns, Learner, RLModuleSpec, load_policy, numpy_ops
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import BatchError, ConfigError, PlugradError
from plugrad.networks import ActorCritic
from plugrad.observations import choices_of_rows, flat_rows, in_structure, row_parts, row_space
from plugrad.policy.normalization import ObservationNormalizer
from plugrad_ppo import PPOConfig

ACTIONS = Discrete(2)
IMAGE = Box(0, 255, (6, 5, 2), np.uint8)
CAMERA = Dict({"camera": IMAGE, "gear": Discrete(3, start=4), "speed": Box(-1.0, 1.0, (2,))})
FILTERS = [[3, 3, 2]]

LEAVES = st.one_of(
    st.sampled_from([Box(-1.0, 1.0, (2, 3)), Box(0, 9, (4,), np.uint8), Box(-5, 5, (), np.int64)]),
    st.integers(1, 4).map(lambda n: Discrete(n, start=n - 2)),
    st.sampled_from(
        [MultiDiscrete([2, 3], start=[1, -1]), MultiDiscrete([[2, 1], [3, 2]]), MultiBinary([2, 2])]
    ),
    st.sampled_from([Discrete(3, start=1, dtype=np.uint8), MultiDiscrete([2, 3], np.uint8)]),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(Dict),
        st.lists(inner, min_size=1, max_size=3).map(Tuple),
    ),
    max_leaves=5,
).filter(lambda space: isinstance(space, Dict | Tuple))


def stacked(space, observations):
    """A batch in the structure of the space."""
    if isinstance(space, Dict):
        return {key: stacked(each, [o[key] for o in observations]) for key, each in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(stacked(each, [o[n] for o in observations]) for n, each in enumerate(space.spaces))
    return np.stack(observations)


def samples(space, number, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(number)]


class Last(gym.Env):
    """Observes the same all the time."""

    def __init__(self, space, seen):
        self.observation_space, self.action_space, self.seen = space, ACTIONS, seen

    def reset(self, *, seed=None, options=None):
        return self.seen, {}

    def step(self, action):
        return self.seen, 1.0, True, False, {}


@pytest.mark.parametrize(
    ("space", "seen", "row"),
    [
        (Discrete(4, dtype=np.uint8), np.uint8(3), [0, 0, 0, 1]),
        (Discrete(127, start=1, dtype=np.int8), np.int8(127), [*[0] * 126, 1]),
        (MultiDiscrete([3, 2], dtype=np.uint8), np.array([2, 1], np.uint8), [0, 0, 1, 0, 1]),
        (
            MultiDiscrete([100, 3], start=[28, 0], dtype=np.int8),
            np.array([127, 0], np.int8),
            [*[0] * 99, 1, 1, 0, 0],
        ),
        (
            Dict(a=Discrete(3, dtype=np.uint8), b=Box(0, 9, (2,))),
            {"a": np.uint8(1), "b": [7.0, 8.0]},
            [0, 1, 0, 7, 8],
        ),
    ],
    ids=str,
)
def test_choices_are_one_hot_whatever_the_dtype_of_their_space(space, seen, row):
    """Sums of firsts and numbers of choices overflow in a small dtype; uint64 and int64 together are floats."""
    some = PPOConfig().environment(Last, env_config={"space": space, "seen": seen}).framework("numpy")
    algorithm = some.rl_module(model_config={"fcnet_hiddens": [1]}).build_algo()
    assert algorithm.sample(1)[0].observations[0].tolist() == row
    assert flat_rows(space, seen).tolist() == row
    assert algorithm.get_policy().predict(seen)[0] in ACTIONS


@pytest.mark.parametrize(
    "space",
    [Discrete(4), Discrete(3, start=-1), MultiDiscrete([2, 3]), MultiDiscrete([[2], [4]], start=[[1], [5]])],
    ids=str,
)
def test_one_hot_rows_become_the_choices_that_they_are_of(space):
    observations = samples(space, 5)
    found = choices_of_rows(space, flat_rows(space, stacked(space, observations)))
    np.testing.assert_array_equal(found, np.stack(observations))


def network(space, **model):
    config = {"fcnet_hiddens": [4], **model}
    return ActorCritic(RLModuleSpec(observation_space=space, action_space=ACTIONS, model_config=config))


def outputs(net, weights, obs):
    return net.forward(numpy_ops, weights, {Columns.OBS: obs}, value=True)


@settings(max_examples=50)
@given(space=SPACES, number=st.integers(1, 3))
def test_rows_are_those_of_gymnasium_and_their_parts_are_the_observation(space, number):
    observations = samples(space, number)
    rows = flat_rows(space, stacked(space, observations))
    expected = np.stack([gym.spaces.flatten(space, each) for each in observations])
    np.testing.assert_array_equal(rows, expected)
    assert rows.dtype == gym.spaces.flatten_space(space).dtype
    parts = row_parts(space)
    assert [0, *[part.stop for part in parts]] == [*[part.start for part in parts], rows.shape[1]]
    assert row_space(space).shape == rows.shape[1:]
    again = in_structure(numpy_ops, space, rows)
    leaves = [part.space for part in parts]
    for leaf, part, found in zip(leaves, parts, flattened(again), strict=True):
        assert found.shape == (number, *part.shape)
        if isinstance(leaf, Box | MultiBinary):
            assert found.shape[1:] == leaf.shape
        np.testing.assert_array_equal(found.reshape(number, -1), rows[:, part.start : part.stop])


def flattened(value):
    if isinstance(value, dict | tuple):
        return [
            each
            for inner in (value.values() if isinstance(value, dict) else value)
            for each in flattened(inner)
        ]
    return [value]


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"camera": np.zeros((2, 6, 5, 2))}, "expected a dict of"),
        (
            {"camera": np.zeros((2, 6, 5)), "gear": [4, 5], "speed": np.zeros((2, 2))},
            r"\['camera'\].*shape \[2, 6, 5\]",
        ),
        (
            {"camera": np.zeros((2, 6, 5, 2)), "gear": [0, 5], "speed": np.zeros((2, 2))},
            r"\['gear'\].*whole numbers",
        ),
        ({"camera": np.zeros((2, 6, 5, 2)), "gear": [4, 5], "speed": np.zeros((3, 2))}, "equally many rows"),
    ],
)
def test_an_observation_of_another_structure_says_where(observation, words):
    with pytest.raises(BatchError, match=words):
        flat_rows(CAMERA, observation)


def test_a_part_that_is_no_array_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"observations\['a'\]\[1\] are of a Text space"):
        row_parts(Dict({"a": Tuple([Discrete(2), Text(3)])}))


def test_vectors_in_a_dict_are_what_the_flat_row_is():
    space = Dict({"a": Box(-1.0, 1.0, (2, 2)), "b": Discrete(3), "c": MultiBinary(2)})
    joined, flat = network(space), network(row_space(space))
    assert [each.name for each in joined.parameters] == [each.name for each in flat.parameters]
    weights = joined.initial_weights(np.random.default_rng(0))
    rows = flat_rows(space, stacked(space, samples(space, 5))).astype(np.float32)
    found, expected = outputs(joined, weights, rows), outputs(flat, weights, rows)
    for column, want in expected.items():
        np.testing.assert_array_equal(found[column], want)


@pytest.mark.parametrize(("bound", "rule"), [(9, "part"), (7, "row")])
def test_bytes_of_one_scale_are_scaled_as_in_a_flat_row(bound, rule):
    """Those of older checkpoints have one scale in a row."""
    space = Dict({"a": Box(0, 9, (2,), np.uint8), "b": Box(0, bound, (3,), np.uint8)})
    joined, flat = network(space, uint8_scale=rule), network(row_space(space))
    weights = flat.initial_weights(np.random.default_rng(0))
    rows = np.arange(10, dtype=np.uint8).reshape(2, 5) % 8
    np.testing.assert_array_equal(
        outputs(joined, weights, rows)[Columns.VF_PREDS], outputs(flat, weights, rows)[Columns.VF_PREDS]
    )


@pytest.mark.parametrize("leading", [(4,), (2, 3)])
def test_an_image_beside_other_numbers_computes_the_formula(leading):
    net = network(CAMERA, conv_filters=FILTERS, vf_share_layers=True)
    weights = net.initial_weights(np.random.default_rng(0))
    number = int(np.prod(leading))
    rows = flat_rows(CAMERA, stacked(CAMERA, samples(CAMERA, number))).astype(np.float32)
    found = outputs(net, weights, rows.reshape(*leading, -1))

    w = {name: weight.astype(np.float64) for name, weight in weights.items()}
    pixels = rows[:, :60].reshape(number, 6, 5, 2) / 255.0
    kernel, bias = w["encoder.parts.0.conv.0.weight"], w["encoder.parts.0.conv.0.bias"]
    maps = np.zeros((number, 2, 2, 3))
    for i in range(2):
        for j in range(2):
            window = pixels[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            maps[:, i, j] = np.einsum("nhwc,hwco->no", window, kernel) + bias
    seen = np.maximum(maps, 0.0).reshape(number, -1)
    seen = np.maximum(seen @ w["encoder.parts.0.dense.weight"] + w["encoder.parts.0.dense.bias"], 0.0)
    assert seen.shape[1] == 256
    hidden = np.concatenate([seen, rows[:, 60:]], -1)
    hidden = np.tanh(hidden @ w["encoder.0.weight"] + w["encoder.0.bias"])
    value = (hidden @ w["vf.out.weight"] + w["vf.out.bias"])[:, 0]
    np.testing.assert_allclose(found[Columns.VF_PREDS], value.reshape(leading), rtol=1e-5, atol=1e-6)


def test_images_are_scaled_numbers_where_convolutions_are_switched_off():
    net = network(CAMERA, conv_filters=[], vf_share_layers=True)
    assert net.acts_in_numpy
    weights = net.initial_weights(np.random.default_rng(0))
    rows = flat_rows(CAMERA, stacked(CAMERA, samples(CAMERA, 3))).astype(np.float32)
    scaled = np.concatenate([rows[:, :60] * np.float32(1 / 255), rows[:, 60:]], -1)
    hidden = np.tanh(scaled @ weights["encoder.0.weight"] + weights["encoder.0.bias"])
    expected = (hidden @ weights["vf.out.weight"])[:, 0]
    np.testing.assert_allclose(outputs(net, weights, rows)[Columns.VF_PREDS], expected, rtol=1e-5)


LAYOUTS = {
    "height, width": ((21, 23), lambda x: x[..., None]),
    "channels, height, width": ((3, 21, 23), lambda x: np.moveaxis(x, -3, -1)),
    "frames, height, width, channels": (
        (2, 21, 23, 3),
        lambda x: np.moveaxis(x, -4, -2).reshape(*x.shape[:-4], 21, 23, 6),
    ),
    "frames, channels, height, width": (
        (2, 3, 21, 23),
        lambda x: np.moveaxis(x, (-2, -1), (-4, -3)).reshape(*x.shape[:-4], 21, 23, 6),
    ),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_computes_what_its_channels_last_do(layout, inside):
    shape, channels_last = LAYOUTS[layout]
    images = np.random.default_rng(1).integers(0, 256, (4, *shape), np.uint8)
    expected_images = channels_last(images)
    spaces = [Box(0, 255, each.shape[1:], np.uint8) for each in (images, expected_images)]
    rows = [images, expected_images]
    if inside:
        spaces = [Dict({"image": space, "x": Box(-1.0, 1.0, (1,))}) for space in spaces]
        rows = [
            flat_rows(space, {"image": each, "x": np.ones((4, 1), np.float32)}).astype(np.float32)
            for space, each in zip(spaces, rows, strict=True)
        ]
    found, expected = (network(space) for space in spaces)
    assert [(p.name, p.shape) for p in found.parameters] == [(p.name, p.shape) for p in expected.parameters]
    weights = found.initial_weights(np.random.default_rng(0))
    for column, want in outputs(expected, weights, rows[1]).items():
        np.testing.assert_array_equal(outputs(found, weights, rows[0])[column], want)


@settings(max_examples=20)
@given(height=st.integers(20, 90), width=st.integers(20, 90), channels=st.integers(1, 4))
def test_every_image_of_20_by_20_and_more_has_convolutions(height, width, channels):
    assert_convolves((height, width, channels))


@pytest.mark.parametrize(
    "shape", [(20, 200), (210, 160, 3), (3, 210, 160), (4, 84, 84), (4, 84, 84, 1), (20, 20)]
)
def test_images_of_odd_shapes_have_convolutions(shape):
    assert_convolves(shape)


def assert_convolves(shape):
    net = network(Box(0, 255, shape, np.uint8))
    assert net.parameters[0].name == "pi.conv.0.weight"
    weights = {each.name: np.full(each.shape, 0.01, np.float32) for each in net.parameters}
    values = outputs(net, weights, np.full((1, *shape), 255, np.uint8))[Columns.VF_PREDS]
    assert values.shape == (1,)
    assert values[0] > 0.01


@pytest.mark.parametrize(
    ("shape", "setting", "first"),
    [
        ((84, 84, 4), "nature", (8, 8, 4, 32)),
        ((64, 64, 3), "world_models", (4, 4, 3, 32)),
        ((10, 10, 4), None, (3, 3, 4, 16)),
        ((10, 10, 4), "minatar", (3, 3, 4, 16)),
        ((84, 84, 4), None, (4, 4, 4, 16)),
    ],
)
def test_published_convolutions_are_asked_for_by_name(shape, setting, first):
    net = network(Box(0, 255, shape, np.uint8), conv_filters=setting)
    assert net.parameters[0].shape == first
    if setting:
        with pytest.raises(ConfigError, match=r"conv_filters='natur'.*one of nature, world_models, minatar"):
            network(Box(0, 255, shape, np.uint8), conv_filters="natur")


def test_what_is_an_image_is_said_once(caplog):
    space = Dict({"eye": Box(0, 255, (2, 29, 31), np.uint8), "x": Box(-1.0, 1.0, (1,))})
    with caplog.at_level(logging.INFO, "plugrad"):
        network(space)
        network(space)
    words = [each.getMessage() for each in caplog.records if "eye" in each.getMessage()]
    assert words == [
        "observations['eye'] [2, 29, 31] of a network: images [channels, height, width], "
        "conv_filters = [[16, 4, 2], [32, 4, 2], [64, 3, 2]]"
    ]


def test_boxes_that_are_no_images_are_normalised_and_nothing_else():
    normalizer = ObservationNormalizer.of_space(CAMERA)
    rows = flat_rows(CAMERA, stacked(CAMERA, samples(CAMERA, 50)))
    normalizer.update(rows)
    found = normalizer.normalize(rows)
    np.testing.assert_array_equal(found[:, :63], rows[:, :63].astype(np.float32))
    alone = ObservationNormalizer((2,))
    alone.update(rows[:, 63:])
    np.testing.assert_array_equal(found[:, 63:], alone.normalize(rows[:, 63:]))
    np.testing.assert_allclose(found[:, 63:].std(0), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(normalizer.frozen_copy().normalize(rows), found)


def test_statistics_of_older_versions_normalise_all_of_a_row_as_before():
    rows = flat_rows(CAMERA, stacked(CAMERA, samples(CAMERA, 50)))
    older = ObservationNormalizer((65,))
    older.update(rows)
    opened = ObservationNormalizer.of_space(CAMERA)
    opened.set_state(older.get_state())
    np.testing.assert_array_equal(opened.normalize(rows), older.normalize(rows))
    np.testing.assert_array_equal(opened.frozen_copy().normalize(rows), older.normalize(rows))
    opened.update(rows)
    older.update(rows)
    np.testing.assert_array_equal(opened.mean, older.mean)


@pytest.mark.parametrize("open_checkpoint", [Learner.from_checkpoint, load_policy])
@pytest.mark.parametrize(
    "part",
    [
        {"__space__": "Discrete", "n": 10**12, "start": 0},
        {"__space__": "Box", "low": 0, "high": 1, "shape": [10**6, 10**6], "dtype": "uint8"},
        {"__space__": "Dict", "spaces": []},
    ],
)
def test_a_checkpoint_whose_space_has_a_part_of_another_size_is_refused_before_it_is_built(
    tmp_path, open_checkpoint, part
):
    space = Dict({"a": Discrete(3), "b": Box(-1.0, 1.0, (2,))})
    config = PPOConfig().framework("numpy").environment(observation_space=space, action_space=ACTIONS)
    config.rl_module(model_config={"fcnet_hiddens": [3]}).build_learner().save_to_path(tmp_path / "good")
    found = load_checkpoint(tmp_path / "good")
    metadata = json.loads(json.dumps(found.metadata))
    metadata["config"]["observation_space"]["spaces"][0][1] = part
    save_checkpoint(tmp_path / "hostile", found.state, metadata=metadata)
    assert open_checkpoint(tmp_path / "good")
    with pytest.raises(PlugradError):
        open_checkpoint(tmp_path / "hostile")

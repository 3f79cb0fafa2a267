"""Recorded episodes: on disk and back, in parts, and whole episodes of a policy."""

import re
from itertools import pairwise
from pathlib import Path

import counting
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple, flatten
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import assert_chunk, make_runner

from plugrad import SingleAgentEpisode
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.episodes import concat_chunks
from plugrad.errors import BatchError, CheckpointCorruptError, CheckpointError, ConfigError
from plugrad.offline import load_episodes, save_episodes
from plugrad.sampling.evaluation import sample_episodes

DOCS = Path(__file__).parents[2] / "docs"
SPACES = {"observation_space": Box(-1.0, np.inf, (2,)), "action_space": Discrete(3, start=1)}


def episode(length: int, rng: np.random.Generator, **facts) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        observations=rng.normal(size=(length + 1, 2)).astype(np.float32),
        actions=rng.integers(3, size=length),
        rewards=rng.normal(size=length).astype(np.float32),
        extra_model_outputs={"action_logp": rng.normal(size=length).astype(np.float32)},
        **facts,
    )


def assert_equal(found: SingleAgentEpisode, expected: SingleAgentEpisode) -> None:
    for name in ("observations", "actions", "rewards", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.extra_model_outputs.keys() == expected.extra_model_outputs.keys()
    for name, values in expected.extra_model_outputs.items():
        np.testing.assert_array_equal(found.extra_model_outputs[name], values)
    assert (found.module_id, found.actions.dtype) == (expected.module_id, expected.actions.dtype)


@settings(max_examples=10)
@given(
    parts=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 99),
)
def test_episodes_come_back_as_they_were_part_after_part(tmp_path_factory, parts, seed):
    path, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(seed)
    episodes = [
        [episode(length, rng, terminated=a, truncated=b, module_id="p") for length, a, b in part]
        for part in parts
    ]
    for part in episodes:
        assert save_episodes(path, part, **SPACES) == str(path)
    data = load_episodes(str(path))
    for found, expected in zip(data.episodes, [each for part in episodes for each in part], strict=True):
        assert_equal(found, expected)
    assert data.observation_space == SPACES["observation_space"]
    assert data.action_space == SPACES["action_space"]


@pytest.mark.parametrize(
    "space", [Dict(a=Box(-1, 1, (2,)), b=Discrete(3)), Tuple((Box(-1, 1, (2,)), Discrete(3)))]
)
def test_observations_in_the_structure_of_their_space_are_saved_as_rows(tmp_path, space):
    """As one structure of arrays, and as a list of observations: gymnasium's `flatten` of each is a row."""
    space.seed(0)
    seen = [space.sample() for _ in range(4)]
    keys = space.spaces if isinstance(space, Dict) else range(2)
    arrays = {key: np.stack([each[key] for each in seen]) for key in keys}
    together = arrays if isinstance(space, Dict) else tuple(arrays.values())
    steps = {"actions": np.zeros(3, int), "rewards": np.zeros(3, np.float32), "terminated": True}
    for number, observations in enumerate((seen, together)):
        one = SingleAgentEpisode(observations=observations, **steps)
        save_episodes(tmp_path / str(number), [one], observation_space=space, action_space=Discrete(2))
        (found,) = load_episodes(str(tmp_path / str(number))).episodes
        np.testing.assert_array_equal(found.observations, np.stack([flatten(space, each) for each in seen]))
    wrong = SingleAgentEpisode(observations=[{"c": 1}] * 4, **steps)
    with pytest.raises(BatchError, match="expected"):
        save_episodes(tmp_path / "wrong", [wrong], observation_space=space, action_space=Discrete(2))
    assert not (tmp_path / "wrong").exists()


def test_several_sources_are_one_after_the_other_if_their_spaces_agree(tmp_path):
    rng = np.random.default_rng(0)
    save_episodes(tmp_path / "a", [episode(2, rng)], **SPACES)
    save_episodes(tmp_path / "b", [episode(3, rng)], **SPACES)
    found = load_episodes([str(tmp_path / "b"), str(tmp_path / "a")])
    assert [len(each) for each in found.episodes] == [3, 2]
    save_episodes(tmp_path / "b", [episode(4, rng)], **(SPACES | {"action_space": Discrete(3)}))
    with pytest.raises(
        BatchError,
        match=r"b \(found\).*: the whole: Discrete\(3, start=1\) asked, Discrete\(3\) found",
    ):
        load_episodes(str(tmp_path / "b"))


def test_what_is_no_data_set_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="plugrad record RUN"):
        load_episodes(None)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_episodes(str(tmp_path / "none"))
    with pytest.raises(
        CheckpointError, match="has no recorded episodes in it: write recorded episodes with plugrad record"
    ):
        load_episodes(str(tmp_path))
    save_checkpoint(tmp_path / "other", {}, metadata={"kind": "learner"})
    with pytest.raises(CheckpointError, match="holds 'learner', not 'episodes'"):
        load_episodes(str(tmp_path / "other"))
    save_episodes(tmp_path / "damaged", [episode(2, rng)], **SPACES)
    file = tmp_path / "damaged/save-1/m0001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointCorruptError):
        load_episodes(str(tmp_path / "damaged"))


def test_a_file_whose_columns_do_not_fit_its_lengths_is_refused(tmp_path):
    save_episodes(tmp_path / "good", [episode(2, np.random.default_rng(0))], **SPACES)
    good = load_checkpoint(tmp_path / "good")
    save_checkpoint(tmp_path / "bad", good.state | {"rewards": np.zeros(3)}, metadata=good.metadata)
    with pytest.raises(BatchError, match="expected 2 rows of 'rewards' by its lengths, found 3"):
        load_episodes(str(tmp_path / "bad"))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "there are no episodes to save"),
        ([{"module_id": "p"}, {"module_id": "q"}], r"one module, found \['p', 'q'\]"),
    ],
)
def test_what_cannot_be_one_part_is_refused_and_nothing_is_written(tmp_path, others, said):
    rng = np.random.default_rng(0)
    with pytest.raises(BatchError, match=said):
        save_episodes(tmp_path / "data", [episode(2, rng, **each) for each in others], **SPACES)
    assert not (tmp_path / "data").exists()


def test_first_episodes_are_whole_and_those_that_began_first():
    runner = make_runner(num_envs_per_env_runner=4)
    found = sample_episodes(runner, num_episodes=50, seed=3)
    assert len(found) == 50
    for each in found:
        assert_chunk(each)
        assert each.is_done
        assert each.observations[0, 1] == 0
        assert len(each) == counting.length_of(int(each.observations[0, 0]))
    again = sample_episodes(runner, num_episodes=50, seed=3)
    assert [each.get_return() for each in again] == [each.get_return() for each in found]


@given(cuts=st.lists(st.integers(0, 10), max_size=4), seed=st.integers(0, 99))
def test_joined_chunks_are_the_episode(cuts, seed):
    whole = episode(10, np.random.default_rng(seed), truncated=True)
    edges = [0, *sorted(cuts), 10]
    chunks = [
        SingleAgentEpisode(
            observations=whole.observations[a : b + 1],
            actions=whole.actions[a:b],
            rewards=whole.rewards[a:b],
            truncated=(b == 10),
            extra_model_outputs={name: values[a:b] for name, values in whole.extra_model_outputs.items()},
        )
        for a, b in pairwise(edges)
    ]
    assert_equal(concat_chunks(chunks), whole)


def test_the_page_of_the_format_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pages = [(DOCS / name).read_text() for name in ("episode-format.md", "checkpoint-format.md")]
    code, reader = [re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)[0] for page in pages]
    exec(code, {})
    assert capsys.readouterr().out == "1 Discrete(2)\n"
    namespace = {}
    exec(reader, namespace)
    metadata, state = namespace["read"]("recorded")
    assert metadata["kind"] == "episodes"
    assert metadata["action_space"] == {"__space__": "Discrete", "n": 2, "start": 0}
    listed = re.findall(r"^\| (`.*?`) \| \S+? .*?\|", pages[0], flags=re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(listed))) == sorted(state)

"""Batches of sequences: masks, hidden steps, episodes cut into sequences, minibatches that cut none."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given
from hypothesis import strategies as st
from learning import ppo_config

from plugrad import DEFAULT_MODULE_ID, Columns, SingleAgentEpisode
from plugrad.batch.sequences import SampleCount, count_samples, pad, piece_lengths, unpad
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.update.connectors import run_pipeline
from plugrad.learner.update.minibatches import MinibatchSpec, minibatch_indices, pad_minibatches
from plugrad.rng_streams import stream

P = DEFAULT_MODULE_ID
LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=6)


class Stateful:
    is_stateful = True
    network = None
    observation_space = None
    action_space = Discrete(2)


class Stateless(Stateful):
    is_stateful = False


# --- cutting and padding ------------------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 20))
def test_pieces_are_full_but_the_last(length, longest):
    *full, last = piece_lengths(length, longest)
    assert sum(full) + last == length
    assert set(full) <= {longest}
    assert (1 if length else 0) <= last <= longest


@given(LENGTHS, st.integers(0, 3))
def test_padding_and_back_loses_nothing_and_adds_zeros_behind(lengths, more):
    rows = np.arange(1, 2 * sum(lengths) + 1, dtype=np.int64).reshape(-1, 2)
    width = max(lengths) + more
    padded = pad(rows, np.array(lengths), width)
    assert padded.shape == (len(lengths), width, 2)
    assert np.count_nonzero(padded) == rows.size
    np.testing.assert_array_equal(unpad(padded, np.array(lengths)), rows)


# --- what is hidden -----------------------------------------------------------------------------------------------


def sequences(count=3, steps=4, **columns):
    given = {Columns.OBS: np.ones((count, steps, 2)), Columns.ACTIONS: np.ones((count, steps), int)}
    return {**given, "state_in/h": np.ones((count, 5)), **columns}


def test_seq_lens_alone_say_what_counts_and_what_lies_behind_becomes_zero():
    columns, samples = count_samples(P, sequences(seq_lens=np.array([4, 1, 2])), Stateful())
    expected = [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]
    np.testing.assert_array_equal(columns[Columns.LOSS_MASK], expected)
    np.testing.assert_array_equal(columns[Columns.ACTIONS], expected)
    np.testing.assert_array_equal(columns[Columns.OBS][..., 1], expected)
    assert columns["state_in/h"].all()
    assert samples == SampleCount(3, 7)


def test_a_state_with_as_many_cells_as_steps_keeps_them_where_steps_become_zero():
    columns, _ = count_samples(P, sequences(steps=5, seq_lens=np.array([5, 1, 2])), Stateful())
    assert columns["state_in/h"].all()
    assert columns[Columns.ACTIONS].sum() == 8


def test_without_lengths_and_mask_everything_counts():
    columns, samples = count_samples(P, sequences(), Stateful())
    assert columns[Columns.LOSS_MASK].all()
    assert samples == SampleCount(3, 12)


def test_a_mask_hides_on_top_of_the_lengths_and_keeps_its_weights():
    mask = np.array([[2.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.5, 0.0, 0.0]])
    columns, samples = count_samples(P, sequences(seq_lens=np.array([3, 4, 4]), loss_mask=mask), Stateless())
    np.testing.assert_array_equal(columns[Columns.LOSS_MASK], [[2, 0, 2, 0], [1, 1, 1, 1], [0, 0.5, 0, 0]])
    np.testing.assert_array_equal(columns[Columns.ACTIONS], [[1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0]])
    assert samples == SampleCount(3, 7)


def test_a_stateful_module_lives_through_hidden_steps_before_one_that_counts():
    mask = np.array([[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]], bool)
    columns, samples = count_samples(P, sequences(loss_mask=mask), Stateful())
    np.testing.assert_array_equal(columns[Columns.OBS][..., 0], [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
    assert samples == SampleCount(3, 5)


def test_hidden_steps_keep_their_values_for_a_loss_that_reads_them():
    mask = np.array([[0, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 0]], bool)
    given = sequences(seq_lens=np.array([3, 4, 4]), loss_mask=mask)
    for module in (Stateless(), Stateful()):
        columns, samples = count_samples(P, given, module, reads_masked_steps=True)
        np.testing.assert_array_equal(columns[Columns.ACTIONS], [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
        assert samples == SampleCount(3, 6)


def test_rows_and_whole_sequences_that_are_hidden_are_left_out():
    mask = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    columns, samples = count_samples(P, sequences(loss_mask=mask), Stateful())
    assert {len(values) for values in columns.values()} == {2}
    assert samples == SampleCount(2, 5)
    rows = {Columns.OBS: np.arange(8.0).reshape(4, 2), Columns.LOSS_MASK: np.array([0, 1, 1, 0])}
    columns, samples = count_samples(P, rows, Stateless())
    np.testing.assert_array_equal(columns[Columns.OBS], [[2, 3], [4, 5]])
    assert samples == SampleCount(2, 2)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"loss_mask": np.ones((3, 5))}, r"'loss_mask': expected shape \[3, 4, ...\] as of 'obs'"),
        ({"loss_mask": np.ones(3)}, r"'loss_mask': expected shape \[3, 4, ...\] as of 'obs', found .*\[3\]"),
        ({"actions": np.ones((3, 3), int)}, r"'actions': expected shape \[3, 4, ...\] as of 'obs'"),
        ({"seq_lens": np.ones((3, 4), int)}, r"'seq_lens': expected one whole number per sequence"),
        ({"seq_lens": np.ones(3)}, r"'seq_lens': expected one whole number.*found float64"),
        ({"seq_lens": np.array([1, 5, 2])}, r"lengths from 0 to the 4 steps.*found values from 1 to 5"),
        ({"seq_lens": np.array([-1, 2, 2])}, r"lengths from 0 to the 4 steps.*found values from -1 to 2"),
    ],
)
def test_what_cannot_be_a_sequence_is_refused(columns, words):
    with pytest.raises(BatchError, match=words):
        count_samples(P, sequences(**columns), Stateful())


# --- minibatches --------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 400), st.integers(1, 4))
def test_minibatches_have_as_many_sequences_as_rllibs_rule_says(count, length, size, epochs):
    samples = SampleCount(count, count * length)
    if size > samples.steps:
        with pytest.raises(BatchError, match="is above the"):
            minibatch_indices({P: samples}, MinibatchSpec(size, epochs), {P: stream(0)})
        return
    found = minibatch_indices({P: samples}, MinibatchSpec(size, epochs), {P: stream(0)})[P]
    assert abs(found.shape[1] - max(1.0, count * size / samples.steps)) <= 0.5
    assert (found.shape[0] - 1) * found.shape[1] < epochs * count <= found.size
    assert np.bincount(found.ravel()[:count]).tolist() == [1] * count


def test_modules_with_sequences_and_with_rows_take_the_same_number_of_minibatches():
    streams = {each: stream(0, each) for each in "ab"}
    found = minibatch_indices(
        {"a": SampleCount(10, 100), "b": SampleCount(60, 60)}, MinibatchSpec(20), streams
    )
    assert {each: numbers.shape for each, numbers in found.items()} == {"a": (5, 2), "b": (5, 20)}


def test_widths_become_powers_of_two_with_a_sequence_that_is_hidden():
    columns = {
        P: {**sequences(5), Columns.LOSS_MASK: np.ones((5, 4))},
        "rows": {Columns.OBS: np.ones((9, 2))},
    }
    order = {P: np.array([[0, 1, 2], [3, 4, 0]]), "rows": np.array([[0, 1, 2], [3, 4, 5]])}
    even, numbers = pad_minibatches(columns, order, 1)
    np.testing.assert_array_equal(numbers[P], [[0, 1, 2, 5], [3, 4, 0, 5]])
    assert not even[P][Columns.LOSS_MASK][5].any()
    assert even[P][Columns.LOSS_MASK][:5].all()
    assert {len(values) for values in even[P].values()} == {6}
    assert numbers["rows"] is order["rows"]
    assert even["rows"] is columns["rows"]


def test_minibatches_that_are_accumulated_become_powers_of_two_each():
    columns = {P: {**sequences(6), Columns.LOSS_MASK: np.ones((6, 4))}}
    _, numbers = pad_minibatches(columns, {P: np.array([[0, 3, 1, 4, 2, 5]])}, 2)
    assert numbers[P][0, ::2].tolist() == [0, 1, 2, 6]
    assert numbers[P][0, 1::2].tolist() == [3, 4, 5, 6]


# --- from episodes ------------------------------------------------------------------------------------------------


def learner(**model):
    config = ppo_config(hiddens=(3,)).rl_module(
        model_config={"fcnet_hiddens": [3], "use_lstm": True, "lstm_cell_size": 2, "max_seq_len": 4, **model}
    )
    return config.build_learner()


def episode(acting, steps, seed, record=Columns.STATE_IN, **settings):
    """Steps taken by the learner in a world of noise; what it said and remembered is recorded."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(steps + 1, 3)).astype(np.float32)
    said, state = [], None
    for observation in observations[:-1]:
        columns = acting.compute_actions(observation[None], state=state)
        before = (
            acting.module[P].get_initial_state() if state is None else {k: v[0] for k, v in state.items()}
        )
        state = columns.pop(Columns.STATE_OUT)
        recorded = before if record == Columns.STATE_IN else {name: value[0] for name, value in state.items()}
        said.append({**{name: values[0] for name, values in columns.items()}, record: recorded})
    names = [name for name in (said[0] if said else {}) if name not in (Columns.ACTIONS, record)]
    extra = {name: np.stack([each[name] for each in said]) for name in names}
    if said:
        extra[record] = {name: np.stack([each[record][name] for each in said]) for name in said[0][record]}
    actions = np.array([each[Columns.ACTIONS] for each in said], np.int64)
    rewards = rng.normal(size=steps)
    return SingleAgentEpisode(
        observations=observations, actions=actions, rewards=rewards, extra_model_outputs=extra, **settings
    )


@pytest.mark.parametrize("record", [Columns.STATE_IN, Columns.STATE_OUT])
@pytest.mark.parametrize("shared", [False, True])
def test_values_of_episodes_are_those_that_were_said_while_acting(record, shared):
    acting = learner(vf_share_layers=shared)
    episodes = [episode(acting, steps, steps, record) for steps in (9, 4, 0, 1, 8)]
    values = acting.compute_values_of_episodes(episodes)
    assert len(values) == sum(len(each) + 1 for each in episodes)
    assert values.dtype == np.float32
    start = 0
    for each in episodes:
        found = values[start : start + len(each) + 1]
        start += len(each) + 1
        if len(each):
            np.testing.assert_allclose(found[:-1], each.extra_model_outputs["vf_preds"], atol=1e-6)
            state = None  # the last observation, in the state that the last step left behind
            for observation in each.observations[:-1]:
                state = acting.compute_actions(observation[None], state=state)[Columns.STATE_OUT]
            last = acting.compute_actions(each.observations[-1:], state=state)["vf_preds"]
            np.testing.assert_allclose(found[-1:], last, atol=1e-6)


def test_episodes_become_sequences_with_the_states_that_they_begin_with():
    acting = learner()
    episodes = [episode(acting, 9, 1), episode(acting, 4, 2, terminated=True), episode(acting, 0, 3)]
    columns = run_pipeline(acting.connectors, acting, {}, episodes)[P]
    assert columns[Columns.SEQ_LENS].tolist() == [4, 4, 1, 4]
    np.testing.assert_array_equal(
        columns[Columns.LOSS_MASK], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]
    )
    np.testing.assert_array_equal(columns[Columns.OBS][1], episodes[0].observations[4:8])
    np.testing.assert_array_equal(columns[Columns.OBS][2, 1:], 0.0)
    assert columns[Columns.ADVANTAGES].shape == (4, 4)
    for name in ("pi_h", "pi_c", "vf_h", "vf_c"):
        recorded = episodes[0].extra_model_outputs[f"state_in/{name}"]
        np.testing.assert_array_equal(columns[f"state_in/{name}"][:3], recorded[[0, 4, 8]])
        assert recorded[4].any()
        assert not columns[f"state_in/{name}"][3].any()
    assert not [name for name in columns if name.startswith("state_out")]


def test_steps_that_an_episode_hides_stay_hidden_in_sequences():
    acting = learner()
    hidden = episode(acting, 6, 1)
    hidden.extra_model_outputs[Columns.LOSS_MASK] = np.array([1, 0, 1, 1, 0, 1], bool)
    columns = run_pipeline(acting.connectors, acting, {}, [hidden])[P]
    np.testing.assert_array_equal(columns[Columns.LOSS_MASK], [[1, 0, 1, 1], [0, 1, 0, 0]])


def test_a_chunk_begins_with_the_state_that_it_recorded():
    acting = learner()
    whole = episode(acting, 7, 1)
    chunk = SingleAgentEpisode(
        observations=whole.observations[3:],
        actions=whole.actions[3:],
        rewards=whole.rewards[3:],
        extra_model_outputs={name: values[3:] for name, values in whole.extra_model_outputs.items()},
    )
    found = acting.compute_values_of_episodes([chunk])
    np.testing.assert_allclose(found, acting.compute_values_of_episodes([whole])[3:], atol=1e-6)


def chunks_of(whole, id_="7", says_steps=True):
    """An episode of 10 steps in three chunks."""
    return [
        SingleAgentEpisode(
            observations=whole.observations[first : last + 1],
            actions=whole.actions[first:last],
            rewards=whole.rewards[first:last],
            extra_model_outputs={name: each[first:last] for name, each in whole.extra_model_outputs.items()},
            id_=id_,
            t_started=first if says_steps else None,
        )
        for first, last in pairwise((0, 3, 7, 10))
    ]


@pytest.mark.parametrize(("order", "says_steps"), [([0, 1, 2], True), ([2, 0, 1], True), ([0, 1, 2], False)])
def test_a_later_chunk_with_state_out_alone_begins_in_the_state_of_the_chunk_before_it(order, says_steps):
    def columns_of(record):
        acting = learner()
        other = episode(acting, 10, 2, record)
        chunks = chunks_of(episode(acting, 10, 1, record), says_steps=says_steps)
        episodes = [chunks_of(other, "8", says_steps)[0], *(chunks[n] for n in order)]
        return run_pipeline(acting.connectors, acting, {}, episodes)[P]

    found, expected = columns_of(Columns.STATE_OUT), columns_of(Columns.STATE_IN)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert np.count_nonzero(found["state_in/pi_h"].any(1)) == 2  # of four sequences two begin an episode


@pytest.mark.parametrize(
    "given",
    [
        lambda chunks: chunks[1:2],  # the chunk before it is missing
        lambda chunks: [chunks[0], chunks[2]],  # one between them is missing
        lambda chunks: [replace(chunks[0], id_="8"), chunks[1]],
        lambda chunks: [replace(each, id_=None) for each in chunks],
        lambda chunks: [replace(chunks[0], observations=chunks[0].observations + 1), chunks[1]],
    ],
)
def test_a_chunk_whose_first_state_cannot_be_known_is_refused_by_column(given):
    acting = learner()
    episodes = given(chunks_of(episode(acting, 10, 1, Columns.STATE_OUT)))
    message = r"'state_in': expected 'pi_h' in 'state_in' of extra_model_outputs.*'state_out' alone and t_started=[37]"
    with pytest.raises(BatchError, match=message):
        acting.update(episodes=episodes)
    with pytest.raises(BatchError, match=message):
        acting.compute_values_of_episodes(episodes)


def test_an_episode_without_states_is_refused_with_what_to_record():
    acting = learner()
    bare = SingleAgentEpisode(observations=np.zeros((3, 3)), actions=np.zeros(2, int), rewards=np.zeros(2))
    with pytest.raises(
        BatchError, match=r"'state_in': expected extra_model_outputs with 'pi_h'.*found only none"
    ):
        acting.update(episodes=[bare])


class AddsReward:
    """A user's piece: one column more, a row per step."""

    def __call__(self, *, learner, batch, episodes):
        doubled = np.concatenate([2.0 * each.rewards for each in episodes])
        return {**batch, P: {**batch.get(P, {}), "doubled": doubled}}


def make_pieces(observation_space, action_space):
    return AddsReward()


def test_a_users_piece_comes_first_and_its_rows_become_sequences_too():
    config = ppo_config().rl_module(
        model_config={"fcnet_hiddens": [3], "use_lstm": True, "lstm_cell_size": 2, "max_seq_len": 4}
    )
    acting = config.learners(learner_connector=make_pieces).build_learner()
    columns = run_pipeline(acting.connectors, acting, {}, [episode(acting, 6, 1)])[P]
    assert columns["doubled"].shape == (2, 4)
    np.testing.assert_allclose(columns["doubled"], 2.0 * columns[Columns.REWARDS], rtol=1e-6)


def test_a_max_seq_len_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="max_seq_len=0: must be a whole number above 0"):
        learner(max_seq_len=0)


# --- acting -------------------------------------------------------------------------------------------------------


def test_acting_carries_the_state_and_begins_with_zeros():
    acting = learner()
    observations = np.random.default_rng(0).normal(size=(5, 3))
    first = acting.compute_actions(observations)
    zeros = {name: np.zeros((5, 2)) for name in ("pi_h", "pi_c", "vf_h", "vf_c")}
    again = acting.compute_actions(observations, state=zeros)
    np.testing.assert_array_equal(first["action_dist_inputs"], again["action_dist_inputs"])
    later = acting.compute_actions(observations, state=first["state_out"])
    assert (later["action_dist_inputs"] != first["action_dist_inputs"]).any()
    assert {name: value.shape for name, value in later["state_out"].items()} == dict.fromkeys(zeros, (5, 2))
    assert first["actions"].shape == first["action_logp"].shape == first["vf_preds"].shape == (5,)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"h": np.zeros((5, 2))}, "'state': expected pi_h, pi_c, vf_h, vf_c, found h"),
        (
            {name: np.zeros((4, 2)) for name in ("pi_h", "pi_c", "vf_h", "vf_c")},
            r"'state/pi_h': expected shape \[5, 2\], a row per observation, found shape \[4, 2\]",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state, words):
    with pytest.raises(BatchError, match=words):
        learner().compute_actions(np.zeros((5, 3)), state=state)


def test_a_module_without_memory_has_no_state():
    acting = ppo_config().build_learner()
    assert Columns.STATE_OUT not in acting.compute_actions(np.zeros((5, 3)))
    with pytest.raises(BatchError, match="no state: the module is not stateful"):
        acting.compute_actions(np.zeros((5, 3)), state={"h": np.zeros((5, 2))})

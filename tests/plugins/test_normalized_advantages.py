"""PPO's `normalize_advantages`: over which rows advantages have mean 0 and standard deviation 1."""

from typing import Any

import needs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import digest, largest_difference, ppo_batch, ppo_config
from threads import on_all

from plugrad import Columns, RLModuleSpec, SingleAgentEpisode
from plugrad.errors import BatchError, ConfigError
from plugrad_ppo import PPOConfig

ROWS, SIZE = 24, 8


def config(backend: str, over: str, **settings: Any) -> PPOConfig:
    sgd = {"lr": 0.5, "optimizer": {"type": "sgd"}, "grad_clip": None}
    return ppo_config(backend, **{"minibatch_size": SIZE, **sgd, **settings}, normalize_advantages=over)


def by_hand(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The batch with the advantages of its minibatches standardised, in order."""
    parts = []
    for start in range(0, ROWS, SIZE):
        wide = batch[Columns.ADVANTAGES][start : start + SIZE].astype(np.float64)
        parts.append((wide - wide.mean()) / (wide.std(ddof=1) + 1e-8))
    return {**batch, Columns.ADVANTAGES: np.concatenate(parts).astype(np.float32)}


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_each_minibatch_has_its_own_mean_and_deviation(backend: str, mode: str) -> None:
    one, other = (
        config(backend, over).framework(backend, compile=mode).build_learner()
        for over in ("minibatch", "none")
    )
    start = one.get_weights()
    for seed in range(2):
        batch = ppo_batch(ROWS, seed=seed)
        batch[Columns.ADVANTAGES] = 3.0 * batch[Columns.ADVANTAGES] + 5.0
        found, expected = one.update(batch), other.update(by_hand(batch))
        assert found["default_policy"]["policy_loss"] == pytest.approx(
            expected["default_policy"]["policy_loss"], abs=1e-6
        )
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-6
    assert largest_difference(one.get_weights(), start) > 1e-2


def test_hidden_rows_do_not_count(backend: str) -> None:
    mask = np.random.default_rng(3).random(ROWS) < 0.6
    one, other = (
        config(backend, over, minibatch_size=None).build_learner() for over in ("minibatch", "none")
    )
    one.update({**ppo_batch(ROWS), Columns.LOSS_MASK: mask})
    kept = {name: values[mask] for name, values in ppo_batch(ROWS).items()}
    wide = kept[Columns.ADVANTAGES].astype(np.float64)
    kept[Columns.ADVANTAGES] = ((wide - wide.mean()) / wide.std(ddof=1)).astype(np.float32)
    other.update(kept)
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-6


@pytest.mark.parametrize("over", ["batch", "minibatch"])
def test_hidden_steps_of_episodes_do_not_count(over: str) -> None:
    found = []
    for hidden_reward in (0.0, 1000.0):
        learner = config("numpy", over, minibatch_size=None, gamma=0.0).build_learner()
        rows, mask = ppo_batch(ROWS), np.arange(ROWS) % 3 > 0
        recorded = {name: rows[name] for name in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS)}
        episode = SingleAgentEpisode(
            observations=np.concatenate([rows[Columns.OBS], rows[Columns.OBS][:1]]),
            actions=rows[Columns.ACTIONS],
            rewards=np.where(mask, np.arange(ROWS), hidden_reward),
            terminated=True,
            extra_model_outputs={**recorded, Columns.LOSS_MASK: mask},
        )
        learner.update(episodes=[episode])
        found.append(digest(learner.get_weights()))
    assert found[0] == found[1]


def test_hidden_steps_of_sequences_do_not_count(backend: str) -> None:
    """A minibatch of sequences [6, 4] equals one whose hidden steps have other advantages."""
    lengths = np.array([4, 1, 2, 4, 3, 2])
    shown = np.arange(4) < lengths[:, None]
    rows = {name: values.reshape(6, 4, *values.shape[1:]) for name, values in ppo_batch(ROWS).items()}
    changed = np.where(shown, rows[Columns.ADVANTAGES], 100.0).astype(np.float32)
    kept = rows[Columns.ADVANTAGES][shown].astype(np.float64)
    ready = ((rows[Columns.ADVANTAGES] - kept.mean()) / kept.std(ddof=1)).astype(np.float32)
    found = []
    for over, advantages in (
        ("minibatch", rows[Columns.ADVANTAGES]),
        ("minibatch", changed),
        ("none", ready),
    ):
        learner = config(backend, over, minibatch_size=None).build_learner()
        learner.update({**rows, Columns.ADVANTAGES: advantages, Columns.SEQ_LENS: lengths})
        found.append(learner.get_weights())
    assert digest(found[0]) == digest(found[1])
    assert largest_difference(found[0], found[2]) < 1e-6


@pytest.mark.parametrize("shape", [(ROWS,), (6, 4)])
def test_advantages_of_another_shape_are_refused_as_ever(shape: tuple[int, ...]) -> None:
    columns = {name: values.reshape(*shape, *values.shape[1:]) for name, values in ppo_batch(ROWS).items()}
    columns[Columns.ADVANTAGES] = columns[Columns.ADVANTAGES][..., None]
    lengths = {Columns.SEQ_LENS: np.array([4, 1, 2, 4, 3, 2])} if len(shape) == 2 else {}
    learner = config("numpy", "minibatch", minibatch_size=None).build_learner()
    with pytest.raises(BatchError, match="'advantages': expected one number per row"):
        learner.update({**columns, **lengths})


@given(scale=st.floats(0.01, 100.0), shift=st.floats(-100.0, 100.0))
def test_neither_the_scale_nor_the_mean_of_advantages_matters(scale: float, shift: float) -> None:
    one, other = (config("numpy", "minibatch").build_learner() for _ in range(2))
    batch = ppo_batch(ROWS)
    one.update(batch)
    other.update({**batch, Columns.ADVANTAGES: scale * batch[Columns.ADVANTAGES].astype(np.float64) + shift})
    assert largest_difference(one.get_weights(), other.get_weights()) < 1e-4


def test_a_minibatch_of_equal_advantages_moves_the_policy_by_nothing() -> None:
    learner = config("numpy", "minibatch", vf_loss_coeff=0.0).build_learner()
    start = learner.get_weights()
    learner.update({**ppo_batch(ROWS), Columns.ADVANTAGES: np.full(ROWS, 3.0, np.float32)})
    assert digest(learner.get_weights()) == digest(start)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_several_learners_have_the_mean_of_the_whole_minibatch(size: int, accumulate: int) -> None:
    needs.backend("torch")
    settings = config("torch", "minibatch", minibatch_size=10, num_epochs=2)
    settings = settings.rl_module(rl_module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]}))
    one = settings.training(minibatch_size=10 * accumulate).build_learner()
    parted = settings.training(accumulate=accumulate)
    learners = [parted.build_learner() for _ in range(size)]
    for seed in range(3):
        batch = ppo_batch(40, seed=seed)
        one.update(batch)
        on_all(learners, lambda learner, batch=batch: learner.update(batch))
    assert largest_difference(learners[0].get_weights(), one.get_weights()) < 1e-6


def advantages_of_episodes(over: str) -> np.ndarray:
    """As the learner's connectors give them."""
    learner = config("numpy", over, gamma=0.9).build_learner()
    rng = np.random.default_rng(0)
    episode = SingleAgentEpisode(
        observations=list(rng.normal(size=(6, 3)).astype(np.float32)),
        actions=[0, 1, 0, 1, 0],
        rewards=[1.0, 0.0, 2.0, 0.5, 1.0],
        terminated=True,
    )
    column: np.ndarray = learner.run_connectors([episode])["default_policy"][Columns.ADVANTAGES]
    return column


def test_episodes_give_advantages_as_they_are_unless_the_batch_is_standardised() -> None:
    raw = advantages_of_episodes("none")
    np.testing.assert_array_equal(advantages_of_episodes("minibatch"), raw)
    assert abs(raw.mean()) > 0.1
    np.testing.assert_allclose(advantages_of_episodes("batch"), (raw - raw.mean()) / raw.std(), atol=1e-5)


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="normalize_advantages must be one of 'batch', 'minibatch', 'none'"):
        PPOConfig().training(normalize_advantages="rows")


def test_an_advantage_that_is_alone_in_its_minibatch_stays_and_a_warning_says_so(backend: str) -> None:
    """Standardised it would be 0, and the policy would never train."""
    batch = {name: values[:4] for name, values in ppo_batch(ROWS).items()}
    one, other = (config(backend, over, minibatch_size=1).build_learner() for over in ("minibatch", "none"))
    with pytest.warns(UserWarning, match=r"minibatches of one row: advantages cannot be standardised"):
        one.update(batch)
    other.update(batch)
    assert largest_difference(one.get_weights(), other.get_weights()) == 0

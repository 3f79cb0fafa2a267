"""Whatever raises in an update, from the first line to the last: the learner is what it was."""

from dataclasses import replace

import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config

from plugrad import DEFAULT_MODULE_ID, Learner, SingleAgentEpisode, hookimpl
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.update.connectors import add_columns_from_episodes

P = DEFAULT_MODULE_ID


def episode(length=6):
    rng = np.random.default_rng(0)
    return SingleAgentEpisode(
        observations=rng.normal(size=(length + 1, 3)).astype(np.float32),
        actions=rng.integers(0, 2, length),
        rewards=rng.normal(size=length),
        terminated=True,
        extra_model_outputs={
            "action_logp": np.full(length, -0.7, np.float32),
            "action_dist_inputs": np.zeros((length, 2), np.float32),
        },
    )


class DrawsAndRaises:
    """A connector piece that moves a random stream, and raises if it is told to."""

    raises = True

    def __call__(self, *, learner, batch, episodes):
        learner.stream("noise").normal()
        learner.stream(P, "minibatches").normal()
        if self.raises:
            raise KeyError("after the random numbers")
        return batch


def with_piece(piece):
    return ppo_config().learners(learner_connector=lambda *_: [piece], add_default_connectors=True)


@pytest.mark.parametrize("call", ["update", "run_connectors"])
def test_random_streams_that_a_connector_moved_are_put_back_when_it_raises(call):
    piece = DrawsAndRaises()
    learner = with_piece(piece).build_learner()
    learner.update(ppo_batch(16))
    before = learner.get_state()
    with pytest.raises(KeyError):
        learner.update(episodes=[episode()]) if call == "update" else learner.run_connectors([episode()])
    assert digest(learner.get_state()) == digest(before)
    piece.raises = False
    learner.update(episodes=[episode()])
    assert digest(learner.get_state()["streams"]) != digest(before["streams"])


def test_random_streams_are_put_back_when_the_batch_of_the_connectors_is_refused():
    piece = DrawsAndRaises()
    piece.raises = False
    learner = with_piece(piece).multi_agent(policies_to_train=["later"]).build_learner()
    before = digest(learner.get_state())
    with pytest.raises(BatchError):
        learner.update(episodes=[episode()])
    assert digest(learner.get_state()) == before


class Returns:
    """A connector piece that returns what it is told to."""

    def __init__(self, returned):
        self.returned = returned

    def __call__(self, *, learner, batch, episodes):
        return self.returned


def forgetful(*, learner, batch, episodes):
    """A connector piece that changes the batch and does not return it."""
    batch["later"] = {}


@pytest.mark.parametrize("call", ["update", "run_connectors"])
@pytest.mark.parametrize("add_default_connectors", [True, False])
@pytest.mark.parametrize(
    ("piece", "found"),
    [
        (forgetful, "connector piece forgetful returned None"),
        (Returns([1]), "connector piece Returns returned a list"),
        (
            Returns({"rewards": np.zeros(6)}),
            "connector piece Returns returned a dict with a ndarray under 'rewards'",
        ),
    ],
)
def test_a_piece_that_returns_no_batch_is_named_and_changes_nothing(
    piece, found, add_default_connectors, call
):
    config = with_piece(piece).learners(add_default_connectors=add_default_connectors)
    learner = config.build_learner()
    before = digest(learner.get_state())
    with pytest.raises(BatchError) as caught:
        learner.update(episodes=[episode()]) if call == "update" else learner.run_connectors([episode()])
    assert str(caught.value) == (
        f"{found}: return the batch, {{module_id: {{column: array [B, ...]}}}}, also where it is unchanged"
    )
    assert digest(learner.get_state()) == before


def negated(*, learner, batch, episodes):
    """A connector piece that changes episodes."""
    episodes[:] = [replace(each, rewards=-each.rewards) for each in episodes]
    return batch


def doubled(*, learner, batch, episodes):
    """A connector piece that changes a column, if there is one."""
    for columns in batch.values():
        columns["rewards"] = 2.0 * columns["rewards"]
    return batch


def test_pieces_change_episodes_before_there_are_columns_and_the_callers_stay():
    given = [episode()]
    config = ppo_config().learners(learner_connector=lambda *_: [negated, doubled])
    found = config.build_learner().run_connectors(given)[P]["rewards"]
    np.testing.assert_allclose(found, -given[0].rewards, rtol=1e-6)  # `doubled` had no columns
    pieces = [add_columns_from_episodes, doubled]
    config = ppo_config().learners(learner_connector=lambda *_: pieces, add_default_connectors=False)
    found = config.build_learner().run_connectors(tuple(given))[P]
    np.testing.assert_allclose(found["rewards"], 2.0 * given[0].rewards, rtol=1e-6)
    assert "advantages" not in found


def old_style(rl_module, batch, episodes, **kwargs):
    """A piece as one of RLlib's."""
    return batch


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda *_: None, "learner_connector returned None: return a callable piece or a list of them"),
        (lambda *_: [forgetful, 3], "learner_connector returned 3: return a callable piece or a list"),
        (lambda *_: old_style, r"old_style cannot be called with the keywords learner, batch and episodes"),
        (forgetful, "learner_connector=forgetful: give a function of the observation space and the action"),
    ],
)
def test_a_learner_connector_that_makes_no_pieces_is_refused_when_the_learner_is_built(make, words):
    with pytest.raises(ConfigError, match=words):
        ppo_config().learners(learner_connector=make).build_learner()


class Listens:
    """Notes what it is told, in one list, and raises where it is told to."""

    def __init__(self, name="", log=None, raises_in=""):
        self.name, self.log, self.raises_in = name, [] if log is None else log, raises_in

    def note(self, hook):
        self.log.append(f"{self.name}{hook}")
        if hook == self.raises_in:
            raise ZeroDivisionError(hook)

    @hookimpl
    def update_begun(self):
        self.note("update_begun")

    @hookimpl
    def update_ended(self):
        self.note("update_ended")


def built(config, *plugins):
    learner = Learner(config=config, plugins=plugins)
    learner.build()
    return learner


@pytest.mark.parametrize("hook", ["update_begun", "update_ended"])
def test_an_error_of_a_listener_undoes_the_update(hook):
    learner = built(ppo_config(), Listens(raises_in=hook))
    before = digest(learner.get_state())
    acted = learner.compute_actions(np.ones((1, 3), np.float32), explore=False)["action_dist_inputs"]
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update(ppo_batch(16))
    assert digest(learner.get_state()) == before
    again = learner.compute_actions(np.ones((1, 3), np.float32), explore=False)["action_dist_inputs"]
    np.testing.assert_array_equal(again, acted)


def test_update_begun_comes_after_the_connectors():
    log = []

    def piece(*, learner, batch, episodes):
        log.append("connectors")
        return batch

    built(with_piece(piece), Listens(log=log)).update(episodes=[episode()])
    assert log == ["connectors", "update_begun", "update_ended"]


def test_listeners_are_told_the_last_registered_first():
    for names in ("ab", "ba"):
        log = []
        built(ppo_config(), *[Listens(name, log) for name in names]).update(ppo_batch(16))
        last_first = names[::-1]
        assert log == [f"{name}{hook}" for hook in ("update_begun", "update_ended") for name in last_first]

"""What an update copies to undo itself: what it changes, once; and what others change while it runs is undone too."""

import numpy as np
import pytest
from learning import digest, ppo_config

from plugrad import SingleAgentEpisode, hookimpl
from plugrad.errors import NotUndoneError
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_config, tiny_learner

MODULES = ("a", "b")
NUMBERS = 47
"""Trained numbers of one tiny module; Adam keeps two more of each."""


class Copies:
    """Notes the sizes of what is copied."""

    def __init__(self):
        self.sizes = []

    @hookimpl(wrapper=True)
    def snapshot_variables(self):
        copies = yield
        self.sizes += [np.size(each) for each in copies]
        return copies

    def large(self):
        """Copies of a module's size; scalars, such as learning rates, are not counted."""
        return [size for size in self.sizes if size >= NUMBERS]


class Fails:
    """Does something in a hook around the update, and raises at its end."""

    def __init__(self, does=lambda learner: None):
        self.does, self.is_on = does, True

    @hookimpl
    def update_begun(self, learner):
        if self.is_on:
            self.does(learner)

    @hookimpl
    def update_ended(self):
        if self.is_on:
            raise ZeroDivisionError


def both():
    return {module_id: tiny_batch(seed=n) for n, module_id in enumerate(MODULES)}


def learner_of_two(*plugins, cls=ActorCriticLearner, **multi_agent):
    config = tiny_config("numpy", modules=MODULES).multi_agent(**multi_agent)
    learner = cls(config=config, plugins=plugins)
    learner.build()
    return learner


def test_an_update_copies_the_parameters_and_slots_of_its_modules_once():
    copies = Copies()
    learner = learner_of_two(copies)
    learner.update(both())
    assert copies.large() == [NUMBERS] * 6


def test_a_module_that_is_not_in_the_batch_is_not_copied():
    copies = Copies()
    learner = learner_of_two(copies)
    learner.update({"a": tiny_batch()})
    assert copies.large() == [NUMBERS] * 3


def test_a_module_that_is_not_trained_is_not_copied():
    copies = Copies()
    learner = learner_of_two(copies, policies_to_train=["b"])
    before = learner.get_weights()["a"]
    learner.update(both())
    assert copies.large() == [NUMBERS] * 3
    assert digest(learner.get_weights()["a"]) == digest(before)


def test_a_batch_that_is_refused_costs_no_copy():
    copies = Copies()
    learner = learner_of_two(copies)
    with pytest.raises(ValueError, match="rows"):
        learner.update({"a": {}})
    assert copies.large() == []


def test_connectors_copy_no_weights():
    copies = Copies()
    learner = tiny_learner("numpy", plugins=[copies])
    learner.run_connectors([])
    assert copies.large() == []


def test_weights_that_a_listener_loads_into_another_module_are_undone():
    def load(learner):
        learner.set_weights({"b": learner.get_weights()["a"]})

    fails = Fails(load)
    learner = learner_of_two(fails)
    fails.is_on = False
    learner.update(both())
    fails.is_on = True
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert digest(learner.get_state()) == before
    fails.is_on = False
    learner.update(both())


def test_a_state_that_a_listener_loads_is_undone():
    fails = Fails(lambda learner: learner.set_state({"optimizer": other.get_state()["optimizer"]}))
    learner, other = learner_of_two(fails), learner_of_two()
    other.update(both())
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert digest(learner.get_state()) == before


def test_an_update_of_other_modules_that_a_listener_runs_is_undone_with_the_one_around_it():
    def train_other(learner):
        fails.is_on = False
        learner.update({"b": tiny_batch(seed=3)})
        fails.is_on = True

    fails = Fails(train_other)
    learner = learner_of_two(fails)
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert digest(learner.get_state()) == before


def test_learning_rates_that_a_listener_sets_are_undone():
    def set_rates(learner):
        for _, optimizer in learner.get_optimizers_for_module():
            learner._set_optimizer_lr(optimizer, 0.5)

    learner = learner_of_two(Fails(set_rates))
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert digest(learner.get_state()) == before


class StepsAll(ActorCriticLearner):
    """Its gradients are of all modules, whichever the minibatch has."""

    def postprocess_gradients(self, gradients_dict):
        parameters = self.get_parameters(self.module["b"])
        zeros = {self.get_param_ref(each): 0.0 * self.ops.asarray(each.read()) + 1.0 for each in parameters}
        return {**super().postprocess_gradients(gradients_dict), **zeros}


def test_where_an_author_makes_the_gradients_everything_is_copied_and_undone():
    copies, fails = Copies(), Fails()
    learner = learner_of_two(copies, fails, cls=StepsAll)
    before, weights = digest(learner.get_state()), digest(learner.get_weights()["b"])
    with pytest.raises(ZeroDivisionError):
        learner.update({"a": tiny_batch()})
    assert copies.large() == [NUMBERS] * 6
    assert digest(learner.get_state()) == before
    fails.is_on = False
    learner.update({"a": tiny_batch()})
    assert digest(learner.get_weights()["b"]) != weights


def test_weights_that_are_put_into_a_module_past_the_learner_make_a_failed_update_final():
    def put(learner):
        module = learner.module["b"]
        module.set_state({name: value + 1.0 for name, value in module.get_state().items()})

    learner = learner_of_two(Fails(put))
    with pytest.raises(ZeroDivisionError) as caught:
        learner.update({"a": tiny_batch()})
    assert any("the weights of b" in note for note in caught.value.__notes__)
    with pytest.raises(NotUndoneError, match="restore_from_path"):
        learner.update({"a": tiny_batch()})


def episode_of_a_learner(learner):
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    outputs = learner.compute_actions(observations[:-1])
    actions = outputs.pop("actions")
    return SingleAgentEpisode(
        observations=observations, actions=actions, rewards=np.ones(3), extra_model_outputs=outputs
    )


def learner_with_piece(does, *plugins, **training):
    """A learner of PPO whose first connector piece does something to it."""

    class Piece:
        def __call__(self, *, learner, batch, episodes):
            does(learner)
            return batch

    config = ppo_config(**training).learners(learner_connector=lambda observations, actions: [Piece()])
    return config.get_learner_class()(config=config, plugins=plugins)


@pytest.mark.parametrize("when", ["in the connectors", "after the connectors"])
def test_state_of_a_plugin_that_a_connector_moves_is_undone(when):
    """Running moments are moved where the episodes are."""

    class Moments:
        @hookimpl
        def learner_built(self, learner):
            self.count = learner.register_state("count", 0.0)

    def move(learner):
        moments.count.assign(moments.count.read() + 1.0)
        if when == "in the connectors" and fails.is_on:
            raise ZeroDivisionError

    moments, fails = Moments(), Fails()
    learner = learner_with_piece(move, moments, fails)
    learner.build()
    episode = episode_of_a_learner(learner)
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update(episodes=[episode])
    assert digest(learner.get_state()) == before
    fails.is_on = False
    learner.update(episodes=[episode])
    assert float(moments.count.read()) == 1.0


def test_rows_that_are_dropped_leave_what_a_connector_moved():
    """The first update tries the program, to see whether it reads the columns that have NaN."""
    counts = []

    def move(learner):
        count = learner.register_state("count", 0.0)
        count.assign(count.read() + 1.0)
        counts.append(count)

    learner = learner_with_piece(move, nonfinite="skip")
    learner.build()
    learner.register_state("count", 0.0)
    good, bad = episode_of_a_learner(learner), episode_of_a_learner(learner)
    bad.rewards[0] = np.nan
    results = learner.update(episodes=[good, bad])
    assert results["__all_modules__"]["num_nonfinite_minibatches"] > 0
    assert float(counts[0].read()) == 1.0


def test_weights_that_a_connector_loads_are_undone():
    def load(learner):
        learner.set_weights(
            {name: {n: v + 1 for n, v in each.items()} for name, each in learner.get_weights().items()}
        )

    learner = learner_with_piece(load, Fails())
    learner.build()
    episode = episode_of_a_learner(learner)
    before = digest(learner.get_state())
    with pytest.raises(ZeroDivisionError):
        learner.update(episodes=[episode])
    assert digest(learner.get_state()) == before


def test_weights_that_a_connector_puts_into_the_module_make_a_failed_update_final():
    def put(learner):
        (module,) = learner.module.values()
        module.set_state({name: value + 1.0 for name, value in module.get_state().items()})

    learner = learner_with_piece(put, Fails())
    learner.build()
    episode = episode_of_a_learner(learner)
    with pytest.raises(ZeroDivisionError):
        learner.update(episodes=[episode])
    with pytest.raises(NotUndoneError, match="restore_from_path"):
        learner.update(episodes=[episode])

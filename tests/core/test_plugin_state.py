"""A plugin's own state, on the numpy and the strict backend: saved, undone, hashed, carried over, refused by name."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest
from malicious_checkpoints import seal
from plugin_state import MOMENTS, SCALE, Moments, MovingScale, UnnamedScale, sizes_after, without_numbers

from plugrad import ALL_MODULES, hookimpl
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointVersionError, ConfigError, NonFiniteError, RestoreMismatchError
from plugrad.learner.state.state import digest as digest_of
from plugrad.testing.tiny_learners import ActorCriticLearner, digest, tiny_batch, tiny_learner

BATCHES = [tiny_batch(16, seed=n) for n in range(3)]
UNNAMED = "unnamed/0"


def learner_with(*plugins, backend="numpy", **settings):
    return tiny_learner(backend, plugins=plugins, **{"minibatch_size": None, "num_epochs": 1, **settings})


def own(learner):
    return learner.get_state("plugin_state").get("plugin_state", {})


@pytest.mark.parametrize("backend", ["numpy", "strict"])
@pytest.mark.parametrize(("plugin", "name"), [(MovingScale, SCALE), (UnnamedScale, UNNAMED)])
def test_what_a_loss_moves_is_moved_once_a_step_and_undone_after_an_error(backend, plugin, name):
    learner = learner_with(plugin(), backend=backend)
    for batch in BATCHES[:2]:
        learner.update(batch)
    assert own(learner)[name] == pytest.approx(sizes_after(BATCHES[:2]))
    before, hashed = digest(learner.get_state()), digest_of(learner)
    with pytest.raises(NonFiniteError):
        learner.update(without_numbers(BATCHES[2]))
    assert digest(learner.get_state()) == before
    assert digest_of(learner) == hashed
    learner.update(BATCHES[2])
    assert own(learner)[name] == pytest.approx(sizes_after(BATCHES))
    assert digest_of(learner) != hashed


def test_what_a_loss_moves_in_a_step_that_is_skipped_stays():
    learner = learner_with(MovingScale(), nonfinite="skip")
    learner.update(without_numbers(BATCHES[0]))
    assert own(learner)[SCALE] == 1.0
    learner.update(BATCHES[0])
    assert own(learner)[SCALE] == pytest.approx(sizes_after(BATCHES[:1]))


class Failing(Moments):
    """Moves its moments, and then fails."""

    fails = False

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner):
        learner.register_state(f"{MOMENTS}/count", 0).assign(99)
        yield
        if self.fails:
            raise ZeroDivisionError


def test_moments_of_a_listener_are_undone():
    plugin = Failing()
    learner = learner_with(plugin)
    learner.update(BATCHES[0])
    before = digest(learner.get_state())
    plugin.fails = True
    with pytest.raises(ZeroDivisionError):
        learner.update(BATCHES[1])
    assert digest(learner.get_state()) == before


class Late:
    """Registers at its first update."""

    fails = True

    @hookimpl
    def update_begun(self, learner):
        learner.register_state("late", 3).assign(4)
        if self.fails:
            raise ZeroDivisionError


def test_what_is_registered_in_an_update_that_fails_has_its_first_value():
    learner = learner_with(plugin := Late())
    with pytest.raises(ZeroDivisionError):
        learner.update(BATCHES[0])
    assert own(learner) == {"late": 3}
    plugin.fails = False
    learner.update(BATCHES[0])
    assert own(learner) == {"late": 4}


def test_it_is_saved_and_restored_and_a_run_that_goes_on_is_equal(tmp_path):
    first = learner_with(MovingScale(), Moments())
    first.update(BATCHES[0])
    first.save_to_path(tmp_path / "c")
    first.update(BATCHES[1])
    second = ActorCriticLearner.from_checkpoint(tmp_path / "c", plugins=[MovingScale(), Moments()])
    second.update(BATCHES[1])
    assert digest(second.get_state()) == digest(first.get_state())
    assert own(second)[f"{MOMENTS}/count"] == 2


def test_a_part_of_it_is_read_and_restored_alone(tmp_path):
    first = learner_with(MovingScale(), Moments())
    first.update(BATCHES[0])
    first.save_to_path(tmp_path / "c")
    second = learner_with(MovingScale(), Moments())
    second.restore_from_path(tmp_path / "c", component=f"plugin_state/{SCALE}")
    assert own(second)[SCALE] == own(first)[SCALE]
    assert own(second)[f"{MOMENTS}/count"] == 0
    assert list(first.get_state(f"plugin_state/{SCALE}")["plugin_state"]) == [SCALE]


def test_an_older_file_begins_it_anew_with_a_line_in_the_log(tmp_path, caplog):
    older = learner_with()
    older.update(BATCHES[0])
    older.save_to_path(tmp_path / "c")
    assert "plugin_state" not in load_checkpoint(tmp_path / "c").state
    learner = learner_with(MovingScale())
    learner.update(BATCHES[1])
    with caplog.at_level(logging.INFO, "plugrad"), pytest.warns(UserWarning, match="other plugins"):
        learner.restore_from_path(tmp_path / "c")
    assert own(learner)[SCALE] == 1.0
    assert f"c/save-1 has no plugin_state/{SCALE}: begins anew" in caplog.text


def test_what_no_plugin_has_registered_yet_waits_for_it_and_is_saved_again(tmp_path, caplog):
    first = learner_with(MovingScale())
    first.update(BATCHES[0])
    first.save_to_path(tmp_path / "c")
    with caplog.at_level(logging.INFO, "plugrad"), pytest.warns(UserWarning, match="other plugins"):
        second = ActorCriticLearner.from_checkpoint(tmp_path / "c")
    assert f"plugin_state/{SCALE}, which no plugin has registered" in caplog.text
    second.save_to_path(tmp_path / "d")
    assert own(second) == own(first)
    third = learner_with()
    with pytest.warns(UserWarning, match="other plugins"):
        third.restore_from_path(tmp_path / "c")
    assert third.register_state(SCALE, 1.0).numpy() == own(first)[SCALE]
    with pytest.raises(RestoreMismatchError, match=r"registers shape \[2\].* loaded has \[\]"):
        second.register_state(SCALE, np.zeros(2))


def test_only_a_file_that_holds_it_is_of_the_newer_format(tmp_path):
    for plugins, version in (((), 1), ((MovingScale(),), 3)):
        path = tmp_path / str(version)
        learner_with(*plugins).save_to_path(path)
        assert f'"format_version":{version},' in (path / "save-1" / "metadata.json").read_text()


def test_what_an_older_version_says_of_a_newer_file(tmp_path, monkeypatch):
    learner_with(MovingScale()).save_to_path(tmp_path / "c")
    seal(tmp_path / "c" / "save-1", lambda fields: fields.update(plugrad_version="0.2.0"))
    monkeypatch.setattr("plugrad.checkpoint.content.FORMAT_VERSION", 2)
    with pytest.raises(
        CheckpointVersionError, match=r'format version 3, .*up to 2: pip install "plugrad>=0.2.0"'
    ):
        ActorCriticLearner.from_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("wrong", [1.0, {"x": np.zeros(2)}, np.array(["a"]), np.zeros(2)])
def test_a_state_that_does_not_fit_changes_nothing(wrong):
    learner = learner_with(MovingScale())
    before = digest(learner.get_state())
    with pytest.raises(RestoreMismatchError, match=SCALE):
        learner.set_state({"plugin_state": {SCALE: wrong}})
    with pytest.raises(RestoreMismatchError, match="plugin_state"):
        learner.set_state({"plugin_state": [1]})
    assert digest(learner.get_state()) == before


def test_a_file_with_something_else_in_its_place_is_refused(tmp_path):
    learner = learner_with(MovingScale())
    learner.save_to_path(tmp_path / "c")
    found = load_checkpoint(tmp_path / "c")
    before = digest(learner.get_state())
    for wrong in (7, {SCALE: "text"}, {SCALE: {"a": {}}}, {"other": [1]}):
        save_checkpoint(tmp_path / "d", {**found.state, "plugin_state": wrong}, metadata=found.metadata)
        with pytest.raises(RestoreMismatchError, match="plugin_state"):
            learner.restore_from_path(tmp_path / "d")
    assert digest(learner.get_state()) == before


def test_that_of_a_module_goes_with_it():
    learner = tiny_learner("numpy", modules=("a", "a/b"))
    for name in ("a/x", "a/b/x", "x"):
        learner.register_state(name, 1.0)
    learner.remove_module("a")
    assert list(own(learner)) == ["a/b/x", "x"]


def test_add_module_keeps_it():
    learner = tiny_learner("numpy", modules=("a",))
    variable = learner.register_state("x", 1.0)
    learner.add_module(module_id="b", module_spec=learner.config.rl_module_spec.rl_module_specs["a"])
    variable.assign(2.0)
    assert own(learner) == {"x": 2.0}


def test_what_is_made_and_thrown_away_is_not_kept():
    learner = learner_with()
    for _ in range(3):
        learner._get_tensor_variable(1.0)
    kept = learner._get_tensor_variable([1, 2])
    learner.update(BATCHES[0])
    assert {name: each.tolist() for name, each in own(learner).items()} == {UNNAMED: [1, 2]}
    assert learner.buffers[ALL_MODULES] == {UNNAMED: kept}


def test_names_and_values_that_cannot_be_are_refused():
    learner = learner_with()
    for name in ("", 3, "x" * 201, "unnamed/0"):
        with pytest.raises(ConfigError, match="a name is a text"):
            learner.register_state(name, 1.0)
    for value in ("text", None, [object()]):
        with pytest.raises(ConfigError, match=r"register_state\('x'\): expected a number or an array"):
            learner.register_state("x", value)
    variable = learner.register_state("x", [1.0, 2.0])
    assert learner.register_state("x", [0.0, 0.0]) is variable
    with pytest.raises(ConfigError, match=r"'x'\): it is registered with shape \[2\], and now with \[\]"):
        learner.register_state("x", 0.0)
    assert list(own(learner)) == ["x"]


def test_the_program_of_the_page_is_undone_saved_and_as_it_says(tmp_path):
    page = (Path(__file__).parents[2] / "docs/hooks.md").read_text()
    code = re.search(r"^## State of your own$.*?^```python$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code[1], names)
    learner = learner_with(names["MovingScale"]())
    (name,) = own(learner)
    learner.update(BATCHES[0])
    size = float(np.mean(np.abs(BATCHES[0]["advantages"])))
    assert own(learner)[name] == pytest.approx(0.99 + 0.01 * size)
    with pytest.raises(NonFiniteError):
        learner.update(without_numbers(BATCHES[1]))
    learner.save_to_path(tmp_path / "c")
    again = ActorCriticLearner.from_checkpoint(tmp_path / "c", plugins=[names["MovingScale"]()])
    assert own(again) == own(learner)
    assert digest(again.get_state()) == digest(learner.get_state())


class InTheLoss:
    """Registers where it must not."""

    @hookimpl(wrapper=True)
    def compute_losses(self, learner):
        learner.register_state("x", 1.0)
        return (yield)


def test_registering_in_a_step_is_refused_with_the_place_to_do_it():
    with pytest.raises(ConfigError, match=r"register_state\('x'\) in a gradient step.* in learner_built"):
        learner_with(InTheLoss()).update(BATCHES[0])


def test_settings_of_the_config_after_a_restore_keep_it(tmp_path):
    first = learner_with(MovingScale())
    first.update(BATCHES[0])
    first.save_to_path(tmp_path / "c")
    second = learner_with(MovingScale(), lr=0.5)
    second.restore_from_path(tmp_path / "c", hyperparameters="config")
    assert own(second) == own(first)

"""NaN and infinities, wherever they come from, never reach weights: the update is undone or the minibatch left out."""

from typing import Any

import numpy as np
import pytest
from learning import digest, ppo_batch, ppo_config, with_modules

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Columns
from plugrad.errors import NonFiniteBatchError, NonFiniteError
from plugrad_ppo import PPOLearner

pytestmark = pytest.mark.cross_product

P = DEFAULT_MODULE_ID
MODES = ["none", "complete_update"]
ROWS, SIZE, BAD_ROW = 32, 8, 9
VALUES = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
READ = [Columns.OBS, Columns.ADVANTAGES, Columns.VALUE_TARGETS, Columns.ACTION_LOGP]
PLACES = [*READ, "loss", "gradient"]
PARAMETER = f"{P}/pi.0.bias"
LOGS = {"nan": (-1.0, 1.0), "inf": (0.0, -1.0), "-inf": (0.0, 1.0)}
"""(x, factor) of which factor * log(x) is that value."""


class PoisonedLoss(PPOLearner):
    """Adds the mean of `factor * log(x)` to the loss: 0 in a good batch."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        arguments = {"module_id": module_id, "config": config, "batch": batch, "fwd_out": fwd_out}
        return super().compute_loss_for_module(**arguments) + self.poison(batch, "loss")

    def poison(self, batch: Any, name: str) -> Any:
        return self.ops.mean(batch[f"{name}_factor"] * self.ops.log(batch[name]))


class Poisoned(PoisonedLoss):
    """Adds it also to one element of one gradient."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        self.gradient_poison = self.poison(batch, "gradient")
        arguments = {"module_id": module_id, "config": config, "batch": batch, "fwd_out": fwd_out}
        return super().compute_loss_for_module(**arguments)

    def compute_gradients(self, loss_per_module: Any, **kwargs: Any) -> Any:
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        last = gradients[PARAMETER].shape[0] - 1
        poison = self.ops.reshape(self.gradient_poison, (1,))
        gradients[PARAMETER] = gradients[PARAMETER] + self.ops.concat(
            [self.ops.zeros_like(gradients[PARAMETER][:last]), poison], 0
        )
        return gradients


def batch() -> dict[str, Any]:
    ones = {name: np.ones(ROWS) for name in ("loss", "loss_factor", "gradient", "gradient_factor")}
    return {**ppo_batch(ROWS), **ones}


def bad_batch(place: str, value: str) -> dict[str, Any]:
    bad = batch()
    if place in READ:
        bad[place][BAD_ROW] = VALUES[value]
    else:
        bad[place][BAD_ROW], bad[f"{place}_factor"][BAD_ROW] = LOGS[value]
    return bad


def built(backend: str, mode: str, nonfinite: str) -> Any:
    config = ppo_config(
        backend, minibatch_size=SIZE, use_kl_loss=True, vf_clip_param=1.0, nonfinite=nonfinite
    )
    config = config.framework(backend, compile=mode, device="cpu").learners(learner_class=Poisoned)
    learner = config.build_learner()
    learner.update(batch())
    assert learner.update_mode.startswith(mode), learner.update_mode
    return learner


@pytest.mark.parametrize("mode", MODES)
def test_raise_undoes_the_whole_update_and_names_the_place(backend: str, mode: str) -> None:
    learner = built(backend, mode, "raise")
    state = learner.get_state()
    for place in PLACES:
        for value in VALUES:
            before = digest(learner.get_state())
            with pytest.raises(NonFiniteError) as caught:
                learner.update(bad_batch(place, value))
            assert digest(learner.get_state()) == before, (place, value)
            facts, said = caught.value.facts, str(caught.value)
            assert facts["module_id"] == P
            if place in READ:
                assert isinstance(caught.value, NonFiniteBatchError)
                assert (facts["column"], facts["found"]) == (place, 1)
                assert f"module {P!r}, column {place!r}" in said
                assert f"row {BAD_ROW} first" in said
            elif place == "loss":
                assert f"{P}/total_loss" in facts["metrics"]
                assert f"{P}/total_loss" in said
            else:
                assert facts["parameters"] == [PARAMETER]
                assert f"the gradient of {PARAMETER}" in said
    assert learner.update_mode.startswith(mode)
    learner.update(batch())
    after = digest(learner.get_state())
    learner.set_state(state)
    learner.update(batch())
    assert digest(learner.get_state()) == after, "the next good batch trains as if nothing had happened"


def test_a_module_whose_id_has_a_slash_is_named_whole(backend: str) -> None:
    config = ppo_config(backend, minibatch_size=SIZE).learners(learner_class=PoisonedLoss)
    learner = with_modules(config, "a/b", "a").build_learner()
    with pytest.raises(NonFiniteError) as caught:
        learner.update({"a": batch(), "a/b": bad_batch("loss", "nan")})
    assert caught.value.facts["module_id"] == "a/b"


@pytest.mark.parametrize("mode", MODES)
def test_skip_leaves_out_the_minibatch_and_counts_it(backend: str, mode: str) -> None:
    learner = built(backend, mode, "skip")
    state = learner.get_state()
    kept = [row for row in range(ROWS) if row // SIZE != BAD_ROW // SIZE]
    learner.update({column: values[kept] for column, values in batch().items()})
    parts = ["rl_module", "optimizer"]
    expected = digest(learner.get_state(parts))
    for place in PLACES:
        for value in VALUES:
            learner.set_state(state)
            results = learner.update(bad_batch(place, value))
            assert digest(learner.get_state(parts)) == expected, (place, value)
            assert results[ALL_MODULES]["num_nonfinite_minibatches"] == 1
            assert learner.counters["num_nonfinite_minibatches_lifetime"] == 1
            assert np.isfinite(results[P]["total_loss"])


def test_the_first_update_already_leaves_out_what_is_not_finite(backend: str) -> None:
    config = ppo_config(backend, minibatch_size=SIZE, nonfinite="skip")
    learner, clean = config.build_learner(), config.build_learner()
    bad = ppo_batch(ROWS)
    bad[Columns.ACTION_LOGP][BAD_ROW] = np.inf
    bad["unread"] = np.full(ROWS, np.nan)
    kept = [row for row in range(ROWS) if row // SIZE != BAD_ROW // SIZE]
    learner.update(bad)
    clean.update({column: values[kept] for column, values in ppo_batch(ROWS).items()})
    parts = ["rl_module", "optimizer"]
    assert digest(learner.get_state(parts)) == digest(clean.get_state(parts))

"""The strict backend: what it refuses, with the author's line, and that it computes what the numpy backend does."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugrad.errors import PortabilityError
from plugrad.testing.tiny_learners import ActorCriticLearner, tiny_batch, tiny_learner, weights_of

Loss = Callable[[Any, Any, Any, Any], Any]
"""`(ops, loss, values [B], batch) -> loss`."""

REFUSED: dict[str, Loss] = {
    "+= in place": lambda ops, loss, v, batch: _add_in_place(v),
    "item assignment": lambda ops, loss, v, batch: v.__setitem__(0, 1.0),
    "mutated batch": lambda ops, loss, v, batch: batch.__setitem__("x", v),
    "Python if": lambda ops, loss, v, batch: loss if loss > 0.0 else -loss,
    "float()": lambda ops, loss, v, batch: loss * float(loss),
    "math": lambda ops, loss, v, batch: loss * math.exp(loss),
    "numpy": lambda ops, loss, v, batch: np.exp(loss),
    "numpy's mean": lambda ops, loss, v, batch: loss + np.mean(v),
    "iteration": lambda ops, loss, v, batch: sum(each for each in v),
    "boolean mask": lambda ops, loss, v, batch: loss + ops.mean(v[v > 0.0]),
    "list as index": lambda ops, loss, v, batch: loss + ops.mean(v[[0, 1]]),
    "method": lambda ops, loss, v, batch: loss + v.mean(),
    "numpy scalar": lambda ops, loss, v, batch: loss * np.float64(2.0),
    "numpy scalar first": lambda ops, loss, v, batch: np.float64(2.0) * loss,
    "numpy array": lambda ops, loss, v, batch: loss + ops.mean(v * np.ones(8, np.float32)),
    "float64 array": lambda ops, loss, v, batch: loss + ops.mean(v * ops.asarray(np.linspace(0.0, 1.0, 8))),
    "int with float": lambda ops, loss, v, batch: loss + ops.mean(batch["actions"] * v),
    "int with Python float": lambda ops, loss, v, batch: (
        loss + ops.mean(ops.cast(batch["actions"] * 0.5, "float32"))
    ),
    "bool arithmetic": lambda ops, loss, v, batch: loss + ops.mean(1.0 - (v > 0.0)),
    "[B, 1] with [B]": lambda ops, loss, v, batch: loss + ops.mean(ops.reshape(v, (-1, 1)) - v),
    "unknown op": lambda ops, loss, v, batch: ops.sin(loss),
    "unknown argument": lambda ops, loss, v, batch: loss + ops.mean(v, dim=0),
    "tensor by name": lambda ops, loss, v, batch: loss + ops.mean(x=v),
}


def _add_in_place(v: Any) -> Any:
    v += 1.0
    return v


class _Learner(ActorCriticLearner):
    loss: Loss

    def compute_loss_for_module(self, *, module_id: Any, config: Any, batch: Any, fwd_out: Any) -> Any:
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return type(self).loss(self.ops, loss, fwd_out["vf_preds"], batch)


def _update(loss: Loss) -> None:
    learner_class = type("_OfALoss", (_Learner,), {"loss": staticmethod(loss)})
    tiny_learner("strict", learner_class).update(tiny_batch())


@pytest.mark.parametrize("what", REFUSED)
def test_a_loss_that_is_not_portable_is_refused_with_its_line(what: str) -> None:
    loss = REFUSED[what]
    with pytest.raises(PortabilityError) as refused:
        _update(loss)
    first = (_add_in_place if what == "+= in place" else loss).__code__.co_firstlineno
    assert refused.value.facts["file"] == __file__
    assert first <= refused.value.facts["line"] <= first + 1
    assert str(refused.value).startswith(f"{__file__}:{refused.value.facts['line']}: ")


def test_a_portable_loss_trains_as_on_numpy() -> None:
    learners = [tiny_learner(backend) for backend in ("strict", "numpy")]
    for learner in learners:
        learner.update(tiny_batch())
    np.testing.assert_array_equal(*map(weights_of, learners))

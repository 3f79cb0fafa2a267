"""An override of `compute_gradients` may give `super()` what it made of the losses, where a backend declares it."""

import numpy as np
import pytest
from learning import ppo_batch, ppo_config, weights

from plugrad import Learner
from plugrad.hooks.backend_spec import Capability
from plugrad.testing.fixtures import requires


class Doubles(Learner):
    def compute_gradients(self, loss_per_module, **kwargs):
        return super().compute_gradients(
            {module_id: 2.0 * loss for module_id, loss in loss_per_module.items()}, **kwargs
        )


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_twice_the_loss_is_twice_the_step(backend, backend_info, mode):
    requires(backend_info, Capability.CHANGED_LOSSES)
    config = ppo_config(backend, optimizer={"type": "sgd"}, lr=0.1, grad_clip=None).framework(
        backend, compile=mode
    )
    plain, doubled = (config.learners(learner_class=cls).build_learner() for cls in (Learner, Doubles))
    start = weights(plain)
    for learner in (plain, doubled):
        learner.update(ppo_batch(16))
    moved = weights(plain) - start
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(weights(doubled) - start, 2.0 * moved, rtol=0, atol=1e-6)

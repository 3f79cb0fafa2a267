"""No hook promises an order of keys, and the core relies on none: every dict that a hook gives is turned round."""

import numpy as np
import pytest
from learning import ppo_batch, ppo_config, weights

from plugrad import hookimpl


def turned(tree):
    """The same with the keys of all dicts in the opposite order."""
    if isinstance(tree, list | tuple):
        return type(tree)(map(turned, tree))
    if not hasattr(tree, "items"):
        return tree
    return {key: turned(tree[key]) for key in reversed(list(tree))}


class Turner:
    """Around every hook of which the answer is a mapping or has one."""

    def __init__(self):
        self.turns = set()

    def _turn(self, hook, tree):
        self.turns.add(hook)
        return turned(tree)

    @hookimpl(wrapper=True)
    def convert_batch_type(self):
        return self._turn("convert_batch_type", (yield))

    @hookimpl(wrapper=True)
    def convert_to_numpy(self):
        return self._turn("convert_to_numpy", (yield))

    @hookimpl(wrapper=True)
    def get_buffers(self):
        return self._turn("get_buffers", (yield))

    @hookimpl(wrapper=True)
    def differentiate(self):
        return self._turn("differentiate", (yield))

    @hookimpl(wrapper=True)
    def reduce_gradients(self):
        return self._turn("reduce_gradients", (yield))

    @hookimpl(wrapper=True)
    def compute_losses(self):
        return self._turn("compute_losses", (yield))

    @hookimpl(wrapper=True)
    def postprocess_gradients(self):
        return self._turn("postprocess_gradients", (yield))

    @hookimpl(wrapper=True)
    def compile_update(self):
        program = yield
        run = program.run
        program.run = lambda *arguments: self._turn("compile_update", dict(run(*arguments)))
        return program


@pytest.mark.parametrize("mode", ["none", "auto"])
def test_an_update_is_the_same_whatever_the_order_of_keys(backend, mode):
    turner = Turner()
    config = ppo_config(backend, num_epochs=2, minibatch_size=16, accumulate=2).framework(
        backend, compile=mode
    )
    results, learners = (
        [],
        [config.get_learner_class()(config=config, plugins=each) for each in ((), (turner,))],
    )
    for learner in learners:
        learner.build()
        for n in range(2):
            results.append(learner.update(ppo_batch(64, seed=n)))
    np.testing.assert_allclose(*map(weights, learners), rtol=0, atol=1e-6)
    for found, expected in zip(results[2:], results[:2], strict=True):
        for module_id, metrics in expected.items():
            assert set(found[module_id]) == set(metrics)
            for name, value in metrics.items():
                if not name.startswith("time/"):
                    assert found[module_id][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert len(turner.turns) == 8
    state, turned_state = (each.get_state() for each in learners)
    learners[0].set_state(turned(turned_state))
    learners[1].set_state(turned(state))
    np.testing.assert_allclose(*map(weights, learners), rtol=0, atol=1e-6)

"""The examples of docs/hooks.md run: together they are a backend, an algorithm and a listener.

What the examples leave to the reader is written here, over numpy.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from plugrad import AlgorithmConfig, RLModuleSpec, get_algorithm
from plugrad.hooks.manager import specifications
from plugrad.hooks.registry import use_plugin
from plugrad.testing.tiny_learners import (
    OBSERVATIONS,
    TWO_ACTIONS,
    ActorCriticLearner,
    tiny_batch,
    tiny_config,
    tiny_learner,
    weights_of,
)

PAGE = (Path(__file__).parents[2] / "docs/hooks.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
EXAMPLE = re.compile(r"^### `(\w+)\(.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OF_A_BACKEND = """
import functools
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np

import plugrad
from plugrad import hookimpl
from plugrad.batch import Rows
from plugrad.errors import OptimizerError
from plugrad.gradients import clip_gradients
from plugrad.hooks.backend_spec import BackendInfo, BatchedProgram, Program
from plugrad.testing import finite_differences, numpy_backend, numpy_loss_ops
from plugrad.testing.numpy_module import NumpyNetwork, NumpyRLModule
from plugrad.testing.numpy_module import ArrayVariable as MyVariable, FlatParameters as MyFlatVariable

plugrad_mine = SimpleNamespace(ops=numpy_loss_ops)


class MyNetworkModule(NumpyNetwork):
    def parameters(self):
        return self.named_weights().values()

    def buffers(self):
        return ()


class MyModelModule(NumpyRLModule):
    def __init__(self, model, spec):
        super().__init__(**spec.arguments())

    parameters, buffers = MyNetworkModule.parameters, MyNetworkModule.buffers


class Tape:
    '''numpy has none: it computes the losses of `now` again.'''

    now = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def gradient(self, total):
        learner, leaves, loss_fn = Tape.now
        losses = loss_fn()[0]
        assert total == sum(losses.values())
        known = {"leaves": leaves, "loss_fn": lambda: loss_fn()[0]}
        return finite_differences.compute_gradients(learner, losses, known)


def along(function, weights, vectors):
    '''A function of weights, and its slope along vectors.'''
    step = 1e-4
    above, below = (
        function({name: each + n * step * vectors[name] for name, each in weights.items()}) for n in (1, -1)
    )
    now = function(weights)
    if isinstance(now, dict):
        return now, {name: (above[name] - below[name]) / (2.0 * step) for name in now}
    return now, (above - below) / (2.0 * step)


def gradient(function):
    def unit(weights, name, entry):
        zeros = {each: np.zeros_like(weights[each]) for each in weights}
        zeros[name].flat[entry] = 1.0
        return zeros

    return lambda weights: {
        name: np.reshape(
            [along(function, weights, unit(weights, name, n))[1] for n in range(each.size)], each.shape
        )
        for name, each in weights.items()
    }


mine = SimpleNamespace(
    jvp=along,
    grad=gradient,
    seeded=lambda seed: nullcontext({}),
    __version__="1.0",
    ops=numpy_loss_ops,
    take=numpy_loss_ops.take,
    from_numpy=lambda x: np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else np.asarray(x),
    to_numpy=np.array,
    read_all=lambda variables: [each.snapshot() for each in variables],
    to_onnx=lambda forward, columns, opset: SimpleNamespace(SerializeToString=lambda: b"onnx"),
    Module=NumpyRLModule,
    Optimizer=type("Optimizer", (), {}),
    Tape=Tape,
)


@contextmanager
def my_recorder():
    yield []


def tree_map(function, tree):
    if isinstance(tree, dict):
        return {name: tree_map(function, each) for name, each in tree.items()}
    return [tree_map(function, each) for each in tree] if isinstance(tree, list) else function(tree)


def names_of(learner):
    modules = learner.module.items()
    return {id(each): f"{m}/{name}" for m, module in modules for name, each in module.named_weights().items()}


def means(found):
    return {name: np.mean([each[name] for each in found], dtype=np.float32) for name in found[0]}
"""
OF_AN_ALGORITHM = """
from dataclasses import dataclass

from plugrad import AlgorithmConfig, RLModuleSpec, hookimpl
from plugrad.learner import PiecePerModule
from plugrad.networks import ActorCritic as MyNetwork
from plugrad.optimizers import Adam
from plugrad.training import OnPolicyTraining
from plugrad_ppo import GeneralAdvantageEstimation

TEMPERATURE = 2.0


class MyTraining(OnPolicyTraining):
    pass


@dataclass(frozen=True, kw_only=True)
class MyConfig(AlgorithmConfig):
    lambda_: float = 0.9
"""
OF_A_LISTENER = """
from plugrad import hookimpl

FROZEN = ()
said = []


def start_clock():
    said.append("begun")


def close_log():
    said.append("closed")


def penalty(learner, fwd_out):
    return learner.ops.mean(learner.ops.square(fwd_out["vf_preds"]))


log = upload = said.append
"""


def examples(*titles: str) -> dict[str, str]:
    """`{hook: code}` of the page's sections."""
    text = "".join(each for each in SECTIONS if each.startswith(titles))
    return dict(EXAMPLE.findall(text))


OF_BACKENDS, OF_ALGORITHMS = examples("Backend hooks"), examples("Algorithm hooks")
TINY = {"fcnet_hiddens": [4]}
OF_LISTENERS = examples("Learner hooks", "Listener hooks")


@contextmanager
def calls_in(file: Path) -> Iterator[set[str]]:
    """The names of the functions of a file that are called in the block."""
    called: set[str] = set()

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename == str(file):
            called.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("plugrad.hooks.registry._USED", {})
    return tmp_path


def written(folder: Path, name: str, prelude: str, code: dict[str, str]) -> Path:
    file = folder / f"{name}.py"
    file.write_text("\n\n".join([prelude, *code.values()]))
    return file


def test_the_page_has_an_example_of_every_hook():
    assert {*OF_BACKENDS, *OF_ALGORITHMS, *OF_LISTENERS} == set(specifications())


def test_the_backend_hooks_are_a_backend(folder):
    """It trains to the same weights as numpy, of which it is made."""
    file = written(folder, "mine", OF_A_BACKEND, OF_BACKENDS)
    tape = use_plugin(str(file)).implementation.Tape

    class Learns(ActorCriticLearner):
        def _differentiate(self, variables, loss_fn):
            tape.now = (self, variables, loss_fn)
            return super()._differentiate(variables, loss_fn)

    with calls_in(file) as called:
        learner = tiny_learner("mine", Learns, grad_clip=0.5)
        learner.update(tiny_batch())
        adam = learner.get_optimizer("default_policy")
        learner._set_optimizer_lr(adam, 0.25)
        assert learner._get_optimizer_lr(adam) == 0.25
        spec = RLModuleSpec(observation_space=OBSERVATIONS, action_space=TWO_ACTIONS)
        learner._wrap_module(module_id="m", module=object(), module_spec=spec)
        module = learner.module["default_policy"]
        model = learner._export_onnx(module=module, forward=module.forward_train, columns={}, opset=18)
        assert model == b"onnx"
        with learner._seeded_generators(3) as more:
            assert more == {}
        vectors = {name: np.ones_like(each) for name, each in module.get_state().items()}
        values = partial(module.forward_train, {"obs": tiny_batch()["obs"]})
        _, slope = learner.jvp("default_policy", lambda: np.mean(np.square(values()["vf_preds"])), vectors)
        gradients, _ = learner.hvp(
            "default_policy", lambda: np.mean(np.square(values()["vf_preds"])), vectors
        )
        assert slope == pytest.approx(sum(each.sum() for each in gradients.values()), abs=1e-5)
        assert learner._batch_program(SimpleNamespace(loop="traced")).loop == "traced"
    reference = tiny_learner("numpy", grad_clip=0.5)
    reference.update(tiny_batch())
    np.testing.assert_array_equal(weights_of(learner), weights_of(reference))
    assert called >= set(OF_BACKENDS)


def tiny(config: AlgorithmConfig) -> AlgorithmConfig:
    config = config.framework("numpy").environment("CartPole-v1").debugging(seed=1)
    return config.training(train_batch_size=16, minibatch_size=16, num_epochs=1)


def test_the_algorithm_hooks_are_an_algorithm(folder):
    file = written(folder, "ours", OF_AN_ALGORITHM, OF_ALGORITHMS)
    use_plugin(str(file))
    with calls_in(file) as called:
        algorithm = tiny(get_algorithm("ours")()).build_algo()
        start = algorithm.learner_group.get_weights()["default_policy"]
        algorithm.train()
        algorithm._learner.compute_actions(np.zeros((2, 4), np.float32), as_tensors=True)
    learned = algorithm.learner_group.get_weights()["default_policy"]
    algorithm.stop()
    assert any(not np.array_equal(start[name], learned[name]) for name in start)
    assert called >= set(OF_ALGORITHMS)


def test_the_learner_and_listener_hooks_are_a_listener(folder):
    """Of an algorithm and, for what an Algorithm does not do by itself, of a learner."""
    file = written(folder, "ears", OF_A_LISTENER, OF_LISTENERS)
    with calls_in(file) as called:
        algorithm = tiny(get_algorithm("ppo")()).rl_module(model_config=TINY).plugins(str(file)).build_algo()
        algorithm.train()
        algorithm.evaluate(1)
        algorithm.stop()
        learner = ActorCriticLearner(config=tiny_config("numpy").plugins(str(file)))
        learner.build()
        learner.save_to_path(folder / "saved")
        learner.restore_from_path(folder / "saved")
        learner.add_module(module_id="more", module_spec=RLModuleSpec(model_config=TINY))
        learner.get_optimizer("more")
        learner.get_optimizers_for_module("more")
        learner.filter_param_dict_for_optimizer({}, learner.get_optimizer("more"))
        learner.remove_module("more")
    assert called >= set(OF_LISTENERS)

"""[B] against [B, 1] in a user's loss is found, whoever wrote it and however; right losses are left alone.

Columns: `t`, `w` and `old` are [B], `t1`, `w1` and `old1` the same as [B, 1], `choice1` is [B, 1] of whole numbers.
"""

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from learning import OBSERVATIONS, TWO_ACTIONS, ValueLearner, digest, ppo_batch, value_config

from plugrad import DEFAULT_MODULE_ID, Columns, get_algorithm
from plugrad.errors import LossError

pytestmark = pytest.mark.cross_product

Loss = Callable[[Any, Any, Any, Any, Any], Any]
ROWS = 12

# (o: ops, b: batch, v: values [B], logits: [B, 2], d: distribution) -> scalar
FAULTS: dict[str, Loss] = {
    "squared error": lambda o, b, v, logits, d: o.mean(o.square(v - b["t1"])),
    "squared error, turned round": lambda o, b, v, logits, d: o.mean(o.square(b["t1"] - v)),
    "product": lambda o, b, v, logits, d: o.mean((v - b["t"]) * b["w1"]),
    "quotient": lambda o, b, v, logits, d: o.mean((v - b["t"]) / (1.0 + o.square(b["w1"]))),
    "sum": lambda o, b, v, logits, d: o.mean(o.square(v + b["w1"])),
    "power": lambda o, b, v, logits, d: o.mean(o.power(o.abs(v) + 1.0, o.abs(b["w1"]) + 1.0)),
    "maximum": lambda o, b, v, logits, d: o.mean(o.maximum(v, b["t1"])),
    "minimum": lambda o, b, v, logits, d: o.mean(o.minimum(o.square(v), o.square(b["t1"]))),
    "where, the condition": lambda o, b, v, logits, d: o.mean(o.where(b["w1"] > 0.0, v, -v)),
    "where, a value": lambda o, b, v, logits, d: o.mean(o.where(b["w"] > 0.0, v, b["t1"])),
    "a mask": lambda o, b, v, logits, d: o.sum(o.cast(b["w1"] > 0.0, "float32") * v) / ROWS,
    "huber": lambda o, b, v, logits, d: o.mean(o.huber(v - b["t1"])),
    "kept dimension": lambda o, b, v, logits, d: o.mean(o.sum(logits, axis=-1, keepdims=True) * (v - b["t"])),
    "expanded": lambda o, b, v, logits, d: o.mean(o.square(o.expand_dims(v, -1) - b["t"])),
    "reshaped": lambda o, b, v, logits, d: o.mean(o.square(o.reshape(v, (-1, 1)) - b["t"])),
    "advantage": lambda o, b, v, logits, d: -o.mean(d.logp(b["actions"]) * b["w1"]),
    "ratio": lambda o, b, v, logits, d: -o.mean(o.exp(d.logp(b["actions"]) - b["old1"]) * b["w"]),
    "ratio, clipped": lambda o, b, v, logits, d: (
        -o.mean(
            o.minimum(
                o.exp(d.logp(b["actions"]) - b["old"]) * b["w1"],
                o.clip(o.exp(d.logp(b["actions"]) - b["old"]), 0.8, 1.2) * b["w1"],
            )
        )
    ),
    "taken entry": lambda o, b, v, logits, d: o.mean(
        o.square(o.take_along_axis(logits, b["choice1"], -1) - b["t"])
    ),
    "a second term": lambda o, b, v, logits, d: (
        o.mean(o.square(v - b["t"])) + 0.01 * o.mean(d.entropy() * b["w1"])
    ),
}

RIGHT: dict[str, Loss] = {
    "squared error": lambda o, b, v, logits, d: o.mean(o.square(v - b["t"])),
    "all [B, 1]": lambda o, b, v, logits, d: o.mean(o.square(o.expand_dims(v, -1) - b["t1"])),
    "reshaped": lambda o, b, v, logits, d: o.mean(o.square(v - o.reshape(b["t1"], (-1,)))),
    "a number": lambda o, b, v, logits, d: 0.5 * o.mean(o.square(v - 1.0)),
    "advantages normalised in the loss": lambda o, b, v, logits, d: (
        -o.mean(d.logp(b["actions"]) * (b["w"] - o.mean(b["w"])) / (o.std(b["w"]) + 1e-8))
    ),
    "normalised with kept dimensions": lambda o, b, v, logits, d: o.mean(
        o.square(v - b["t"]) * (b["w"] - o.mean(b["w"], axis=0, keepdims=True))
    ),
    "clipped ratio": lambda o, b, v, logits, d: (
        -o.mean(
            o.minimum(
                o.exp(d.logp(b["actions"]) - b["old"]) * b["w"],
                o.clip(o.exp(d.logp(b["actions"]) - b["old"]), 0.8, 1.2) * b["w"],
            )
        )
    ),
    "entropy": lambda o, b, v, logits, d: o.mean(o.square(v - b["t"])) - 0.01 * o.mean(d.entropy()),
    "weights for rows of [B, 2]": lambda o, b, v, logits, d: o.mean(o.square(logits) * b["w1"]),
    "bias for columns of [B, 2]": lambda o, b, v, logits, d: o.mean(
        o.square(logits - o.asarray(np.float32([1.0, 2.0])))
    ),
    "cross entropy by hand": lambda o, b, v, logits, d: (
        -o.mean(o.sum(o.one_hot(b["actions"], 2) * o.log_softmax(logits), axis=-1))
    ),
    "taken entry": lambda o, b, v, logits, d: o.mean(
        o.square(o.take_along_axis(logits, b["choice1"], -1) - b["t1"])
    ),
    "all pairs of rows": lambda o, b, v, logits, d: o.mean(
        o.square(o.expand_dims(v, 0) - o.expand_dims(b["t"], 1))
    ),
    "all pairs of rows of [B, 2]": lambda o, b, v, logits, d: o.mean(
        o.sum(o.expand_dims(logits, 0) * o.expand_dims(logits, 1), axis=-1)
    ),
    "rows against atoms": lambda o, b, v, logits, d: o.mean(
        o.square(o.expand_dims(v, -1) - o.asarray(np.linspace(-1, 1, 7, dtype=np.float32)))
    ),
    "rows against as many atoms": lambda o, b, v, logits, d: o.mean(
        o.square(o.expand_dims(v, -1) - o.asarray(np.linspace(-1, 1, ROWS, dtype=np.float32)))
    ),
    "masked mean": lambda o, b, v, logits, d: (
        o.sum(o.cast(b["w"] > 0.0, "float32") * o.square(v)) / (1.0 + o.sum(o.cast(b["w"] > 0.0, "float32")))
    ),
    "greatest of two": lambda o, b, v, logits, d: o.mean(o.maximum(o.square(v - b["t"]), o.square(v))),
    "where": lambda o, b, v, logits, d: o.mean(o.where(b["w"] > 0.0, v, -v)),
    "quantiles of [B, 2]": lambda o, b, v, logits, d: o.mean(
        o.abs(o.expand_dims(logits, 2) - o.reshape(b["t"], (-1, 1, 1)))
    ),
}


def learner_class(loss: Loss) -> type[ValueLearner]:
    class Custom(ValueLearner):
        def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
            logits = fwd_out[Columns.ACTION_DIST_INPUTS]
            distribution = self.module[module_id].get_train_action_dist_cls().from_logits(logits)
            return loss(self.ops, batch, fwd_out[Columns.VF_PREDS], logits, distribution)

    return Custom


def batch(rows: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    t, w, old = rng.normal(size=(3, rows)).astype(np.float32)
    wide = {
        "t1": t[:, None],
        "w1": w[:, None],
        "old1": old[:, None],
        "choice1": np.zeros((rows, 1), np.int64),
    }
    return {**ppo_batch(rows), "t": t, "w": w, "old": old, **wide}


def built(backend: str, loss: Loss, **training: Any) -> Any:
    compile_mode = training.pop("compile", "none")
    config = value_config(backend, learner_class=learner_class(loss), **training)
    return config.framework(backend, compile=compile_mode, device="cpu").build_learner()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_its_line_and_changes_nothing(backend: str, name: str) -> None:
    learner = built(backend, FAULTS[name])
    before = digest(learner.get_state())
    with pytest.raises(LossError, match=r"gives \[B, B\]|gives \[.*B.*B.*\]") as caught:
        learner.update(batch())
    assert digest(learner.get_state()) == before
    facts, said = caught.value.facts, str(caught.value)
    assert facts["module_id"] == DEFAULT_MODULE_ID
    assert repr(DEFAULT_MODULE_ID) in said
    assert "[B]" in facts["shapes"] or "[B, 1]" in facts["shapes"]
    assert facts["where"].startswith(f"{__file__}:")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_on_a_backend_that_answers_no_watch_operations(name: str) -> None:
    learner = built("numpy", FAULTS[name])
    before = digest(learner.get_state())
    with pytest.raises(LossError, match=r"gives \[.*B.*B.*\]") as caught:
        learner.update(batch())
    assert digest(learner.get_state()) == before
    assert caught.value.facts["where"].startswith(f"{__file__}:")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_loss_is_left_alone_on_a_backend_that_answers_no_watch_operations(name: str) -> None:
    learner = built("numpy", RIGHT[name])
    ops = learner.ops
    results = learner.update(batch())
    assert np.isfinite(results[DEFAULT_MODULE_ID]["total_loss"])
    assert learner.ops is ops, "what watched is gone"


OPERATORS_ALONE: dict[str, Loss] = {
    "squared error": lambda o, b, v, logits, d: ((v - b["t1"]) ** 2).mean(),
    "advantage": lambda o, b, v, logits, d: -(d.logp(b["actions"]) * b["w1"]).sum() / ROWS,
    "turned round": lambda o, b, v, logits, d: (b["t1"] - 2.0 * v).mean(),
    "compared": lambda o, b, v, logits, d: ((v > b["t1"]) * v).mean(),
    "function on the way": lambda o, b, v, logits, d: np.square(v - b["t1"]).mean(),
    "function": lambda o, b, v, logits, d: np.mean(np.maximum(v, b["t1"])),
    "method with a tensor": lambda o, b, v, logits, d: v.__sub__(b["t1"]).mean(),
    "before an error": lambda o, b, v, logits, d: o.mean(in_64_bits(v - b["t1"])),
}
"""Faults in losses that give none of their tensors to `learner.ops`."""


def in_64_bits(tensor: Any) -> Any:
    """A function that takes the backend's tensors alone."""
    assert type(tensor) is np.ndarray
    return tensor.astype(np.float64)


@pytest.mark.parametrize("name", OPERATORS_ALONE)
def test_a_fault_of_operators_alone_is_found_on_a_backend_that_answers_no_watch_operations(name: str) -> None:
    learner = built("numpy", OPERATORS_ALONE[name])
    before = digest(learner.get_state())
    with pytest.raises(LossError, match=r"gives \[B, B\]") as caught:
        learner.update(batch())
    assert digest(learner.get_state()) == before
    assert caught.value.facts["where"].startswith(f"{__file__}:")


def test_the_line_is_that_of_the_operator_not_of_the_op_that_gets_its_result() -> None:
    def loss(o: Any, b: Any, v: Any, logits: Any, d: Any) -> Any:
        error = v - b["t1"]
        error = 0.5 * error
        return o.mean(o.square(error))

    with pytest.raises(LossError) as caught:
        built("numpy", loss).update(batch())
    assert caught.value.facts["where"] == f"{__file__}:{loss.__code__.co_firstlineno + 1}"


def test_what_a_loss_keeps_and_reports_is_what_it_computed_itself() -> None:
    class Keeps(ValueLearner):
        def compute_loss_for_module(self, **given: Any) -> Any:
            self.kept = super().compute_loss_for_module(**given)
            self.register_metric(given["module_id"], "kept", self.kept)
            return self.kept

    learner = value_config("numpy", learner_class=Keeps).build_learner()
    results = learner.update(batch())[DEFAULT_MODULE_ID]
    assert isinstance(learner.kept, np.floating)
    assert results["kept"] == results["total_loss"]
    assert set(results) == set(learner.update(batch())[DEFAULT_MODULE_ID])


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_fault_behind_target_networks_is_found(algorithm: str) -> None:
    """A module, its copy and its distribution compute with plain tensors, and the loss goes on with watched ones."""
    actions = TWO_ACTIONS if algorithm == "dqn" else gym.spaces.Box(-1.0, 1.0, (1,))
    config = get_algorithm(algorithm)().framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]})
    config = config.environment(observation_space=OBSERVATIONS, action_space=actions)
    config = config.training(minibatch_size=None)
    base = config.get_learner_class()

    class AddsAFault(base):  # type: ignore[misc,valid-type]
        def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
            loss = super().compute_loss_for_module(
                module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
            )
            columns = {"obs": batch["new_obs"], "actions": batch["actions"]}
            later = self.targets[module_id].forward(columns)["qf_preds"]
            later = later[:, 0] if algorithm == "dqn" else later[0]
            return loss + (later - batch["t1"]).mean()

    rows = batch()
    rows |= {"new_obs": rows["obs"], "rewards": rows["t"], "terminateds": rows["t"] > 0.0}
    if algorithm == "sac":
        rows["actions"] = rows["t1"].clip(-0.9, 0.9)
    config.learners(learner_class=base).build_learner().update(rows)
    with pytest.raises(LossError, match=r"sub of \[B\] and \[B, 1\] gives \[B, B\]"):
        config.learners(learner_class=AddsAFault).build_learner().update(rows)


def test_the_log_says_what_a_backend_without_watch_operations_does_not_see(caplog: Any) -> None:
    with caplog.at_level("INFO", "plugrad"):
        built("numpy", RIGHT["squared error"]).update(batch())
    assert "backend numpy does not answer watch_operations" in caplog.text


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_loss_is_left_alone(backend: str, name: str) -> None:
    results = built(backend, RIGHT[name]).update(batch())
    assert np.isfinite(results[DEFAULT_MODULE_ID]["total_loss"])


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 51])
def test_a_fault_is_found_whatever_the_number_of_rows(backend: str, rows: int) -> None:
    with pytest.raises(LossError):
        built(backend, FAULTS["squared error"]).update(batch(rows))


@pytest.mark.parametrize("mode", ["complete_update", "forward_train"])
def test_compiled_updates_are_watched_too(backend: str, mode: str) -> None:
    with pytest.raises(LossError, match="gives"):
        built(backend, FAULTS["squared error"], compile=mode).update(batch())
    learner = built(backend, RIGHT["rows against as many atoms"], compile=mode)
    learner.update(batch())
    assert learner.update_mode.startswith(mode), learner.update_mode


def test_only_the_first_minibatch_is_watched_and_metrics_are_those_of_the_update(backend: str) -> None:
    calls = []

    class Counted(learner_class(RIGHT["rows against as many atoms"])):  # type: ignore[misc]
        def compute_loss_for_module(self, **arguments: Any) -> Any:
            calls.append(1)
            self.register_metric(
                arguments["module_id"], "rows", self.ops.sum(arguments["batch"]["t"] * 0.0 + 1.0)
            )
            return super().compute_loss_for_module(**arguments)

    config = value_config(backend, learner_class=Counted, minibatch_size=ROWS).framework(
        backend, compile="none"
    )
    learner = config.build_learner()
    results = learner.update(batch(3 * ROWS))
    assert results[DEFAULT_MODULE_ID]["rows"] == ROWS
    first = len(calls)
    learner.update(batch(3 * ROWS))
    assert first - (len(calls) - first) == {"torch": 1, "tf2": 2, "jax": 2}[backend], (
        "one look more, on tf2 traced, on jax tried out before"
    )


NATIVE = {
    "torch": {
        "functional": "torch.nn.functional.mse_loss(v, b['t1'])",
        "smooth l1": "torch.nn.functional.smooth_l1_loss(v, b['t1'])",
        "operators": "((v - b['t1']) ** 2).mean()",
        "distribution": "-torch.distributions.Normal(b['t1'], 1.0).log_prob(v).mean()",
    },
    "tf2": {
        "squared_difference": "tf.reduce_mean(tf.math.squared_difference(v, b['t1']))",
        "operators": "tf.reduce_mean((v - b['t1']) ** 2)",
        "where": "tf.reduce_mean(tf.where(b['w1'] > 0.0, v, 0.0))",
    },
    "jax": {
        "functions": "jnp.mean(jnp.square(v - b['t1']))",
        "operators": "((v - b['t1']) ** 2).mean()",
        "compared": "jnp.where(b['w1'] > 0.0 * v, v, 0.0).mean()",
    },
}


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_faults_in_the_frameworks_own_code_are_found(backend: str) -> None:
    names = {}
    if backend == "torch":
        names["torch"] = importlib.import_module("torch")
    elif backend == "jax":
        names["jnp"] = importlib.import_module("jax.numpy")
    else:
        names["tf"] = importlib.import_module("tensorflow")
    for code in NATIVE[backend].values():
        loss = eval(f"lambda o, b, v, logits, d: {code}", names)
        with pytest.raises(LossError, match="gives"):
            built(backend, loss).update(batch())

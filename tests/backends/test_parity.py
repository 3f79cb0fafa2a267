"""Three frameworks, one training: PPO from equal weights on each, held to each other and to float64.

Every learner is built and trained once and shared by the tests. A backend is left out only if PLUGRAD_TEST_BACKENDS
does not ask for it; one that is asked for and missing fails.
"""

from functools import cache
from itertools import combinations

import needs
import numpy as np
import pytest
from learning import flat, largest_difference, ppo_batch, ppo_config

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, Learner

P = DEFAULT_MODULE_ID
ALL = ("torch", "tf2", "jax")
BATCH = ppo_batch(512)
STEPS = 320

needs_all = needs.backends(*ALL)


def config(backend: str, **settings):
    """Clipping binds and the KL penalty counts; 2x64 networks."""
    return ppo_config(
        backend,
        **{
            "hiddens": (64, 64),
            "minibatch_size": 64,
            "num_epochs": STEPS * 64 // 512,
            "shuffle_batch_per_epoch": True,
            "grad_clip": 0.5,
            "use_kl_loss": True,
            "entropy_coeff": 0.01,
            "clip_param": 0.2,
            **settings,
        },
    )


@cache
def trained(backend: str) -> tuple[Learner, dict]:
    """A learner after one update of 320 Adam steps, and its results; on tf2 and jax that is one XLA program."""
    learner = config(backend).build_learner()
    return learner, learner.update(BATCH)


@needs_all
def test_after_320_steps_of_adam_every_parameter_is_the_same_within_1e_5():
    found = [trained(backend)[0].get_weights() for backend in ALL]
    start = config("numpy").build_learner().get_weights()
    for one in found:
        assert largest_difference(one, start) > 0.05
    for pair in combinations(found, 2):
        assert largest_difference(*pair) < 1e-5


OPTIMIZERS = [
    {"type": "adamw", "weight_decay": 0.1},
    {"type": "sgd", "momentum": 0.9, "nesterov": True},
    # At its usual epsilon of 1e-8 RMSprop's first steps divide the rounding of a gradient of zero by itself.
    {"type": "rmsprop", "eps": 1e-5, "momentum": 0.5},
]


@pytest.mark.cross_product(part=3)
@needs_all
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda settings: settings["type"])
def test_after_24_steps_of_the_others_every_parameter_is_the_same_within_1e_5(optimizer):
    found = []
    for backend in ALL:
        chosen = config(backend, optimizer=optimizer, num_epochs=3, lr=1e-3)
        learner = chosen.framework(backend, compile="none").build_learner()
        start = learner.get_weights()
        learner.update(BATCH)
        found.append(learner.get_weights())
        assert largest_difference(found[-1], start) > 1e-3
    for pair in combinations(found, 2):
        assert largest_difference(*pair) < 1e-5


@needs_all
@pytest.mark.parametrize("pair", [*combinations(ALL, 2)], ids="-".join)
def test_slots_coefficients_and_results_are_the_same_too(pair):
    (one, first), (other, second) = (trained(backend) for backend in pair)
    states = [flat(learner.get_state(["optimizer", "coefficients"])) for learner in (one, other)]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_allclose(value, states[1][name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert one.get_state(["counters", "streams"]) == other.get_state(["counters", "streams"])
    assert list(first) == list(second) == [P, ALL_MODULES]
    assert first[P] == pytest.approx(second[P], rel=1e-4, abs=1e-5)
    assert first[P]["gradients_default_optimizer_global_norm"] > 0.5


# --- the gradients of the first step ---

GRADIENT_BATCH = ppo_batch(64, seed=3)


class Recording(Learner):
    """Keeps the gradients of its one step, before and after clipping; not traced, so that they are values."""

    def postprocess_gradients(self, gradients_dict):
        clipped = super().postprocess_gradients(gradients_dict)
        self.recorded = [
            {ref: np.array(self._convert_to_numpy(gradient)) for ref, gradient in each.items()}
            for each in (gradients_dict, clipped)
        ]
        return clipped


@cache
def first_gradients(backend: str, settings: tuple[tuple[str, object], ...]) -> list[dict[str, np.ndarray]]:
    chosen = config(backend, **{"hiddens": (6, 5), "seed": 4, **dict(settings)})
    learner = chosen.learners(learner_class=Recording).build_learner()
    columns = learner._convert_batch_type(GRADIENT_BATCH)
    learner._update({P: columns})
    return learner.recorded


SETTINGS = {
    "all terms": (),
    "clipped ratios": (("clip_param", 0.01), ("use_kl_loss", False)),
    "capped value errors": (("vf_clip_param", 0.5),),
    "clipped by value": (("grad_clip_by", "value"), ("grad_clip", 0.01)),
    "clipped by norm": (("grad_clip_by", "norm"), ("grad_clip", 0.05)),
}


def relative_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of an entry, in units of its tensor's largest entry."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[ref] - other[ref]).max() / np.abs(other[ref]).max()) for ref in one)


@pytest.mark.parametrize("kind", SETTINGS)
def test_gradients_of_the_first_step_are_those_of_float64_finite_differences(backend, kind):
    found, expected = first_gradients(backend, SETTINGS[kind]), first_gradients("numpy", SETTINGS[kind])
    for mine, oracle in zip(found, expected, strict=True):
        assert len(mine) == 12
        assert relative_difference(mine, oracle) < 1e-5


ROUNDING = 64 * 2.0**-24
"""What gradients of 64 rows may differ by: XLA, and BLAS on each kind of processor, adds rows up in an order of its
own, and each sum rounds by 2**-24."""


@needs_all
@pytest.mark.parametrize("kind", SETTINGS)
def test_gradients_of_the_first_step_are_the_same_up_to_rounding(kind):
    found = {backend: first_gradients(backend, SETTINGS[kind])[0] for backend in ALL}
    for one, other in combinations(ALL, 2):
        assert relative_difference(found[one], found[other]) < ROUNDING


@needs_all
def test_gradients_of_the_first_step_of_wide_networks_are_the_same_up_to_rounding():
    wide = (("hiddens", (64, 64)), ("grad_clip", 1e-3))
    found = {backend: first_gradients(backend, wide) for backend in ALL}
    for one, other in combinations(ALL, 2):
        for stages in zip(found[one], found[other], strict=True):
            assert relative_difference(*stages) < ROUNDING


# --- checkpoints cross over ---


@pytest.mark.cross_product
@needs_all
@pytest.mark.parametrize(("source", "target"), [("torch", "tf2"), ("tf2", "jax"), ("jax", "torch")])
def test_training_goes_on_on_another_framework(tmp_path, source, target):
    settings = {"num_epochs": 5, "lr": [[0, 1e-3], [1024, 1e-4]]}
    first = config(source, **settings).framework(source, compile="none").build_learner()
    first.update(BATCH, timesteps={"num_env_steps_sampled_lifetime": 512})
    first.save_to_path(tmp_path)
    second = Learner.from_checkpoint(tmp_path, backend=target)
    assert second.config.backend == target
    assert largest_difference(second.get_weights(), first.get_weights()) == 0.0
    assert second.get_state(["counters", "streams"]) == first.get_state(["counters", "streams"])
    results = [
        learner.update(BATCH, timesteps={"num_env_steps_sampled_lifetime": 1024})[P]
        for learner in (first, second)
    ]
    assert largest_difference(second.get_weights(), first.get_weights()) < 1e-5
    assert results[0] == pytest.approx(results[1], rel=1e-4, abs=1e-5)
    assert results[1]["num_module_steps_trained_lifetime"] == 1024
    assert results[1]["default_optimizer_learning_rate"] == pytest.approx(1e-4)

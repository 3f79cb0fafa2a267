"""The groups that tests of one file share: starting learners takes longer than what is tested on them."""

import os
import time
from typing import Any

from learning import ppo_config

from plugrad import DEFAULT_MODULE_ID, Learner, LearnerGroup, RLModuleSpec

SLOW = "slow_to_begin"
"""A learner with a module of this name is as one that has to compile."""


def hiddens(backend: str) -> list[int]:
    """Of each network; finite differences take two forward passes per parameter."""
    return [2] if backend == "numpy" else [8]


def group_config(backend: str, **training: Any) -> Any:
    """PPO by plain gradient descent; shuffled minibatches, a coefficient that adapts and a schedule that moves."""
    settings = {
        "minibatch_size": 16,
        "num_epochs": 2,
        "shuffle_batch_per_epoch": True,
        "optimizer": {"type": "sgd"},
        "lr": [[0, 0.05], [10_000, 0.01]],
        "use_kl_loss": True,
        **training,
    }
    config = ppo_config(backend, hiddens=hiddens(backend), **settings)
    return config.learners(
        learner_class=FaultyLearner,
        num_cpus_per_learner=0.1,
        timeout_s=20,
        build_timeout_s=3600,  # what waits so long hangs: nobody who died or stands still is waited for like this
        max_restarts=1000,
    )


class FaultyLearner(Learner):
    """Does what its process was told: `foreach_learner(be, {rank: mood})`; its first update may take long."""

    has_begun = False

    def before_gradient_based_update(self, *, timesteps: Any) -> None:
        super().before_gradient_based_update(timesteps=timesteps)
        if SLOW in self.module and not self.has_begun:
            time.sleep(4.5)  # longer than a test's timeout_s of 3 and the second on top of it
        self.has_begun = True
        if mood() == "raise before":
            raise KeyError("before the first exchange")
        if mood() == "die":
            os._exit(1)
        if mood() == "not finite":
            _, optimizer = self.get_optimizers_for_module()[0]
            optimizer.parameters.assign(optimizer.parameters.numpy() * float("nan"))

    def after_gradient_based_update(self, *, timesteps: Any) -> None:
        super().after_gradient_based_update(timesteps=timesteps)
        if mood() == "raise after":
            raise ZeroDivisionError("after the last exchange")

    def add_module(self, **settings: Any) -> Any:
        if mood() == "raise before":
            raise KeyError("and the others have it")
        return super().add_module(**settings)


def mood() -> str | None:
    return os.environ.get("PLUGRAD_TEST_MOOD")


def be(learner: Learner, moods: dict[int, str]) -> None:
    rank = 0 if learner.collective is None else learner.collective.rank
    os.environ["PLUGRAD_TEST_MOOD"] = moods.get(rank, "")


def _give_back_its_module(group: LearnerGroup) -> None:
    present = set(group.get_weights())
    if DEFAULT_MODULE_ID not in present:
        spec = RLModuleSpec(model_config={"fcnet_hiddens": hiddens(group.config.backend)})
        group.add_module(module_id=DEFAULT_MODULE_ID, module_spec=spec)
    for module_id in present - {DEFAULT_MODULE_ID}:
        group.remove_module(module_id)


class Groups:
    """Groups by backend and size, made when first asked for and handed out as they were built."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], tuple[LearnerGroup, Any]] = {}

    def get(self, backend: str, size: int) -> LearnerGroup:
        if (backend, size) not in self._made:
            group = group_config(backend).learners(num_learners=size).build_learner_group()
            self._made[backend, size] = group, group.get_state()
        group, state = self._made[backend, size]
        _give_back_its_module(group)
        group.set_state(state)
        return group

    def close(self) -> None:
        for group, _ in self._made.values():
            group.shutdown()

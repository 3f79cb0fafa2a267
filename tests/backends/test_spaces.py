"""Every kind of observation with every kind of action, plain, masked and recurrent: each cell trains, saves and acts.

What an algorithm does not support is refused before anything is built.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning import flat
from random_spaces import ACTIONS, EPISODE, OBSERVATIONS, Cell, RandomSpaces, Step, has_image

import plugrad
from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.offline import save_episodes
from plugrad.policy import Policy
from plugrad.types import Array
from plugrad_bc import BCConfig
from plugrad_dqn import DQNConfig
from plugrad_offline import CQLConfig, IQLConfig
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig, TD3Config

KINDS_OF_ACTIONS = [each for each in ACTIONS if " of " not in each]
BOXES = ("Box", "n-d Box")
CELLS = [Cell(*names) for names in product(OBSERVATIONS, KINDS_OF_ACTIONS, ("plain", "mask", "LSTM"))]
NUM_ENVS = 2
REPLAY = {"minibatch_size": 4, "train_batch_size": 8, "num_steps_sampled_before_learning_starts": 8}
RECORDED = {"minibatch_size": 4, "train_batch_size": 8}
ALGORITHMS: dict[str, tuple[type[Any], dict[str, Any], tuple[str, ...]]] = {
    "PPO": (
        PPOConfig,
        {"train_batch_size": 16, "minibatch_size": None, "num_epochs": 1},
        tuple(KINDS_OF_ACTIONS),
    ),
    "BC": (BCConfig, RECORDED, tuple(KINDS_OF_ACTIONS)),
    "DQN": (DQNConfig, REPLAY, ("Discrete",)),
    "SAC": (SACConfig, REPLAY, ("Discrete", *BOXES)),
    "TD3": (TD3Config, REPLAY, BOXES),
    "CQL": (CQLConfig, RECORDED, BOXES),
    "IQL": (IQLConfig, RECORDED, BOXES),
}
"""Config class, settings, and the actions that an algorithm supports."""
MODES = {"jax": "auto"}
"""Eager JAX takes a minute for an image."""


def is_supported(name: str, cell: Cell) -> bool:
    """Whether an algorithm trains in a cell."""
    is_masked_box = cell.variant == "mask" and cell.action in BOXES
    is_recurrent = cell.variant == "LSTM" and name in ("CQL", "IQL")
    return cell.action in ALGORITHMS[name][2] and not is_masked_box and not is_recurrent


def config(name: str, cell: Cell, backend: str) -> Any:
    """Tiny networks, at least 8 steps of two environments."""
    cls, settings, _ = ALGORITHMS[name]
    lstm = {"use_lstm": True, "lstm_cell_size": 3} if cell.variant == "LSTM" else {}
    some = (
        cls()
        .environment(RandomSpaces, env_config=cell._asdict())
        .framework(backend, compile=MODES.get(backend, "none"))
    )
    images = {"conv_filters": [[2, 4, 4]]} if cell.observation.startswith("image") else {}
    some = some.rl_module(model_config={"fcnet_hiddens": [4], **images, **lstm}).debugging(seed=0)
    return some.env_runners(num_envs_per_env_runner=NUM_ENVS).training(lr=0.1, **settings)


def cells(*names: str) -> list[Any]:
    """All that these algorithms support."""
    found = [(name, cell) for name in names for cell in CELLS if is_supported(name, cell)]
    return [pytest.param(name, cell, id="-".join([name, *cell])) for name, cell in found]


@pytest.mark.cross_product(part=16)
@pytest.mark.parametrize(("name", "cell"), cells("PPO"))
def test_ppo_trains_and_acts_in_every_cell(name: str, cell: Cell, backend: str, tmp_path: Path) -> None:
    assert_trains_and_acts(config(name, cell, backend), cell, backend, tmp_path)


@pytest.mark.cross_product("name", "backend", part=16)
@pytest.mark.parametrize(("name", "cell"), cells("DQN", "SAC", "TD3"))
def test_off_policy_algorithms_train_and_act_in_what_they_support(
    name: str, cell: Cell, backend: str, tmp_path: Path
) -> None:
    assert_trains_and_acts(config(name, cell, backend), cell, backend, tmp_path)


@pytest.mark.cross_product("name", "backend", part=16)
@pytest.mark.parametrize(("name", "cell"), cells("BC", "CQL", "IQL"))
def test_offline_algorithms_train_and_act_in_what_they_support(
    name: str, cell: Cell, backend: str, tmp_path: Path
) -> None:
    data = record(cell, tmp_path / "episodes")
    assert_trains_and_acts(config(name, cell, backend).offline_data(input_=data), cell, backend, tmp_path)


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_other_cells_are_refused_before_anything_is_built(name: str, tmp_path: Path) -> None:
    """By code that knows no backend; a mask that only `info` has is refused when it is first seen."""
    listener = tmp_path / "listener.py"
    listener.write_text(
        "from plugrad import hookimpl\n@hookimpl\ndef learner_built(learner):\n    assert False\n"
    )
    for cell in CELLS:
        if not is_supported(name, cell):
            some = config(name, cell, "numpy")
            if some.is_offline:
                data = tmp_path / f"{cell.observation}-{cell.action}"
                plain = cell._replace(variant="plain")
                some = some.offline_data(input_=str(data) if data.exists() else record(plain, data))
            if cell.mask_source != "info":
                some = some.plugins(str(listener))
            with pytest.raises(ConfigError) as refused:
                build_and_reset(some)
            words = str(refused.value)
            assert any(each in words for each in what_is_refused(name, cell)), f"{cell}: {words}"


def build_and_reset(config: Any) -> None:
    algorithm = config.build_algo()
    algorithm.evaluate(num_episodes=1)


def what_is_refused(name: str, cell: Cell) -> list[str]:
    """What the sentence of a refusal must say."""
    sentences = {
        f"{name} needs a": cell.action not in ALGORITHMS[name][2],
        "leave use_lstm out of model_config": cell.variant == "LSTM",
        "an action mask needs discrete actions": cell.variant == "mask" and cell.action in BOXES,
    }
    return [words for words, is_wrong in sentences.items() if is_wrong]


# --- what holds in a cell ---


def assert_trains_and_acts(config: Any, cell: Cell, backend: str, folder: Path) -> None:
    """One update changes the weights; then the policies of all sources do what evaluation does."""
    algorithm = config.build_algo()
    before = flat(algorithm.learner_group.get_weights())
    algorithm.train()
    after = flat(algorithm.learner_group.get_weights())
    assert all(np.isfinite(each).all() for each in after.values())
    moved = [each for each in after if not np.array_equal(after[each], before[each])]
    assert moved == list(after) if isinstance(config, PPOConfig) else moved
    algorithm.save_to_path(folder / "checkpoint")
    algorithm.get_policy().save(folder / "policy.safetensors")
    seen = evaluate(algorithm)
    across = 1e-5 if has_image(cell.observation_space) else 0.0  # all others act in numpy everywhere
    policies = {
        "algorithm": (algorithm.get_policy(), 0.0),
        "checkpoint": (plugrad.load_policy(folder / "checkpoint"), 0.0),
        "backend": (plugrad.load_policy(folder / "checkpoint", backend=backend), 0.0),
        "numpy": (plugrad.load_policy(folder / "checkpoint", backend="numpy"), across),
        "file": (plugrad.load_policy(folder / "policy.safetensors"), across),
    }
    for source, (policy, allowed) in policies.items():
        assert_acts(source, policy, seen, cell, allowed)
    algorithm.stop()


def evaluate(algorithm: Algorithm) -> list[list[Step]]:
    """What the environments saw and were told in two episodes each, by vector step."""
    RandomSpaces.log = []
    algorithm.evaluate(num_episodes=NUM_ENVS)
    steps = RandomSpaces.log
    return [steps[n : n + NUM_ENVS] for n in range(0, 2 * EPISODE * NUM_ENVS, NUM_ENVS)]


def assert_acts(source: str, policy: Policy, seen: list[list[Step]], cell: Cell, allowed: float) -> None:
    """`predict` gives what evaluation told the environments, for batches and single observations."""
    state = None
    for time, steps in enumerate(seen):
        begins = np.full(NUM_ENVS, time % EPISODE == 0)
        batch = stack([step.observation for step in steps])
        actions, after = policy.predict(batch, state, begins, **masks(cell, steps))
        for env, step in enumerate(steps):
            assert_taken(row(actions, env), step.action, cell, allowed, f"{source}, step {time}")
        env, step = time % NUM_ENVS, steps[time % NUM_ENVS]
        own = None if state is None else {name: each[[env]] for name, each in state.items()}
        alone, _ = policy.predict(step.observation, own, begins[[env]], **masks(cell, [step], single=True))
        one_row = 1e-5 if has_image(cell.observation_space) else 1e-6
        assert_taken(alone, step.action, cell, one_row, f"{source}, step {time} alone")
        state = after


def assert_taken(found: Any, expected: Any, cell: Cell, allowed: float, words: str) -> None:
    """An action that `env.step` takes, and the one that evaluation took."""
    assert cell.action_space.contains(found), words
    assert_close(found, expected, allowed, words)


def masks(cell: Cell, steps: list[Step], *, single: bool = False) -> dict[str, Array]:
    """The argument of `predict` where observations hold no masks themselves."""
    if cell.mask_source not in ("info", "method"):
        return {}
    found = np.stack([np.asarray(step.mask) for step in steps])
    return {"action_masks": found[0] if single else found}


def stack(observations: list[Any]) -> Any:
    """A batch of observations in the structure of the space."""
    if isinstance(observations[0], dict):
        return {key: stack([each[key] for each in observations]) for key in observations[0]}
    if isinstance(observations[0], tuple):
        return tuple(stack(list(each)) for each in zip(*observations, strict=True))
    return np.stack(observations)


def row(actions: Any, n: int) -> Any:
    """One action of a batch."""
    return {key: each[n] for key, each in actions.items()} if isinstance(actions, dict) else actions[n]


def assert_close(found: Any, expected: Any, allowed: float, words: str) -> None:
    """Equal to the bit, or within a share of the largest number."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), words
        for key, each in expected.items():
            assert_close(found[key], each, allowed, f"{words}, {key}")
    else:
        atol = allowed * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=words)


def record(cell: Cell, folder: Path) -> str:
    """Episodes of a policy of PPO that has not learned."""
    algorithm = config("PPO", cell, "numpy").build_algo()
    data = algorithm.record(4, explore=True)
    spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
    return save_episodes(folder, data.episodes, **spaces)

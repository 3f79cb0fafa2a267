"""Each agent's spaces are compared with those of its module, at every door: by key right, or refused by path."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from tiny_runs import TINY, plugrad
from two_sides import _told, changed, drawn, keyed

from plugrad.algorithm import Algorithm
from plugrad.errors import SpaceMismatchError
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad_ppo import PPOConfig

NUMBERS, WIDE = Box(-1.0, 1.0, (2,), np.float32), Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = keyed(grip=Discrete(3), arm=NUMBERS)
Sides = dict[str, tuple[Any, Any]]
OWN: Sides = {
    "left": (keyed(speed=NUMBERS, noise=NUMBERS), ACTIONS),
    "right": (keyed(z=keyed(b=NUMBERS, a=WIDE), y=NUMBERS), ACTIONS),
}
"""Agents whose observations differ, so that each module has a spec with spaces of its own."""
ALIKE: Sides = dict.fromkeys(("left", "right"), OWN["right"])
"""Agents of equal spaces, which the config has in common for all modules."""
MODULES = {"left": "one", "right": "two"}
STEPS = 4


class Agents:
    """PettingZoo's parallel interface; observations are drawn by key, and a reward tells which part acted what.

    Attributes:
        spaces: `{agent: (observation space, action space)}` of the subclass.
    """

    possible_agents = ("left", "right")
    spaces: ClassVar[Sides]

    def observation_space(self, agent: str) -> Any:
        return self.spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        return self.spaces[agent][1]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.rng, self.steps = np.random.default_rng(seed), 0
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        self.steps += 1
        for agent, action in actions.items():
            assert self.spaces[agent][1].contains(action), action
        rewards = {agent: (1 + (agent == "right")) * _told(action) for agent, action in actions.items()}
        observations = self._observations()
        ended = dict.fromkeys(self.agents, self.steps == STEPS)
        unended, infos = dict.fromkeys(self.agents, False), {agent: {} for agent in self.agents}
        self.agents = [] if self.steps == STEPS else self.agents
        return observations, rewards, ended, unended, infos

    def _observations(self) -> dict[str, Any]:
        return {agent: drawn(self.spaces[agent][0], self.rng) for agent in self.possible_agents}


class AgentsOfRLlib(Agents):
    """The same with RLlib's interface."""

    observation_space: ClassVar[Any] = None
    action_space: ClassVar[Any] = None

    def __init__(self) -> None:
        self.observation_spaces = {agent: each for agent, (each, _) in self.spaces.items()}
        self.action_spaces = {agent: each for agent, (_, each) in self.spaces.items()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed)

    def step(self, actions: Mapping[str, Any]) -> Any:
        observations, rewards, ended, unended, infos = super().step(actions)
        done = all(ended.values())
        return observations, rewards, {**ended, "__all__": done}, {**unended, "__all__": False}, infos


INTERFACES = {"pettingzoo": Agents, "rllib": AgentsOfRLlib}


def environment(spaces: Sides, face: type[Agents] = Agents) -> type[Agents]:
    """A class of environments of these spaces, with a name that a checkpoint can have."""
    name = f"Made{len(_made)}"
    _made[name] = globals()[name] = type(name, (face,), {"spaces": spaces, "__module__": __name__})
    return _made[name]


_made: dict[str, type[Agents]] = {}
Current: type[Agents] = environment(OWN)
"""What `test_agents_of_two_sides:Current` names: a simulator whose code changes between two commands."""


def partner(sides: Sides, how: str, which: str) -> Sides:
    """Environments whose agent "right" differs in one way; permuted ones differ for all agents."""
    found = {}
    for agent, spaces in sides.items():
        others = [changed(each, how) for each in spaces]
        is_changed = how == "permuted" or agent == "right" or sides is ALIKE
        pair = [
            other if is_changed and name == which else own
            for name, own, other in zip(("observations", "actions"), spaces, others, strict=True)
        ]
        found[agent] = (pair[0], pair[1])
    return found


def ppo(env: Any, **settings: Any) -> PPOConfig:
    config = PPOConfig().framework("numpy").debugging(seed=0).environment(env, **settings)
    config = config.rl_module(model_config={"fcnet_hiddens": [1]})
    config = config.multi_agent(policies=["one", "two"], agent_to_module=MODULES)
    config = config.env_runners(num_envs_per_env_runner=2)
    return config.training(train_batch_size=8, minibatch_size=None, num_epochs=1)


@cache
def saved(env: Any) -> str:
    """A checkpoint of a trained PPO, which the tests only read; its folder is removed with the process."""
    folder = TemporaryDirectory()
    _folders.append(folder)
    algorithm = ppo(env).build_algo()
    try:
        algorithm.train()
        return algorithm.save_to_path(Path(folder.name) / "checkpoint")
    finally:
        algorithm.stop()


_folders: list[TemporaryDirectory[str]] = []


def played(algorithm: Algorithm, observations: Sides) -> Any:
    """Returns of greedy and of sampled episodes, and what policies answer."""
    try:
        greedy = algorithm.evaluate(2, seed=1)
        sampled = [episode.get_return() for episode in algorithm.play(2, seed=3, explore=True)]
        rng = np.random.default_rng(4)
        answers = [
            _told(algorithm.get_policy(module_id).predict(drawn(observations[agent][0], rng))[0])
            for agent, module_id in MODULES.items()
        ]
        algorithm.train()
        return np.array([greedy["episode_return_mean"], *sampled, *answers])
    finally:
        algorithm.stop()


def from_checkpoint(asked: Any, found: Any) -> Any:
    return played(Algorithm.from_checkpoint(saved(asked), env=found), found.spaces)


def restore_from_path(asked: Any, found: Any) -> Any:
    algorithm = ppo(found).build_algo()
    before = algorithm.learner_group.get_weights()
    try:
        algorithm.restore_from_path(saved(asked))
    except BaseException:
        after = algorithm.learner_group.get_weights()
        assert all((after[m][n] == before[m][n]).all() for m in before for n in before[m])
        algorithm.stop()
        raise
    return played(algorithm, found.spaces)


def restore_module(asked: Any, found: Any) -> Any:
    algorithm = ppo(found).build_algo()
    try:
        algorithm.restore_from_path(saved(asked), component="rl_module")
    except BaseException:
        algorithm.stop()
        raise
    return played(algorithm, found.spaces)


def build_with_specs(asked: Any, found: Any) -> Any:
    specs = {
        module_id: RLModuleSpec(observation_space=seen, action_space=acted)
        for module_id, (seen, acted) in zip(MODULES.values(), asked.spaces.values(), strict=True)
    }
    config = ppo(found).multi_agent(policies=None)
    return played(
        config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs)).build_algo(), found.spaces
    )


def evaluation_env(asked: Any, found: Any) -> Any:
    algorithm = ppo(asked).evaluation(evaluation_env=found).build_algo()
    return played(algorithm, found.spaces)


DOORS = {
    each.__name__: each
    for each in (from_checkpoint, restore_from_path, restore_module, build_with_specs, evaluation_env)
}
WAYS = [
    (how, which) for which in ("observations", "actions") for how in ("permuted", "renamed", "resized")
] + [
    ("retyped", "observations"),
    ("rebounded", "actions"),
]
PERMUTED, RENAMED = (environment(partner(OWN, how, "observations")) for how in ("permuted", "renamed"))
"""Made when the module is imported, so that processes of env runners find them by the same names."""
KEEPS_ITS_ORDER = ("restore_from_path", "restore_module")
"""Doors whose weights are of another order than the modules that are built already."""


ASKED = {
    (name, face): environment(sides, cls)
    for name, sides in (("own", OWN), ("alike", ALIKE))
    for face, cls in INTERFACES.items()
}


@cache
def with_itself(door: str, asked: type[Agents]) -> Any:
    """What a door gives where both sides are one."""
    return DOORS[door](asked, asked)


@pytest.mark.parametrize("face", INTERFACES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("how", "which"), WAYS)
@pytest.mark.parametrize("kind", ["own", "alike"])
def test_the_spaces_of_agents_are_taken_by_key_or_refused_by_path(
    kind: str, how: str, which: str, door: str, face: str
) -> None:
    asked = ASKED[kind, face]
    sides = asked.spaces
    found = environment(partner(sides, how, which), INTERFACES[face])
    if how == "permuted" and door not in KEEPS_ITS_ORDER:
        same = with_itself(door, asked)
        np.testing.assert_allclose(DOORS[door](asked, found), same, rtol=0, atol=1e-6)
        return
    place = "another order" if how == "permuted" else PLACES[how, which]
    if door in KEEPS_ITS_ORDER and how != "permuted":  # here the environment is asked, the checkpoint found
        place = (
            re.escape({"observations": "['z']", "actions": "['grip']"}[which])
            + f"|{place}|has 'z'|has 'grip'"
        )
    with pytest.raises(SpaceMismatchError, match=place) as refused:
        DOORS[door](asked, found)
    said = str(refused.value)
    if door not in KEEPS_ITS_ORDER:
        module_id, agent = ("one", "left") if sides is ALIKE else ("two", "right")
        assert f"module {module_id!r} (asked) and agent {agent!r}" in said
        assert found.__name__ in said


PLACES = {
    ("renamed", "observations"): r"lacks 'z'.*has 'other'",
    ("renamed", "actions"): r"lacks 'grip'.*has 'other'",
    ("resized", "observations"): r"\['z'\]\['b'\]: float \[2\] asked, float \[3\] found",
    ("resized", "actions"): r"\['grip'\]: Discrete\(3\) asked, Discrete\(4\) found",
    ("retyped", "observations"): r"\['z'\]\['b'\]: float \[2\] asked, uint8",
    ("rebounded", "actions"): r"\['grip'\]: Discrete\(3\) asked, Discrete\(3, start=2\) found",
}


TYPED = [
    "--multi_agent.policies=['one', 'two']",
    "--multi_agent.agent_to_module={left = 'one', right = 'two'}",
    "--env",
    f"{__name__}:Current",
    "--trust",
]


def eval_env(run: Path) -> Any:
    return plugrad("eval", run, *TYPED[2:], "--json", "--episodes=2", "--seed=1")


def eval_checkpoint(run: Path) -> Any:
    return eval_env(run / "checkpoints" / "last")


def resume(run: Path) -> Any:
    return plugrad("train", "--resume", run, "--trust", "--quiet", "--stop-timesteps=20")


COMMANDS = {each.__name__: each for each in (eval_env, eval_checkpoint, resume)}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("sides", [OWN, ALIKE], ids=["own", "alike"])
def test_commands_take_the_spaces_of_agents_by_key_or_refuse_them_by_path(
    sides: Sides, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_in(spaces: Sides) -> Any:
        monkeypatch.setitem(globals(), "Current", environment(spaces))
        return COMMANDS[command](run)

    run = tmp_path / "run"
    monkeypatch.setitem(globals(), "Current", environment(sides))
    plugrad("train", "ppo", *TINY, "--quiet", *TYPED[:4], "--stop-timesteps=8", "--out", run, code=0)
    for (how, which), place in PLACES.items():
        refused = run_in(partner(sides, how, which))
        assert refused.exit_code == 2, refused.output
        said = " ".join(refused.output.split())
        assert re.search(place, said), said
        assert re.search("agent '(left|right)'", said), said
    for which in ("observations", "actions"):
        if command == "resume":
            assert run_in(partner(sides, "permuted", which)).exit_code == 0
        else:
            one, two = (
                json.loads(run_in(each).output) for each in (sides, partner(sides, "permuted", which))
            )
            assert one["episode_return_mean"] == pytest.approx(two["episode_return_mean"], rel=0, abs=1e-6)


def test_env_runners_in_processes_compare_the_spaces_of_agents() -> None:
    path = saved(Current)

    def sampled(env: Any) -> Any:
        specs = Algorithm.from_checkpoint(path, env=Current)
        specs.stop()
        config = specs.config.environment(env).env_runners(num_env_runners=1)
        algorithm = config.build_algo()
        try:
            algorithm.restore_from_path(path, component="rl_module")
            return [each.get_return() for each in algorithm.sample(STEPS)]
        finally:
            algorithm.stop()

    np.testing.assert_allclose(sampled(PERMUTED), sampled(Current), rtol=0, atol=1e-6)
    with pytest.raises(SpaceMismatchError, match=r"module 'two'.*lacks 'z'"):
        sampled(RENAMED)


@pytest.mark.parametrize("sides", [OWN, ALIKE], ids=["own", "alike"])
def test_other_bounds_of_agents_are_taken_where_that_is_said(sides: Sides) -> None:
    wider = {
        agent: (seen, keyed(grip=Discrete(3), arm=Box(-2.0, 2.0, (2,), np.float32)))
        for agent, (seen, _) in sides.items()
    }
    env, path = environment(wider), saved(environment(sides))
    with pytest.raises(SpaceMismatchError, match=r"\['arm'\].*Only bounds differ.*allow_other_bounds=True"):
        Algorithm.from_checkpoint(path, env=env)
    algorithm = Algorithm.from_checkpoint(path, env=env, allow_other_bounds=True)
    try:
        assert algorithm.learner_group.foreach_learner(
            lambda learner: learner.module["two"].action_space["arm"].high.max()
        ) == [2.0]
        algorithm.train()
    finally:
        algorithm.stop()
    algorithm = ppo(env).build_algo()
    try:
        with pytest.raises(SpaceMismatchError, match="Only bounds differ"):
            algorithm.restore_from_path(path)
        algorithm.restore_from_path(path, allow_other_bounds=True)
    finally:
        algorithm.stop()


def test_an_agent_that_is_mapped_to_a_module_of_other_spaces_later_is_refused() -> None:
    algorithm = ppo(environment(OWN)).build_algo()
    try:
        algorithm.env_runner.config = algorithm.config.multi_agent(
            agent_to_module={"left": "two", "right": "one"}
        )
        with pytest.raises(
            SpaceMismatchError, match=r"agent 'left'.*module 'two'|module 'two'.*agent 'left'"
        ):
            algorithm.sample()
    finally:
        algorithm.stop()


def test_a_module_without_agents_may_have_any_spaces() -> None:
    specs = {
        "one": RLModuleSpec(observation_space=ALIKE["left"][0], action_space=ACTIONS),
        "two": RLModuleSpec(observation_space=WIDE, action_space=Discrete(7)),
    }
    config = ppo(environment(ALIKE)).multi_agent(
        policies=None, agent_to_module=dict.fromkeys(MODULES, "one"), policies_to_train=["one"]
    )
    config = config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    algorithm = config.build_algo()
    results = algorithm.train()
    algorithm.stop()
    assert results["num_env_steps_sampled_lifetime"] == 8


BYTES = Box(0, 200, (3,), np.uint8)


@pytest.mark.parametrize(
    "sides", [OWN, dict.fromkeys(("left", "right"), (BYTES, ACTIONS))], ids=["own", "bytes"]
)
def test_agents_whose_numbers_are_normalised_are_recorded_as_their_environment_gives_them(
    sides: Sides,
) -> None:
    if sides is OWN:
        sides = {**OWN, "right": (keyed(z=BYTES, y=NUMBERS), ACTIONS)}
    algorithm = ppo(environment(sides)).env_runners(normalize_observations=True).build_algo()
    try:
        algorithm.train()
        data = algorithm.record(1, module_id="two")
        assert data.observation_space == sides["right"][0]
        assert data.episodes[0].observations.max() > 1.0
    finally:
        algorithm.stop()

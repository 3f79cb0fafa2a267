"""Run directories and checkpoints as an attacker would make them: every hash fits, and nothing is to be believed.

`cases(seed, number)` gives so many of them. Each spoils a copy of a good run or checkpoint, and says which door must
refuse it. Written without plugrad's own code, and without pytest: a process that watches the doors imports it too.
"""

import json
import os
import random
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import malicious_checkpoints
import tomli_w

Spoil = Callable[[Path], object]
CHECKPOINT_DOORS = {
    "learner": ("Learner", "LearnerGroup"),
    "ppo": ("Algorithm", "eval"),
    "dqn": ("Algorithm", "eval"),
}
RUN_DOORS = ("eval", "resume", "config")


@dataclass(frozen=True)
class Case:
    """One attack.

    Args:
        name: what is spoiled, and how.
        good: the folder that a copy is made of: "learner", "ppo" and "dqn" are checkpoints, "run" is a run directory.
        door: who opens it.
        spoil: changes the copy.
    """

    name: str
    good: str
    door: str
    spoil: Spoil


def cases(seed: int, number: int) -> Iterator[Case]:
    """So many cases, drawn alike from all families."""
    rng = random.Random(seed)
    families = [_settings_of_checkpoint, _settings_of_run, _code, _state, _data, _manifest, _crafted, _files]
    for n in range(number):
        yield families[n % len(families)](rng)


# --- settings ---------------------------------------------------------------------------------------------------------


def box(*shape: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"__space__": "Box", "low": 0, "high": 1, "shape": list(shape), "dtype": dtype}


def _deep(levels: int) -> dict[str, Any]:
    space: dict[str, Any] = box(1)
    for _ in range(levels):
        space = {"__space__": "Tuple", "spaces": [space]}
    return space


def _many_specs(number: int) -> dict[str, Any]:
    spec = {"__spec__": "RLModuleSpec", "observation_space": box(4), "action_space": box(1)}
    return {"__spec__": "MultiRLModuleSpec", "rl_module_specs": {f"p{i}": spec for i in range(number)}}


def _settings(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A section, and settings in it that no machine can hold, or that do not describe what was saved."""
    size = rng.choice([10**5, 10**6, 10**9, 10**12, 10**18, 10**30])
    width = rng.randrange(3, 2000)
    kind = rng.choice(["float32", "uint8", "float64", "int64"])
    model = rng.choice(
        [
            {"fcnet_hiddens": [size, size]},
            {"fcnet_hiddens": [width] * rng.randrange(100, 20_000)},
            {"fcnet_hiddens": [width]},
            {"fcnet_hiddens": [rng.choice([-1, 0, "x", 1e9, None, [2]])]},
            {"use_lstm": True, "lstm_cell_size": size},
            {"conv_filters": [[size, 4, 2]]},
            {"vf_share_layers": True, "fcnet_hiddens": [width]},
            {"fcnet_hiddens": [[[[[[1]]]]]]},
            {"unknown": size},
            {"fcnet_activation": "x" * 100_000},
        ]
    )
    spaces: list[dict[str, Any]] = [
        {"observation_space": box(rng.randrange(2000, 90_000), rng.randrange(2000, 90_000), dtype=kind)},
        {"observation_space": box(size, dtype=kind)},
        {"observation_space": box(rng.randrange(100, 1000), rng.randrange(100, 1000), dtype=kind)},
        {"observation_space": box(*[rng.randrange(2, 60)] * rng.randrange(6, 20))},
        {"observation_space": {"__space__": "Discrete", "n": size, "start": 0}},
        {"observation_space": {"__space__": "MultiBinary", "n": size}},
        {"observation_space": {"__space__": "MultiDiscrete", "nvec": [10**9] * 3, "start": [0] * 3}},
        {"observation_space": _deep(rng.randrange(2, 9))},
        {"observation_space": {"__space__": rng.choice(["Box", "os:system", 3, "Graph"])}},
        {"observation_space": box(rng.choice(["x", -1, 2**70, None, 1.5]))},
    ]
    space = rng.choice(spaces) | {"action_space": {"__space__": "Discrete", "n": 2, "start": 0}}
    action = {"action_space": rng.choice([box(size), {"__space__": "Discrete", "n": size, "start": 0}])}
    action["observation_space"] = box(4)
    many = rng.choice([10, 1000, 60_000])
    return rng.choice(
        [
            ("environment", space),
            ("environment", space),
            ("environment", action),
            ("rl_module", {"model_config": model}),
            ("rl_module", {"model_config": model}),
            ("rl_module", {"rl_module_spec": _many_specs(many // 20 or 2)}),
            ("rl_module", {"rl_module_spec": rng.choice([3, "x", [1], {"a": 1}])}),
            (
                "rl_module",
                {"algorithm_config_overrides_per_module": {f"p{i}": {"lr": "x"} for i in range(many)}},
            ),
            ("multi_agent", {"policies": [f"p{i}" for i in range(many)]}),
            ("learners", {"num_learners": rng.choice([10**4, 10**9, -1])}),
            ("env_runners", {"num_envs_per_env_runner": rng.choice([10**5, 10**9, 0])}),
            ("env_runners", {"frame_stack": rng.choice([10**5, 10**9, 0])}),
            ("env_runners", {"atari": {rng.choice(["screen_size", "noop_max", "frame_skip"]): 10**9}}),
            (
                "env_runners",
                {
                    "env_wrappers": rng.choice(
                        [["os:system"], [["os:system", {"command": "true"}]], "x", [[]]]
                    )
                },
            ),
            ("training", {"lr": rng.choice(["x", -1, [[0, 1]] * 1000, {"a": 1}])}),
            ("training", {"optimizer": rng.choice([{"type": "x"}, {"type": ["adam"]}, 7])}),
            ("training", {rng.choice(["unknown", "__class__", ""]): size}),
            ("framework", {"backend": rng.choice(["touch", "os:system", "../x", "x" * 10_000])}),
            ("framework", {"compile": rng.choice(["x", 3])}),
        ]
    )


def _settings_of_checkpoint(rng: random.Random) -> Case:
    good = rng.choice(list(CHECKPOINT_DOORS))
    section, settings = _settings(rng)
    if good == "learner" and section in ("env_runners", "learners"):
        section, settings = "environment", {"observation_space": box(10**9), "action_space": box(1)}
    change = lambda fields: fields["metadata"]["config"].update(settings)  # noqa: E731
    return Case(
        f"checkpoint of {good}: {str(settings)[:150]}",
        good,
        rng.choice(CHECKPOINT_DOORS[good]),
        lambda path: malicious_checkpoints.seal(newest(path), change),
    )


def _settings_of_run(rng: random.Random) -> Case:
    section, settings = _settings(rng)
    if section in ("learners", "multi_agent") or "policies" in settings:
        section, settings = "environment", {"env": "Pendulum-v1"}  # its spaces are not those that were saved
    # Who judges a policy has no remote learners; --config has no weights to compare with.
    door = rng.choice(["eval", "resume"])
    return Case(
        f"config.toml: {str(settings)[:150]}", "run", door, partial(_write_settings, section, settings)
    )


def _write_settings(section: str, settings: dict[str, Any], run: Path) -> None:
    config = tomllib.loads((run / "config.toml").read_text())
    config.setdefault(section, {}).update(_without_none(settings))
    (run / "config.toml").write_text(tomli_w.dumps(config))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_none(each) for each in value]
    return "none" if value is None else value


# --- code -------------------------------------------------------------------------------------------------------------

CODE = ["os:system", "subprocess:Popen", "canary:call", "canary:Class", "builtins:eval", "no_such_module:x"]


def _code(rng: random.Random) -> Case:
    code = rng.choice(CODE)
    spec = {"__spec__": "RLModuleSpec", "module_class": code}
    section, settings = rng.choice(
        [
            ("environment", {"env": code, "env_config": {"command": "touch sang"}}),
            ("learners", {"learner_class": code}),
            ("learners", {"learner_connector": code}),
            ("rl_module", {"rl_module_spec": spec}),
        ]
    )
    if rng.random() < 0.5:
        door = rng.choice(RUN_DOORS)
        return Case(f"{door}: {settings}", "run", door, partial(_write_settings, section, settings))
    change = lambda fields: fields["metadata"]["config"].update(settings)  # noqa: E731
    return Case(
        f"checkpoint: {settings}",
        "ppo",
        "Algorithm",
        lambda path: malicious_checkpoints.seal(newest(path), change),
    )


# --- states -----------------------------------------------------------------------------------------------------------

WRITTEN = [None, -1, 1e30, True, "", "x" * 1000, [], [[[]]] * 1000, {}, {"a": {"b": [1]}}, {"$float": "nan"}]


def _state(rng: random.Random) -> Case:
    """A part of the state is missing, or something else."""
    good = rng.choice(list(CHECKPOINT_DOORS))
    parts = [["rl_module"], ["rl_module", "default_policy"], ["optimizer"], ["streams"], ["coefficients"]]
    places = [["streams", "generators"], ["streams", "seed"], ["counters"]]
    if good != "learner":
        own = [["env_runner"], ["env_runner", "total_steps"], ["training_iteration"], ["learner"]]
        parts = [["learner", *part] for part in parts] + own
        places = [["learner", *place] for place in places]
    where, what = rng.choice(parts + places), rng.choice([each for each in WRITTEN if each not in (True, -1)])
    if where[-1] in ("counters", "generators", "env_runner") and isinstance(what, dict):
        what = "x"  # these come and go
    door = rng.choice(CHECKPOINT_DOORS[good])
    return Case(f"{good} {'/'.join(where)} is {str(what)[:50]}", good, door, partial(_put, where, what))


def _put(where: list[str], what: Any, path: Path) -> None:
    save = newest(path)
    state = json.loads((save / "data.json").read_bytes())
    inner = state
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = what
    malicious_checkpoints.replace_file("data.json", json.dumps(state).encode(), save)


# --- bombs ------------------------------------------------------------------------------------------------------------


def _bomb(rng: random.Random, most: int) -> tuple[str, bytes]:
    number = most // 4
    return rng.choice(
        [
            ("lists", b'{"x":[' + b"[]," * number + b"[]]}"),
            ("objects", b'{"x":[' + b"{}," * number + b"{}]}"),
            ("texts", b'{"x":[' + b'"",' * number + b'""]}'),
            ("keys", ("{" + ",".join(f'"{i}":1' for i in range(most // 12)) + "}").encode()),
            ("depth", b'{"x":' * 100_000),
            ("brackets", b"[" * most),
            ("a long text", b'{"x":"' + b"x" * (most - 10) + b'"}'),
            ("an open text", b'{"x":"' + b'\\"' * (most // 2 - 10)),
            ("a number", b'{"x":' + b"9" * 100_000 + b"}"),
            ("an integer", b'{"x":{"$int":"0x' + b"f" * 100_000 + b'"}}'),
            ("markers", b'{"x":[' + b'{"$float":"nan"},' * (most // 20) + b"{}]}"),
            ("levels", b'{"x":[' + (b"[" * 25 + b"]" * 25 + b",") * (most // 60) + b"{}]}"),
        ]
    )


def _data(rng: random.Random) -> Case:
    good = rng.choice(list(CHECKPOINT_DOORS))
    most = rng.choice([10_000] * 6 + [100_000] * 3 + [7_800_000])
    name, data = _bomb(rng, most)
    door = rng.choice((*CHECKPOINT_DOORS[good],))
    return Case(f"data.json of {most}: {name}", good, door, lambda path: _only_data(data, newest(path)))


def _only_data(data: bytes, save: Path) -> None:
    malicious_checkpoints.put(save / "data.json", data)
    malicious_checkpoints.sign(save, lambda fields: fields["files"].pop("m0001.safetensors", None))


def _manifest(rng: random.Random) -> Case:
    good = rng.choice(list(CHECKPOINT_DOORS))
    most = rng.choice([10_000] * 6 + [100_000] * 3 + [2_000_000])
    name, data = _bomb(rng, most)
    body = (
        b'{"format":"plugrad checkpoint","format_version":1,"plugrad_version":"0","files":{},"metadata":'
        + data
    )

    def spoil(path: Path) -> None:
        malicious_checkpoints.put(newest(path) / "metadata.json", malicious_checkpoints.sealed(body + b",\n"))

    door = rng.choice((*CHECKPOINT_DOORS[good], "inspect"))
    return Case(f"metadata.json of {most}: {name}", good, door, spoil)


CRAFTED = [name for name in malicious_checkpoints.CRAFTED if not name.endswith("beside")]


def _crafted(rng: random.Random) -> Case:
    """Damage of the files themselves, which every door must find."""
    good, name = rng.choice(list(CHECKPOINT_DOORS)), rng.choice(CRAFTED)
    doors = CHECKPOINT_DOORS[good] + (() if "as metadata" in name or "as data" in name else ("inspect",))
    return Case(
        f"{good}: {name}",
        good,
        rng.choice(doors),
        lambda path: malicious_checkpoints.CRAFTED[name](newest(path)),
    )


# --- files of a run ---------------------------------------------------------------------------------------------------

TEXTS = [
    ("not UTF-8", b"\xff\xfe\x00"),
    ("deep lists", b"x = " + b"[" * 100_000),
    ("deep tables", b"x = " + b"{a=" * 100_000),
    ("a long key", b"a." * 200_000 + b"a = 1"),
    ("quoted parts", b'"a".' * 100_000 + b"a = 1"),
    ("many lists", b"x = [" + b"[]," * 200_000 + b"]"),
    ("many keys", b"[environment.env_config]\n" + b"".join(b"k%d=1\n" % i for i in range(80_000))),
    ("a long file", b"#" * 2_000_000),
    ("no TOML", b"{}"),
    ("an unknown algorithm", b'algorithm = "no_such"'),
    ("a number for a section", b"training = 3"),
    ("a huge number", b"x = " + b"9" * 100_000),
    ("nul bytes", bytes(1000)),
]
LINES = [
    ("a list", b"[1,2]\n"),
    ("no counts", b'{"a":1}\n'),
    ("not UTF-8", b'{"\xff":1}\n'),
    ("deep", b"[" * 100_000 + b"\n"),
    ("a text", b'{"training_iteration":"x","num_env_steps_sampled_lifetime":1}\n'),
    ("infinity", b'{"training_iteration":"inf","num_env_steps_sampled_lifetime":1}\n'),
    ("an object", b'{"training_iteration":{},"num_env_steps_sampled_lifetime":1}\n'),
    ("a number", b"3\n"),
    ("a long line", b'{"x":"' + b"x" * 2_000_000 + b'"}\n'),
    ("torn in the middle", b'{"training_it\n{"training_iteration":1,"num_env_steps_sampled_lifetime":1}\n'),
    ("nul bytes", bytes(1000) + b"\n"),
]


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def link_to_zero(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def _files(rng: random.Random) -> Case:
    plant = rng.choice([fifo, directory, link_to_zero, loop])
    text, line = rng.choice(TEXTS), rng.choice(LINES)
    return rng.choice(
        [
            Case(
                f"config.toml: {text[0]}",
                "run",
                rng.choice(RUN_DOORS),
                lambda run: malicious_checkpoints.put(run / "config.toml", text[1]),
            ),
            Case(
                f"config.toml: {plant.__name__}",
                "run",
                rng.choice(RUN_DOORS),
                lambda run: plant(run / "config.toml"),
            ),
            Case(
                f"metrics.jsonl: {line[0]}",
                "run",
                rng.choice(["resume", "plot"]),
                lambda run: malicious_checkpoints.put(run / "metrics.jsonl", line[1]),
            ),
            Case(
                f"metrics.jsonl: {plant.__name__}",
                "run",
                rng.choice(["resume", "plot"]),
                lambda run: plant(run / "metrics.jsonl"),
            ),
            Case(
                f"checkpoints: {plant.__name__}",
                "run",
                rng.choice(["eval", "resume", "inspect"]),
                lambda run: _in_place_of_checkpoints(run, plant),
            ),
        ]
    )


def _in_place_of_checkpoints(run: Path, plant: Spoil) -> None:
    (run / "checkpoints").rename(run / "elsewhere")
    plant(run / "checkpoints")


def newest(checkpoint: Path) -> Path:
    """The save that a checkpoint is opened at."""
    return max(checkpoint.glob("save-*"), key=lambda save: int(save.name.partition("-")[2]))

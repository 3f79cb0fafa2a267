"""The two helpers that RLlib's own examples begin and end with: options of a command line, and an experiment.

An experiment is a loop of `train()`. Where the program asks for the best of its trials, it is a Tuner of Ray Tune.
"""

import libcst as cst

from plugrad_rllib.migrate.code import argument, as_one, code, expression_statement, name_of
from plugrad_rllib.migrate.program import Program
from plugrad_rllib.migrate.tuning import HELPER

_OPTIONS = {
    "--algo": 'default="PPO"',
    "--env": "default=None",
    "--num-agents": "default=0, type=int",
    "--num-learners": "default=0, type=int",
    "--num-env-runners": "default=0, type=int",
    "--stop-iters": "default=10, type=int",
    "--stop-timesteps": "default=100000, type=int",
    "--stop-reward": "default=0.0, type=float",
}
"""Options that each program with `add_rllib_example_script_args` gets."""
_FLAG = 'action="store_true"'
_OTHER_OPTIONS = {
    **dict.fromkeys(("--as-release-test", "--as-test", "--evaluation-parallel-to-training"), _FLAG),
    **dict.fromkeys(("--checkpoint-at-end", "--local-mode", "--no-tune", "--old-api-stack"), _FLAG),
    **dict.fromkeys(("--checkpoint-freq", "--num-aggregator-actors-per-learner"), "default=0, type=int"),
    **dict.fromkeys(("--evaluation-interval", "--evaluation-num-env-runners"), "default=0, type=int"),
    **dict.fromkeys(("--num-cpus", "--num-gpus"), "default=0, type=int"),
    **dict.fromkeys(("--num-cpus-per-learner", "--num-gpus-per-learner"), "default=0, type=float"),
    **dict.fromkeys(("--log-level", "--output"), "default=None"),
    **dict.fromkeys(("--wandb-key", "--wandb-project", "--wandb-run-name"), "default=None"),
    "--evaluation-duration": "default=10, type=int",
    "--evaluation-duration-unit": 'default="episodes"',
    "--framework": 'default="torch"',
    "--max-concurrent-trials": "default=None, type=int",
    "--num-envs-per-env-runner": "default=1, type=int",
    "--num-samples": "default=1, type=int",
    "--seed": "default=None, type=int",
    "--verbose": "default=2, type=int",
}
"""Options of RLlib's helper that a program gets if it reads them."""
_LOOP = """algorithm = {config}.build_algo()
for _ in range({args}.stop_iters):
    results = algorithm.train()
    print(results["num_env_steps_sampled_lifetime"], results.get("env_runners/episode_return_mean"))
algorithm.stop()
"""
_TUNER = """{target} = tune.Tuner(
    trainable({config}),
    param_space={{{searched}}},
    run_config=tune.RunConfig(
        stop={stop},
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
    ),
).fit()
"""
_STOP = """{{
            "training_iteration": {args}.stop_iters,
            "num_env_steps_sampled_lifetime": {args}.stop_timesteps,
            "env_runners/episode_return_mean": {args}.stop_reward,
        }}"""
_OF_TUNER = ("stop", "keep_ray_up", "success_metric")
"""Arguments of the helper that a Tuner has, or that only say what a test of RLlib's expects."""
Statements = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]


def rewrite(program: Program, node: cst.SimpleStatementLine, line: int) -> Statements | None:
    """RLlib's `add_rllib_example_script_args` and `run_rllib_example_script_experiment` in plain Python.

    Args:
        program: what is known of the file.
        node: a part of its tree.
        line: where it stood, from 1.

    Returns:
        What takes its place; None: it stays.
    """
    (statement,) = node.body
    is_assigned = isinstance(statement, cst.Assign)
    value = statement.value if isinstance(statement, cst.Assign) else expression_statement(node)
    if not isinstance(value, cst.Call):
        return None
    name = program.imported.get(name_of(value.func) or "")
    targets = [as_one(each.target) for each in statement.targets] if isinstance(statement, cst.Assign) else []
    if name == "add_rllib_example_script_args" and is_assigned:
        return _parser(program, node, targets[0], value)
    if name != HELPER:
        return None
    is_grid = any(each in program.grids for each in targets)
    return (_tuner if is_grid else _loop)(program, node, targets, value, line)


def _parser(
    program: Program, node: cst.SimpleStatementLine, target: str, call: cst.Call
) -> cst.FlattenSentinel[cst.BaseStatement]:
    program.needed.add(("argparse", "ArgumentParser", "ArgumentParser"))
    lines = [f"{target} = ArgumentParser()\n"]
    given = {
        f"--stop-{each.keyword.value.removeprefix('default_')}": code(each.value)
        for each in call.args
        if each.keyword is not None
    }
    others = {
        option: how
        for option, how in _OTHER_OPTIONS.items()
        if option[2:].replace("-", "_") in program.attributes and option not in program.own_options
    }
    for option, how in (_OPTIONS | others).items():
        default, *kind = how.split(", ")
        how = ", ".join([f"default={given[option]}" if option in given else default, *kind])
        lines.append(f'{target}.add_argument("{option}", {how})\n')
    return _statements("".join(lines), node)


def _loop(
    program: Program, node: cst.SimpleStatementLine, targets: list[str], call: cst.Call, line: int
) -> cst.FlattenSentinel[cst.BaseStatement]:
    config, args = _config_and_args(program, call)
    given = ", ".join(code(each).rstrip(",") for each in call.args[2:])
    if given:
        said = f"{HELPER}({given}): the loop ends after --stop-iters iterations alone"
        program.notes.add(line, said, "docs/tune.md")
    for each in targets:
        program.notes.add(line, f"{each}: the last results, no grid of Ray Tune's", "docs/tune.md")
    text = _LOOP.format(config=config, args=args)
    return _statements(text + "".join(f"{each} = results\n" for each in targets if each != "results"), node)


def _tuner(
    program: Program, node: cst.SimpleStatementLine, targets: list[str], call: cst.Call, line: int
) -> cst.FlattenSentinel[cst.BaseStatement]:
    program.needed.add(("plugrad_rllib.tune", "trainable", "trainable"))
    number = program.registering["tune"]
    if "tune" not in program.others or (number and number == len(program.uses.get("tune", ()))):
        program.needed.add(("ray", "tune", "tune"))  # the program's own import, if it had one, is gone
    config, args = _config_and_args(program, call)
    stop = argument(call, "stop")
    others = [each for each in call.args[2:] if each.keyword is None or each.keyword.value not in _OF_TUNER]
    if others:
        said = f"{HELPER}({', '.join(code(each).rstrip(',') for each in others)}): give it to the Tuner"
        program.notes.add(line, said, "docs/ray-tune.md")
    text = _TUNER.format(
        target=" = ".join(targets),
        config=config,
        searched=", ".join(f'"{name}": {value}' for name, value in program.searched.items()),
        stop=_STOP.format(args=args) if stop is None else code(stop.value),
    )
    return _statements(text, node)


def _config_and_args(program: Program, call: cst.Call) -> tuple[str, str]:
    """The config, with the environment of `--env` where the program names none, as RLlib's helper does; the options."""
    config, *options = (as_one(each.value) for each in call.args[:2])
    args = options[0] if options else "args"
    return (config if program.sets_env else f"{config}.environment({args}.env)"), args


def _statements(text: str, node: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.BaseStatement]:
    first, *rest = (each for each in cst.parse_module(text).body if isinstance(each, cst.BaseStatement))
    return cst.FlattenSentinel([first.with_changes(leading_lines=node.leading_lines), *rest])

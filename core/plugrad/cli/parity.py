"""`plugrad parity`: the same steps on two backends, and the first difference between them."""

import json
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.batch import Batch, Rows, by_module
from plugrad.cli.doctor import default_first
from plugrad.cli.exits import FAILED, debug_option
from plugrad.cli.options import apply_settings
from plugrad.cli.settings_command import AlgorithmChoice, SettingsCommand, algorithm_choice
from plugrad.cli.train_loop import env_name
from plugrad.cli.train_request import DEFAULT_ENV, DEFAULT_SEED
from plugrad.config.serialize import encode
from plugrad.errors import ConfigError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.hooks.plugin_records import PluginRecord, list_plugins
from plugrad.learner import Learner
from plugrad.learner.update.minibatches import as_one_minibatch
from plugrad.offline import save_episodes
from plugrad.results import flatten
from plugrad.sampling import make_env_runner
from plugrad.sampling.evaluation import evaluation_settings, sample_episodes
from plugrad.types import Array, ModuleID

# --- takes the same steps on two backends and compares what each step computes ---
#
# A plugin that wraps the hooks of a step records it.

Stages = dict[str, dict[str, Array]]
"""What a step computes: `{stage: {name: array}}`, in order."""
FORWARD, LOSSES, GRADIENTS = "forward", "losses", "gradients"
APPLIED, PARAMETERS = "applied gradients", "parameters"
_RELATIVE = (GRADIENTS, APPLIED)
"""Stages whose differences are relative to their largest entry, however small; in the others at least to 1."""


class Observer:
    """A listener that records the gradients of an uncompiled step.

    It has nothing inside of a loss: under autograd a backend need not give values.

    Attributes:
        gradients: of the last step, by stage.
    """

    def __init__(self) -> None:
        self.gradients: Stages = {}

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Mapping[str, Any]
    ) -> Generator[None, Any, Any]:
        """Record the gradients before and after all postprocessing. See `LearnerSpec.postprocess_gradients`."""
        before = _arrays(learner, gradients_dict)
        gradients = yield
        self.gradients = {GRADIENTS: before, APPLIED: _arrays(learner, gradients)}
        return gradients


@dataclass(frozen=True)
class Difference:
    """The largest difference between two backends in a stage of a step.

    Attributes:
        step: from 1; 0 is before the first step.
        stage: the stage.
        name: module and column, module, or parameter.
        index: of the entry.
        values: of the entry, on both backends.
        difference: absolute difference over the largest entry of the stage; infinite where names or shapes differ.
    """

    step: int
    stage: str
    name: str
    index: tuple[int, ...]
    values: tuple[float | None, float | None]
    difference: float


@dataclass(frozen=True)
class Comparison:
    """The differences between two backends.

    Attributes:
        backends: their names.
        rows: rows per minibatch.
        tolerance: the largest difference that counts as equal.
        steps: the largest difference per stage for each step, beginning with the parameters before the first.
        parting: the first difference above the tolerance, or None.
    """

    backends: tuple[str, str]
    rows: int
    tolerance: float
    steps: list[dict[str, Difference]]
    parting: Difference | None

    @property
    def equal(self) -> bool:
        """Whether no difference is above the tolerance."""
        return self.parting is None


def compare(
    config: Any, backends: Sequence[str], batch: Batch, *, num_steps: int, tolerance: float
) -> Comparison:
    """Take the same steps on both backends, from the weights that each draws by the config's seed.

    Args:
        config: an `AlgorithmConfig`.
        backends: two names.
        batch: `{module_id: {column: array [B, ...]}}`.
        num_steps: minibatches of `config.minibatch_size` rows (or sequences), in the batch's order and cyclic.
        tolerance: see `Comparison`.

    Returns:
        The differences.
    """
    one, other = backends
    rows = config.minibatch_size or max(len(next(iter(each.values()))) for each in batch.values())
    runs = [_stages(config.framework(name, compile="none"), batch, rows, num_steps) for name in backends]
    steps = [
        {stage: _largest(n, stage, mine[stage], theirs.get(stage, {})) for stage in mine}
        for n, (mine, theirs) in enumerate(zip(*runs, strict=True))
    ]
    differences = (each for step in steps for each in step.values())
    parting = next((each for each in differences if not each.difference <= tolerance), None)
    return Comparison((one, other), rows, tolerance, steps, parting)


def _stages(config: Any, batch: Batch, rows: int, num_steps: int) -> Iterator[Stages]:
    observer = Observer()
    learner: Learner = config.get_learner_class()(config=config, plugins=[observer])
    learner.build()
    yield {PARAMETERS: _by_path(learner.get_weights())}
    for n in range(num_steps):
        fwd_out, losses, _ = learner._update(_minibatch(learner, batch, n * rows, rows))
        computed = {FORWARD: _arrays(learner, fwd_out), LOSSES: _arrays(learner, losses)}
        yield {**computed, **observer.gradients, PARAMETERS: _by_path(learner.get_weights())}


def _arrays(learner: LearnerProtocol, tensors: Mapping[str, Any]) -> dict[str, Array]:
    arrays: dict[str, Array] = learner._convert_to_numpy(_by_path(tensors))
    return arrays


def _by_path(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in flatten(tree).items() if value is not None}


def _minibatch(learner: Learner, batch: Batch, start: int, number: int) -> dict[ModuleID, Rows]:
    where = np.arange(start, start + number)
    taken = {
        module_id: {name: np.take(values, where, axis=0, mode="wrap") for name, values in columns.items()}
        for module_id, columns in batch.items()
    }
    tensors = learner._convert_batch_type(as_one_minibatch(learner, taken))
    return {
        module_id: Rows(module_id, columns, lambda tensor: tensor) for module_id, columns in tensors.items()
    }


def _largest(step: int, stage: str, mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> Difference:
    """The largest difference among the tensors of a stage."""
    sizes = [float(np.nanmax(np.abs(each), initial=0.0)) for each in (*mine.values(), *theirs.values())]
    scale = max(0.0 if stage in _RELATIVE else 1.0, *sizes) or 1.0
    names = dict.fromkeys((*mine, *theirs))
    found = [_between(step, stage, name, mine.get(name), theirs.get(name), scale) for name in names]
    return max(found, key=lambda each: each.difference)


def _between(
    step: int, stage: str, name: str, mine: Array | None, theirs: Array | None, scale: float
) -> Difference:
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return Difference(step, stage, name, (), (None, None), float("inf"))
    distance = np.abs(np.asarray(mine, np.float64) - theirs) / scale
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
    index = (
        tuple(int(n) for n in np.unravel_index(distance.argmax(), distance.shape)) if distance.size else ()
    )
    values = (float(mine[index]), float(theirs[index])) if distance.size else (None, None)
    return Difference(step, stage, name, index, values, float(distance.max(initial=0.0)))


# --- the first batch of an algorithm, got by running its training up to the first update ---

NUM_EPISODES = 20


class _Recorded(Exception):
    """Raised at the first update, with its batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


def _first_batch(config: AlgorithmConfig, folder: str) -> Batch:
    """The batch of an algorithm's first update, after all connectors.

    An offline algorithm without data gets episodes of its own untrained policy."""
    if config.is_offline and getattr(config, "input_", "") is None:
        config = config.offline_data(input_=_recorded(config, folder))
    with warnings.catch_warnings():
        # The recorder, a local class, is never saved.
        warnings.filterwarnings("ignore", ".*learner_class cannot be written", UserWarning)
        algorithm = config.learners(num_learners=0, learner_class=_recorder(config)).build_algo()
    try:
        while True:
            algorithm.train()
    except _Recorded as found:
        return found.batch
    finally:
        algorithm.stop()


def _recorder(config: AlgorithmConfig) -> type[Any]:
    class Recorder(config.get_learner_class()):  # type: ignore[misc]
        """A learner of the same class that does not learn."""

        def update(
            self, batch: Any = None, *, episodes: Sequence[Any] | None = None, **settings: Any
        ) -> NoReturn:
            columns: Mapping[str, Any] = (
                by_module(batch) if episodes is None else self.run_connectors(episodes)
            )
            raise _Recorded(dict(columns))

    return Recorder


def _recorded(config: AlgorithmConfig, folder: str) -> str:
    learner = config.build_learner()
    played = config.changed(**evaluation_settings(config))
    runner = make_env_runner(config=played, act=learner.compute_actions, seed=config.seed)
    try:
        limit = config.evaluation_max_episode_steps
        episodes = sample_episodes(runner, num_episodes=NUM_EPISODES, seed=config.seed, max_steps=limit)
    finally:
        runner.close()
    return save_episodes(
        folder, episodes, observation_space=runner.observation_space, action_space=runner.action_space
    )


# --- `plugrad parity`: the same steps on two backends, and the first difference between them ---

TOLERANCE = 1e-5
_FIXED = {
    "backend": "parity compares two; name them with --backends ONE OTHER",
    "compile": "parity compares steps that are not compiled, since nobody sees into those that are",
}


@click.command(
    cls=SettingsCommand,
    short_help="Compare two backends step by step on one batch.",
    context_settings={"max_content_width": 110},
)
@click.argument("algorithm")
@click.option(
    "--backends", nargs=2, metavar="ONE OTHER", help="The backends.  [default: two that are installed]"
)
@click.option("--env", metavar="ENV", default=DEFAULT_ENV, help=f"The environment.  [default: {DEFAULT_ENV}]")
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=DEFAULT_SEED,
    help="Seed of everything random.  [default: 0]",
)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=5, help="Number of steps.  [default: 5]"
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    metavar="T",
    default=TOLERANCE,
    help="The largest difference that counts as equal.  [default: 1e-5]",
)
@click.option("--plugin", "plugins", multiple=True, metavar="NAME|FILE.py", help="See plugrad train --help.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
@click.pass_context
def parity(ctx: click.Context, /, **arguments: Any) -> None:
    """Compare two backends step by step on ALGORITHM's first batch.

    Each step is compared in the outputs of the networks, the losses, the gradients before and after clipping, and the
    parameters after the step. Nothing is compiled. Differences are relative to the largest entry. The exit code is 1
    if a difference is above the tolerance.

    The numpy reference can be named, too. Its gradients are finite differences, so keep the network tiny:
    --rl_module.model_config "{fcnet_hiddens = [4]}".
    """
    choice = algorithm_choice(ctx)
    settings, own = choice.split(arguments)
    config = _config(choice, settings, own)
    backends = own["backends"] or two_backends(list_plugins())
    with TemporaryDirectory() as folder:
        batch = _first_batch(config.framework(backends[0]), folder)
    found = compare(config, backends, batch, num_steps=own["steps"], tolerance=own["tolerance"])
    if own["as_json"]:
        about = {"algorithm": choice.algorithm, "env": env_name(config), "seed": config.seed}
        click.echo(json.dumps({**about, "equal": found.equal, **encode(asdict(found), "parity")}, indent=2))
    else:
        _show(found, f"{choice.algorithm} on {env_name(config)}, seed {config.seed}")
    ctx.exit(0 if found.equal else FAILED)


def _config(choice: AlgorithmChoice, settings: Mapping[str, str], own: Mapping[str, Any]) -> AlgorithmConfig:
    for name, why in _FIXED.items():
        if name in settings:
            raise ConfigError(f"--framework.{name}: {why}")
    config = choice.config_class().environment(own["env"]).debugging(seed=own["seed"])
    return apply_settings(config.plugins(*choice.listeners(own["plugins"])), settings)


def two_backends(records: Sequence[PluginRecord]) -> tuple[str, str]:
    """Two installed backends, the default one first. A backend that needs no framework is left out.

    Raises:
        ConfigError: there are not two.
    """
    backends = default_first(each for each in records if each.kind == "backend" and each.requires)
    ready = [each.name for each in backends if each.installed]
    if len(ready) < 2:
        more = [each.command for each in backends if not each.installed]
        raise ConfigError(
            f"parity compares two backends, and here is {', '.join(ready) or 'none'}: install another, such as "
            f"{more[0] if more else 'one that you write'}, or name two with --backends"
        )
    return ready[0], ready[1]


def _show(found: Comparison, title: str) -> None:
    console = Console()
    one, other = found.backends
    click.echo(f"{title}: {one} and {other}, {len(found.steps) - 1} steps of {found.rows} rows")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    stages = list(found.steps[-1])
    for column in ("step", *stages):
        table.add_column(column, justify="right")
    for number, step in enumerate(found.steps):
        table.add_row(str(number), *[_number(step, stage) for stage in stages])
    console.print(table)
    click.echo(_verdict(found))


def _number(step: dict[str, Any], stage: str) -> str:
    return f"{step[stage].difference:.1e}" if stage in step else ""


def _verdict(found: Comparison) -> str:
    if found.parting is None:
        largest = max(each.difference for step in found.steps for each in step.values())
        return f"equal: no difference above {largest:.1e}, and {found.tolerance:g} are allowed"
    where, values = found.parting, found.parting.values
    at = f" at {list(where.index)}" if where.index else ""
    numbers = ", ".join(f"{backend} {value!r}" for backend, value in zip(found.backends, values, strict=True))
    return (
        f"they part at step {where.step}, {where.stage} of {where.name}{at}: {numbers}; that is {where.difference:.1e} "
        f"of the largest entry, and {found.tolerance:g} are allowed"
    )

"""`plugrad doctor`: what is installed, what is missing, and what to type. It imports no framework.

With `--learners N`: where remote learners will be. That needs no machine.
"""

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import click

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.command_group import OURS
from plugrad.cli.exits import debug_option
from plugrad.cli.system import usable_cpus, version_of
from plugrad.collective import Place
from plugrad.config.sampling_settings import PLACEMENTS
from plugrad.errors import ConfigError, PluginConflictError
from plugrad.hooks.plugin_records import PluginRecord, list_plugins, obstacle
from plugrad.hooks.registry import IN_ORDER, PLUGINS_VARIABLE, load_collective
from plugrad.importing.names import is_local_plugin

_OF_THREADS = "_THREADS"
"""How variables end by which libraries choose their numbers of threads."""


@dataclass(frozen=True)
class Part:
    """An optional package that is no framework.

    Attributes:
        module: the module's name, and that of its distribution.
        extra: the extra of plugrad that installs it.
        use: what it is for.
    """

    module: str
    extra: str
    use: str

    @property
    def installed(self) -> bool:
        """Whether it can be imported, without importing it."""
        return find_spec(self.module) is not None


PARTS = (
    Part("ray", "ray", "remote learners"),
    Part("matplotlib", "plot", "plugrad plot"),
    Part("PIL", "video", "plugrad play and plugrad video"),
    Part("libcst", "migrate", "plugrad migrate"),
    Part("onnx", "onnx", "ONNX models of policies"),
    Part("tensorboardX", "tensorboard", "plugrad train --tensorboard"),
    Part("ale_py", "atari", "Atari games"),
    Part("pettingzoo", "pettingzoo", "environments of many agents"),
    Part("envpool", "envpool", "environments that step in C++"),
)


@click.command()
@debug_option
@click.option("--learners", type=click.IntRange(1), help="plan where so many remote learners will be")
@click.option("--env-runners", type=click.IntRange(0), default=0, help="with --learners: env runners in Ray")
@click.option("--gpus", type=click.IntRange(0), default=0, help="with --learners: GPUs of all machines")
@click.option("--machines", type=click.IntRange(1), default=1, help="with --learners: equal machines")
@click.option("--placement", type=click.Choice(PLACEMENTS), default="pack", help="with --learners: see train")
def doctor(learners: int | None, env_runners: int, gpus: int, machines: int, placement: str) -> None:
    """Show what is installed, what is missing, and what to type.

    The problems that it found are at the end. No plugin is loaded: `plugrad plugins --check NAME` trains with one.
    With --learners it shows instead which machine gets which learner. The machines need not be there.
    """
    records = list_plugins()
    width = max((len(record.name) for record in records), default=0)
    if learners is not None:
        plan = Plan(
            learners=learners, env_runners=env_runners, gpus=gpus, machines=machines, placement=placement
        )
        return _show(plan.sections(records))
    if env_runners or gpus or machines > 1:
        raise click.UsageError(
            "a plan needs --learners, the number of remote learners: plugrad doctor --learners 8 --gpus 8"
        )
    sections = (
        ("this machine", _machine()),
        ("frameworks", [framework_line(record) for record in records if _has_framework(record)]),
        ("optional packages", [part_line(part) for part in PARTS]),
        ("plugins", [_plugin_line(record, width) for record in records]),
        ("what to type", advice(records)),
        ("problems", problems(records) or ["none"]),
    )
    return _show(sections)


def _show(sections: Iterable[tuple[str, list[str]]]) -> None:
    for title, lines in sections:
        click.secho(title, bold=True)
        for line in lines:
            click.echo(f"  {line}")


def _machine() -> list[str]:
    threads = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.endswith(_OF_THREADS)]
    return [
        f"plugrad     {version('plugrad')}",
        f"Python      {platform.python_version()} ({sys.executable})",
        f"system      {platform.system()} {platform.machine()}",
        f"CPUs        {usable_cpus()} usable of {os.cpu_count()}",
        f"threads     {', '.join(threads) or 'as the frameworks choose (OMP_NUM_THREADS is not set)'}",
    ]


def _has_framework(record: PluginRecord) -> bool:
    return record.kind == "backend" and record.requires is not None


def framework_line(record: PluginRecord) -> str:
    """One line for a backend: the framework's name and version; if it is missing a second one, what installs it."""
    use = f"backend {record.name}"
    if record.requires is None or not record.installed:
        return _missing(record.requires or "", use, record.command)
    found = _found(record.requires, use)
    lost = _what_is_lost(record)
    return f"{found}\n{'':<16}{lost}" if lost else found


def _what_is_lost(record: PluginRecord) -> str:
    """What the framework's version goes without: the backend's file `versions.py` may say it.

    The file is run by itself, because importing it from its package would import the framework.
    """
    package = find_spec(record.value.partition(":")[0].partition(".")[0])
    for folder in (package and package.submodule_search_locations) or ():
        spec = spec_from_file_location("versions", Path(folder, "versions.py"))
        with suppress(Exception):
            if spec is not None and spec.loader is not None and Path(folder, "versions.py").exists():
                module = module_from_spec(spec)
                spec.loader.exec_module(module)
                return str(module.what_is_lost(version_of(record.requires or "")))
    return ""


def part_line(part: Part) -> str:
    """One line for a package: its name and version; if it is missing a second one, what installs it."""
    found = part.installed
    return (
        _found(part.module, part.use)
        if found
        else _missing(part.module, part.use, f'pip install "plugrad[{part.extra}]"')
    )


def _found(name: str, use: str) -> str:
    return f"{name:<12}  {version_of(name):<10}  for {use}"


def _missing(name: str, use: str, command: str) -> str:
    return f"{name:<12}  missing     for {use}\n{'':<16}{command}"


def _plugin_line(record: PluginRecord, width: int) -> str:
    missing = "" if record.installed else f"  (needs {record.requires})"
    return f"{record.kind:<10} {record.name:<{width}}  {record.distribution} {record.version}{missing}"


def advice(records: Sequence[PluginRecord]) -> list[str]:
    """The commands to type next, with these plugins installed."""
    # A backend that needs no framework is for comparison, not for training.
    backends = default_first(filter(_has_framework, records))
    ready = [_train(each.name) for each in backends if each.installed]
    if not ready:
        return [f"{each.command}, then: {_train(each.name)}" for each in backends]
    return [ready[0], "plugrad train --help     for every setting"]


def _train(backend: str) -> str:
    is_default = backend == AlgorithmConfig().backend
    return "plugrad train" if is_default else f"plugrad train ppo CartPole-v1 --backend {backend}"


def problems(records: Sequence[PluginRecord]) -> list[str]:
    """What keeps plugrad, or a plugin that somebody installed, from working; one line each, the same once.

    Args:
        records: of all plugins.

    Returns:
        Lines; none where an optional part of plugrad's own is not installed.
    """
    found = []
    if not any(_has_framework(each) and each.installed for each in records):
        found.append(
            "no framework is installed, so nothing but tiny networks can be trained: see what to type"
        )
    for record in records:
        error = obstacle(record)
        if error and (record.distribution != OURS or isinstance(error, PluginConflictError)):
            found.append(str(error))
        if _has_framework(record) and record.installed and (lost := _what_is_lost(record)):
            found.append(f"backend {record.name!r}: {lost}")
    names = {each.name for each in records if each.kind == "plugin"}
    for name in map(str.strip, os.environ.get(PLUGINS_VARIABLE, "").split(",")):
        if name not in ("", "all", "none", *names) and not is_local_plugin(name):
            found.append(
                f"{PLUGINS_VARIABLE} names {name!r}, which is not installed: no learner is built until you unset it"
            )
    return list(dict.fromkeys(found))


def default_first(records: Iterable[PluginRecord]) -> list[PluginRecord]:
    """Backends with that of a config which names none in front, the others as they were."""
    default = AlgorithmConfig().backend
    return sorted(records, key=lambda record: record.name != default)


# --- where remote learners will be ---


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where the learners of a group will be.

    Args:
        learners: their number, from 1.
        env_runners: number of env runners in Ray.
        gpus: GPUs of all machines together; learners share them equally.
        machines: number of machines, which are assumed to be equal, and like this one.
        placement: as the setting.

    Raises:
        ConfigError: machines have different numbers of GPUs.
    """

    learners: int
    env_runners: int = 0
    gpus: int = 0
    machines: int = 1
    placement: str = "pack"

    def __post_init__(self) -> None:
        if self.gpus % self.machines:
            raise ConfigError(
                f"--gpus {self.gpus} on --machines {self.machines}: machines are planned with equal numbers of GPUs; "
                f"type --gpus {self.gpus - self.gpus % self.machines or self.machines}"
            )

    @property
    def gpus_per_learner(self) -> float:
        """As many as each can have on one machine; a share of one where there are fewer GPUs than learners."""
        each = self.gpus // self.machines
        if self.gpus < self.learners:
            return round(1 / -(-self.learners // self.gpus), 4) if self.gpus else 0
        return max(n for n in range(1, each + 1) if self.machines * (each // n) >= self.learners)

    @property
    def room(self) -> int:
        """How many learners a machine has GPUs for; all of them where none has a GPU."""
        each, gpus = self.gpus // self.machines, self.gpus_per_learner
        return int(each // gpus if gpus >= 1 else each * round(1 / gpus)) if gpus else self.learners

    @property
    def layout(self) -> list[int]:
        """How many learners each machine gets, as Ray's placement group lays them out on empty machines."""
        if self.placement == "spread":
            some, more = divmod(self.learners, self.machines)
            return [some + (machine < more) for machine in range(self.machines)]
        left = (self.learners - machine * self.room for machine in range(self.machines))
        return [max(0, min(self.room, each)) for each in left]

    @property
    def place(self) -> Place:
        """For the choice of a collective."""
        hosts = sum(number > 0 for number in self.layout)
        return Place(self.learners, hosts, platform.machine(), self.gpus_per_learner)

    def sections(self, records: list[PluginRecord]) -> list[tuple[str, list[str]]]:
        """The plan as `(title, lines)`.

        Args:
            records: of the plugins that are installed.
        """
        return [
            ("plan", self._lines(records)),
            ("missing", self._missing(records) or ["nothing on this machine"]),
            ("what to type", [self._typed()]),
        ]

    def _lines(self, records: list[PluginRecord]) -> list[str]:
        gpus = self.gpus_per_learner
        lines = [f"bundles     {self.learners} x {{CPU: 1{f', GPU: {gpus:g}' if gpus else ''}}} for learners"]
        if self.env_runners:
            lines.append(f"            {self.env_runners} x {{CPU: 1}} for env runners")
        for machine, number in enumerate(self.layout):
            of_gpus = f", {number * gpus:g} of {self.gpus // self.machines} GPUs" if gpus else ""
            words = f"{number} learner{'s' * (number != 1)}: {number} CPU{of_gpus}"
            lines.append(f"machine {machine}   {words if number else 'no learner'}")
        lines += [f"CPUs        {self.learners + self.env_runners} in all, beside the driver's"]
        if idle := self.gpus - self.learners * gpus if gpus >= 1 else 0:
            lines.append(
                f"idle        {idle:g} GPUs: {self.gpus} are no multiple of {self.learners} learners"
            )
        return [*lines, *self._collective(records)]

    def _collective(self, records: list[PluginRecord]) -> list[str]:
        if self.learners == 1:
            return ["collective  none: one learner sums nothing"]
        name = auto_collective(self.place, records)
        lines = [
            f'collective  {name}: what "auto" takes for learners on {self.place.num_hosts} of these machines'
        ]
        if self.gpus_per_learner >= 1:
            lines.append('            "nccl" keeps sums on the GPUs; it is used only if it is named')
        elif self.gpus:
            lines.append('            not "nccl": it needs a GPU of its own for each learner')
        return lines

    def _missing(self, records: list[PluginRecord]) -> list[str]:
        needed = {each.name: each for each in records if each.kind == "collective"}
        ray = needed["ray"]
        lines = [] if ray.installed else [f"ray: remote learners are its actors: {ray.command}"]
        backends = [each for each in records if each.kind == "backend" and each.requires is not None]
        if not any(each.installed for each in backends):
            lines.append(f"a framework: {' or '.join(each.command for each in backends)}")
        gloo = needed["gloo"]
        if not gloo.installed and self.place.num_hosts > 1:
            lines.append(f"{gloo.requires}, for sums by gloo between machines: {gloo.command}")
        return lines

    def _typed(self) -> str:
        gpus = f", num_gpus_per_learner={self.gpus_per_learner:g}" if self.gpus else ""
        runners = f".env_runners(num_env_runners={self.env_runners})" if self.env_runners else ""
        learners = f'.learners(num_learners={self.learners}{gpus}, placement="{self.placement}")'
        return f"config{learners}{runners}"


def auto_collective(place: Place, records: list[PluginRecord]) -> str:
    """The collective that "auto" takes, as far as metadata says: what needs a framework is not loaded.

    Args:
        place: where the learners are.
        records: of the plugins that are installed.

    Returns:
        Its name.
    """
    known = {each.name: each for each in records if each.kind == "collective" and each.installed}
    usable = (
        name
        for name in IN_ORDER
        if name in known and (known[name].requires or load_collective(name).why_not(place) is None)
    )
    return next(usable, "none that is installed")

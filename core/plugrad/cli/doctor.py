"""`plugrad doctor`: what is installed, what is missing, and what to type. It imports no framework."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from plugrad.cli.exits import debug_option
from plugrad.hooks.registry import PluginRecord, list_plugins

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


@dataclass(frozen=True)
class Part:
    """An optional package.

    Attributes:
        module: the module's name.
        distributions: the distributions that may install it.
        extra: the extra of plugrad that installs it.
        use: what it is for.
    """

    module: str
    distributions: tuple[str, ...]
    extra: str
    use: str

    @property
    def installed(self) -> bool:
        """Whether it can be imported, without importing it."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str | None:
        """The version of its distribution; None if it is missing."""
        if not self.installed:
            return None
        return next((found for name in self.distributions if (found := _version(name))), "unknown version")


PARTS = (
    Part("torch", ("torch",), "torch", "backend torch"),
    Part("tensorflow", ("tensorflow", "tensorflow-cpu"), "tf2-cpu", "backend tf2"),
    Part("ray", ("ray",), "ray", "remote learners"),
    Part("matplotlib", ("matplotlib",), "plot", "plugrad plot"),
    Part("onnx", ("onnx",), "onnx", "ONNX models of policies"),
    Part("tensorboardX", ("tensorboardX",), "tensorboard", "plugrad train --tensorboard"),
)


@click.command()
@debug_option
def doctor() -> None:
    """Show what is installed, what is missing, and what to type."""
    records = list_plugins()
    for title, lines in (
        ("this machine", _machine()),
        ("optional packages", [part_line(part) for part in PARTS]),
        ("plugins", [_plugin_line(record) for record in records]),
        ("what to type", advice(records)),
    ):
        click.secho(title, bold=True)
        for line in lines:
            click.echo(f"  {line}")


def _machine() -> list[str]:
    threads = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    return [
        f"plugrad     {version('plugrad')}",
        f"Python      {platform.python_version()} ({sys.executable})",
        f"system      {platform.system()} {platform.machine()}",
        f"CPUs        {_usable_cpus()} usable of {os.cpu_count()}",
        f"threads     {', '.join(threads) or 'as the frameworks choose (OMP_NUM_THREADS is not set)'}",
    ]


def _usable_cpus() -> int:
    # Not every system can bind a process to some of its CPUs.
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1


def part_line(part: Part) -> str:
    """One line: name, version and use; for a missing package the command that installs it."""
    if part.version is None:
        return f'{part.module:<12}  missing     for {part.use}: pip install "plugrad[{part.extra}]"'
    return f"{part.module:<12}  {part.version:<10}  for {part.use}"


def _plugin_line(record: PluginRecord) -> str:
    missing = "" if record.installed else f"  (needs {record.requires})"
    return f"{record.kind:<10} {record.name:<12} {record.distribution} {record.version}{missing}"


def advice(records: list[PluginRecord]) -> list[str]:
    """The commands to type next, with these plugins installed."""
    backends = [record for record in records if record.kind == "backend"]
    # A backend that needs no framework is for comparison, not for training.
    ready = [record.name for record in backends if record.requires and record.installed]
    if not ready:
        return ['pip install "plugrad[torch]"     (or plugrad[tf2-cpu]), then: plugrad train']
    backend = "torch" if "torch" in ready else ready[0]
    option = "" if backend == "torch" else f" ppo CartPole-v1 --backend {backend}"
    return [f"plugrad train{option}", "plugrad train --help     for every setting"]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None

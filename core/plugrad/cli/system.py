"""The system that a run was trained on, as `summary.json` keeps it."""

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from plugrad.hooks.plugin_records import list_plugins
from plugrad.importing.names import owners_of_packages


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    # Not every system can bind a process to some of its CPUs.
    bound = getattr(os, "sched_getaffinity", None)
    return len(bound(0)) if bound else os.cpu_count() or 1


def version_of(name: str) -> str:
    """The version of a distribution, or of the first that brings a module of the name; it is not imported."""
    with suppress(PackageNotFoundError):
        return version(name)
    owners = owners_of_packages().get(name)
    return version(owners[0]) if owners else "unknown version"


def system(backend: str) -> dict[str, str]:
    """The versions and the machine of this process.

    Args:
        backend: the short name of the backend that computes; its framework has a line of its own.

    Returns:
        `{what: version or description}`; no names of the machine or of its user.
    """
    frameworks = [each.requires for each in list_plugins() if (each.kind, each.name) == ("backend", backend)]
    found = {
        "plugrad": version("plugrad"),
        "Python": platform.python_version(),
        **{name: version_of(name) for name in frameworks if name},
        **{name: version_of(name) for name in ("numpy", "gymnasium")},
        "system": f"{platform.system()} {platform.machine()}",
        "CPUs": f"{usable_cpus()} usable of {os.cpu_count()}",
    }
    return {name: str(each) for name, each in found.items()}

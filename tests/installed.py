"""A distribution that is found without pip, which takes seconds."""

import os
import tomllib
from pathlib import Path


def installed(root: Path) -> str:
    """A search path on which the distribution is found as if pip had put it there; tests/package asks pip."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    info = root / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in each.items())
        for group, each in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join(path for path in (str(root), os.environ.get("PYTHONPATH")) if path)

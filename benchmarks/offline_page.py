"""The section of docs/results.md on recorded data, made of the files of `offline_mix.py`."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from report import table
from zoo_intervals import mean_and_interval

TEXT = """## {algorithms} on recorded data of {env}

SAC trained for {steps:,.0f} steps. All that it sampled on the way is the data: {episodes:.0f} episodes with a mean
return of {return_mean:.0f}, of the last tenth {return_of_last_tenth:.0f}, of the best tenth {return_of_best_tenth:.0f}.
Each algorithm learns from it alone, without the environment. A number is the interquartile mean over seeds of the
return of {played} new episodes with deterministic actions, with its 95 % interval and the number of seeds.

```console
python benchmarks/offline_mix.py --env {env} --backend {backend} --gradient-steps {gradient_steps} \\
    --hiddens {hiddens} --minibatch-size {minibatch_size}
```

{table}

Versions: {versions}.
"""


def offline_sections(folder: Path) -> list[str]:
    """A section for each environment that has runs.

    Args:
        folder: of the files.

    Returns:
        Markdown; nothing where there are no files.
    """
    by_env: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*-s[0-9]*.json")):
        found = json.loads(path.read_text())
        by_env[found["env"]].append(found)
    return [_section(env, runs) for env, runs in sorted(by_env.items())]


def _section(env: str, runs: list[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["algorithm"], run["backend"], run["gradient_steps"]].append(run)
    rows = [
        [
            f"[{name.upper()}](algorithms/{name}.md)",
            backend,
            f"{steps:,}",
            mean_and_interval([mean(run["returns"]) for run in group], "{:.1f}".format),
        ]
        for (name, backend, steps), group in sorted(groups.items())
    ]
    names = sorted({run["algorithm"].upper() for run in runs})
    versions = sorted({pair for run in runs for pair in run["versions"].items() if pair[0] != "plugrad"})
    return TEXT.format(
        algorithms=" and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0],
        env=env,
        backend=runs[0]["backend"],
        played=len(runs[0]["returns"]),
        gradient_steps=runs[0]["gradient_steps"],
        hiddens=" ".join(map(str, runs[0]["settings"]["model_config"]["fcnet_hiddens"])),
        minibatch_size=runs[0]["settings"]["minibatch_size"],
        table=table(["algorithm", "backend", "gradient steps", "return"], rows),
        versions=", ".join(f"{name} {version}" for name, version in versions),
        **runs[0]["recording"],
    )

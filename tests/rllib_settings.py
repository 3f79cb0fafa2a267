"""Writes down the settings that RLlib's configs have: the names of their methods and arguments, and nothing else.

    python tests/rllib_settings.py SITE-PACKAGES/ray/rllib > tests/data/rllib_settings.json

RLlib's files are read, not imported. The present file is of RLlib 2.60.
"""

import ast
import json
import sys
from pathlib import Path

CONFIGS = {
    "AlgorithmConfig": "algorithm_config",
    "APPOConfig": "appo/appo",
    "BCConfig": "bc/bc",
    "CQLConfig": "cql/cql",
    "DQNConfig": "dqn/dqn",
    "IMPALAConfig": "impala/impala",
    "IQLConfig": "iql/iql",
    "MARWILConfig": "marwil/marwil",
    "PPOConfig": "ppo/ppo",
    "SACConfig": "sac/sac",
}
"""`{class: its file below `algorithms`}`."""


def settings_of(path: Path, name: str) -> dict[str, list[str]]:
    """`{fluent method: its arguments}` of a config class: methods that return the config."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    (found,) = (node for node in classes if node.name == name)
    return {
        node.name: [each.arg for each in (*node.args.args[1:], *node.args.kwonlyargs)]
        for node in found.body
        if isinstance(node, ast.FunctionDef) and _is_fluent(node) and not node.name.startswith("_")
    }


def _is_fluent(node: ast.FunctionDef) -> bool:
    last = node.body[-1]
    return isinstance(last, ast.Return) and last.value is not None and ast.unparse(last.value) == "self"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "algorithms"
    known = {name: settings_of(folder / f"{file}.py", name) for name, file in CONFIGS.items()}
    sys.stdout.write(json.dumps(known, indent=1, sort_keys=True) + "\n")

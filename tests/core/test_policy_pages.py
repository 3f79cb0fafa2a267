"""What the pages say of policy files: deployment in five lines, and a reader of one's own."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from plugrad.policy import Policy
from plugrad_ppo import PPOConfig

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def make_policy(path: Path) -> Policy:
    some = PPOConfig().framework("numpy").environment("CartPole-v1").debugging(seed=0)
    policy = some.build_learner().get_policy()
    policy.save(path)
    return policy


def test_the_readme_deploys_a_policy_in_five_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (each for each in blocks("README.md") if "load_policy" in each)
    lines = [line for line in block.splitlines() if line and "import" not in line]
    assert len(lines) <= 5
    monkeypatch.chdir(tmp_path)
    make_policy(tmp_path / "policy.safetensors")
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["env"].action_space.contains(names["action"])


def test_the_reader_on_the_format_page_reads_a_policy_and_acts(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    policy = make_policy(path)
    namespace: dict[str, Any] = {}
    for block in blocks("docs/policy-format.md"):
        exec(compile(block, "policy-format.md", "exec"), namespace)
    description, arrays = namespace["read"](path)
    assert description["config"]["action_space"] == {"__space__": "Discrete", "n": 2, "start": 0}
    for row in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
        assert namespace["logits"](arrays, row).argmax() == policy.predict(row)[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        namespace["read"](path)


def test_the_format_page_names_every_key_of_the_description(tmp_path: Path) -> None:
    some = (
        PPOConfig()
        .framework("numpy")
        .environment(observation_space=Box(-1, 1, (2,)), action_space=Discrete(2))
    )
    some.build_learner().get_policy().save(tmp_path / "policy")
    namespace: dict[str, Any] = {}
    exec(compile(blocks("docs/policy-format.md")[0], "policy-format.md", "exec"), namespace)
    description, arrays = namespace["read"](tmp_path / "policy")
    page = (ROOT / "docs/policy-format.md").read_text()
    table = page.split("## The description")[1].split("\n## ")[0]
    assert set(description) == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert {name.partition("/")[0] for name in arrays} <= set(re.findall(r"`(\w+)/", page))

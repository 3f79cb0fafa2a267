"""Every backend: no compiled program is written to, or loaded from, a folder to which another user may write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import needs

WHERE = {
    "torch": """
import os, stat
from plugrad_torch.inductor import use_folder
use_folder()
folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
print(json.dumps([folder, stat.S_IMODE(os.stat(folder).st_mode)]))
""",
    "tf2": """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from plugrad_tf2 import compilation_cache
with compilation_cache.in_folder():
    named = os.environ.get("TF_XLA_FLAGS", "")
print(json.dumps([named.partition("--tf_xla_persistent_cache_directory=")[2].split(" ")[0] or None, 0o700]))
""",
    "jax": """
import jax
from plugrad_jax import compilation_cache
compilation_cache.use_folder()
print(json.dumps([jax.config.jax_compilation_cache_dir, 0o700]))
""",
}
UNSET = ("TORCHINDUCTOR_CACHE_DIR", "TF_XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")


def folder_used(backend: str, cache: Path, **more: str) -> tuple[str | None, int, str]:
    """The folder that the framework is told, its mode, and what was printed to stderr."""
    own = {name: value for name, value in os.environ.items() if name not in UNSET}
    own |= {"XDG_CACHE_HOME": str(cache), **more}
    command = [sys.executable, "-c", "import json" + WHERE[backend]]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder, mode = json.loads(done.stdout.splitlines()[-1])
    return folder, mode, done.stderr


def test_a_cache_that_others_may_write_to_is_neither_written_nor_read(backend: str, tmp_path: Path) -> None:
    folder, mode, said = folder_used(backend, tmp_path)
    assert folder is not None
    assert Path(folder).is_relative_to(tmp_path.resolve() / "plugrad" / backend)
    assert mode == 0o700
    assert "neither kept" not in said
    (tmp_path / "plugrad").chmod(0o777)
    folder, mode, said = folder_used(backend, tmp_path)
    assert said.count("compiled updates are neither kept on disk nor loaded") == 1
    if backend == "torch":  # it always compiles through a folder: one of this process alone
        assert folder is not None
        assert not Path(folder).is_relative_to(tmp_path)
        assert (mode, Path(folder).exists()) == (0o700, False)
    else:
        assert folder is None


def test_a_folder_that_torch_names_for_anybody_is_replaced(tmp_path: Path) -> None:
    needs.backend("torch")
    theirs = tmp_path / "tmp" / "torchinductor_me"
    theirs.mkdir(parents=True)
    chosen = tmp_path / "chosen"
    more = {"TMPDIR": str(tmp_path / "tmp")}
    folder, _, _ = folder_used("torch", tmp_path / "cache", TORCHINDUCTOR_CACHE_DIR=str(theirs), **more)
    assert Path(str(folder)).is_relative_to(tmp_path / "cache")
    chosen.mkdir()
    folder, _, _ = folder_used("torch", tmp_path / "cache", TORCHINDUCTOR_CACHE_DIR=str(chosen), **more)
    assert folder == str(chosen)

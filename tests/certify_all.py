"""The certificates of a release, made anew.

    python tests/certify_all.py           # all: a quarter of an hour
    python tests/certify_all.py jax toy

writes `tests/data/certify/NAME.json`, and of all of them docs/certificates.md. The toy is a stranger's distribution: it
is installed beside for the time.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from certificates_page import PAGE, page_text, read_certificates

HERE = Path(__file__).parent
REPORTS = HERE / "data/certify"
NAMES = ("numpy", "torch", "tf2", "jax", "toy")
COMMAND = "python tests/certify_all.py"
MAIN = "from plugrad.cli import main; main(prog_name='plugrad')"


def main(names: list[str]) -> int:
    """How many are not proven."""
    REPORTS.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        path = os.environ.get("PYTHONPATH", "")
        if "toy" in names:
            path = os.pathsep.join(filter(None, (install_toy(Path(folder)), path)))
        environment = {**os.environ, "PYTHONPATH": path}
        codes = [
            subprocess.run(
                [sys.executable, "-c", MAIN, "certify", name, "--output", REPORTS / f"{name}.json"],
                env=environment,
            ).returncode
            for name in names
        ]
    PAGE.write_text(page_text(read_certificates()))
    return sum(code != 0 for code in codes)


def install_toy(folder: Path) -> str:
    """Where Python finds it then."""
    copied = shutil.copytree(HERE / "author/plugrad-toy", folder / "source")
    target = str(folder / "installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", target, str(copied)], check=True)
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(NAMES)))

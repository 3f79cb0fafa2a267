"""A cache of compiled programs to which others may write is neither read nor written, and one line says so."""

import logging
import os
import tempfile
from pathlib import Path

lines: list[str] = []


class Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines.append(record.getMessage())


with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryDirectory() as fonts:
    # Before any framework is loaded: each reads once where its cache is.
    os.environ["XDG_CACHE_HOME"] = shared
    # Keras imports matplotlib, which writes a list of fonts; and TensorFlow keeps no programs where it shows errors.
    os.environ |= {"MPLCONFIGDIR": fonts, "TF_CPP_MIN_LOG_LEVEL": "3"}
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TF_XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"):
        os.environ.pop(name, None)

    import numpy as np
    from case import BACKEND, P, check, ppo_rows, small

    from plugrad.hooks.backend_helpers import program_folder

    planted = program_folder(BACKEND)
    (Path(shared) / "plugrad").chmod(0o777)
    if os.getuid() == 0:
        os.chown(planted, 12345, 12345)
    logging.getLogger("plugrad").addHandler(Keep())
    logging.getLogger("plugrad").setLevel(logging.INFO)
    learner = small(compile="complete_update", model={"fcnet_hiddens": []}).build_learner()
    loss = learner.update(ppo_rows(learner, 8))[P]["total_loss"]
    check(np.isfinite(loss), f"a loss of {loss}")
    written = [str(each.relative_to(shared)) for each in Path(shared).rglob("*") if each.is_file()]
    check(not written, f"files in the folder of others: {written[:3]}")
    said = [line for line in lines if "neither kept on disk nor loaded" in line]
    check(said, f"no line says that the cache is not used: {lines}")

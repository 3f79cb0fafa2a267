"""Whole batches of ever other lengths compile few programs, and give the numbers of an eager update."""

import logging

import numpy as np
from case import BACKEND, P, check, ppo_rows, small

# Twelve are more than any backend keeps; inductor takes many seconds for each that it compiles.
LENGTHS = range(5, 17) if BACKEND != "torch" else range(5, 9)
compiled: list[str] = []


class Count(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "compiling the update for" in record.getMessage():
            compiled.append(record.getMessage())


logging.getLogger("plugrad").addHandler(Count())
logging.getLogger("plugrad").setLevel(logging.INFO)
mode = "complete_update" if BACKEND != "torch" else "auto"
learner, eager = small(compile=mode).build_learner(), small().build_learner()
for length in LENGTHS:
    rows = ppo_rows(eager, length, seed=length)
    learner.update(rows)
    eager.update(rows)
again = len(compiled)
rows = ppo_rows(eager, LENGTHS[-1], seed=1)
learner.update(rows)
eager.update(rows)
check(len(compiled) == again, "the length of the last update was compiled again")
if BACKEND == "tf2":
    check(len(compiled) <= 8, f"{len(compiled)} programs were compiled for {len(LENGTHS)} lengths")
if BACKEND != "torch":
    check("size of the minibatches keeps changing" in learner.update_mode, f"the mode: {learner.update_mode}")
apart = [np.abs(each - eager.get_weights()[P][name]).max() for name, each in learner.get_weights()[P].items()]
check(max(apart) < 1e-5, f"weights are {max(apart)} from those of eager updates")

"""A batch with its columns in another order compiles nothing, and gives the numbers of the usual order."""

import logging

from case import P, check, equal, ppo_rows, small

compiled: list[str] = []


class Count(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "compiling the update for" in record.getMessage():
            compiled.append(record.getMessage())


logging.getLogger("plugrad").addHandler(Count())
logging.getLogger("plugrad").setLevel(logging.INFO)
learner, other = (
    small(compile="complete_update", minibatch_size=8, model={"fcnet_hiddens": [2]}).build_learner()
    for _ in range(2)
)
rows = ppo_rows(learner, 16)
for each in (learner, other):
    each.update(rows)
check(compiled, "the log has no line on what is compiled")
before = len(compiled)
names = [*rows]
for turn in range(1, 4):
    learner.update({name: rows[name] for name in names[turn:] + names[:turn]})
    other.update(rows)
check(len(compiled) == before, f"another order compiles: {compiled[before:]}")
check(equal(learner.get_weights()[P], other.get_weights()[P]), "another order gives other weights")

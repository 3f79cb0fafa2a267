"""The second chunk of a recurrent episode with `state_out` alone begins where the first one ended, or is refused."""

import numpy as np
from case import BACKEND, P, check, refused, small

from plugrad import SingleAgentEpisode
from plugrad.errors import BatchError

assert BACKEND
HALF, WHOLE = 4, 8

learner = small(
    lr=0.0,
    normalize_advantages="none",
    model={"fcnet_hiddens": [6], "use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 16},
).build_learner()
rng = np.random.default_rng(0)
# Weights of a size at which the memory matters.
learner.set_weights(
    {
        P: {
            name: (each + rng.normal(size=each.shape) * 0.7).astype(np.float32)
            for name, each in learner.get_weights()[P].items()
        }
    }
)
obs = rng.normal(size=(WHOLE + 1, 3)).astype(np.float32)
state, before, after, columns = None, [], [], []
for t in range(WHOLE):
    before.append(state)
    acted = learner.compute_actions(obs[t : t + 1], state=state)
    state = acted.pop("state_out")
    after.append(state)
    columns.append(acted)
before[0] = {name: np.zeros_like(each) for name, each in after[0].items()}


def chunk(first, last, recorded):
    outputs = {name: np.concatenate([each[name] for each in columns[first:last]]) for name in columns[0]}
    states = (before if recorded == "state_in" else after)[first:last]
    memory = {f"{recorded}/{name}": np.concatenate([each[name] for each in states]) for name in after[0]}
    return SingleAgentEpisode(
        observations=obs[first : last + 1],
        actions=outputs.pop("actions"),
        rewards=np.ones(last - first),
        terminated=last == WHOLE,
        extra_model_outputs={**outputs, **memory},
        id_="an episode",
        t_started=first,
    )


def policy_loss(*chunks):
    return learner.update(episodes=list(chunks))[P]["policy_loss"]


expected = policy_loss(chunk(0, HALF, "state_in"), chunk(HALF, WHOLE, "state_in"))
found = policy_loss(chunk(0, HALF, "state_out"), chunk(HALF, WHOLE, "state_out"))
check(abs(found - expected) < 1e-5, f"policy_loss {found} of chunks with state_out, {expected} with state_in")
with refused(BatchError, "state"):
    policy_loss(chunk(HALF, WHOLE, "state_out"))

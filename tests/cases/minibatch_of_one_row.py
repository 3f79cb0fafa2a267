"""`normalize_advantages="minibatch"` with minibatches of one row leaves the advantage as it is, and warns."""

import warnings

from case import P, check, equal, ppo_rows, small


def trained(over):
    learner = small(minibatch_size=1, lr=0.01, normalize_advantages=over).build_learner()
    before = learner.get_weights()[P]
    learner.update(ppo_rows(learner, 10))
    return before, learner.get_weights()[P]


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    before, found = trained("minibatch")
said = [str(each.message) for each in caught]
policy = [name for name in found if name.startswith("pi")]
check(
    not equal({name: found[name] for name in policy}, {name: before[name] for name in policy}),
    "the policy was not trained",
)
check(equal(found, trained("none")[1]), "weights differ from those of advantages as they are")
check(any("normalize_advantages" in line for line in said), f"no warning names the setting: {said}")

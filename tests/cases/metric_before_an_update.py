"""A metric that is registered before an update is in the results of that update, and in no later ones."""

from case import P, check, ppo_rows, small

learner = small().build_learner()
rows = ppo_rows(learner, 8)
learner.register_metric(P, "temperature", 0.5)
results = learner.update(rows)[P]
check(results.get("temperature") == 0.5, f"the results have {sorted(results)}")
check("temperature" not in learner.update(rows)[P], "the metric is in a later update's results too")

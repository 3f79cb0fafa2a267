"""What a Learner does with observations: `actor` computes actions, `saved_policy` opens a policy without a Learner."""

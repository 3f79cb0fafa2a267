"""The modules of a Learner: `build` makes them, `add_remove` changes them later, `users_classes` wraps users' own."""

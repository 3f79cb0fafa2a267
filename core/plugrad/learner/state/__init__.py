"""The state of a Learner: its `components`, how they are undone (`snapshot`), and how they are saved (`checkpoint`)."""

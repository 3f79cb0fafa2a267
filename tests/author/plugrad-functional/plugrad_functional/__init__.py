"""A backend of plugrad in three files, for a framework of pure functions: an update is a function of its state."""

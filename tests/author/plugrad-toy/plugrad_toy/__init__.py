"""A backend of plugrad in three rooms: numpy for the tensors, finite differences for the gradients."""

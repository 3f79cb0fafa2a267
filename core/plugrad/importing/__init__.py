"""Classes and functions by name: how a name is resolved, and which names a file may lead to."""

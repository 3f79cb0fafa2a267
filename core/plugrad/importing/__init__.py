"""Imports by name: resolving a name, and deciding which names of a file may be called."""

"""Processes of this machine and Ray actors: start, call, wait for and end them."""

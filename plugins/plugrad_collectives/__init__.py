"""The collectives other than shared memory: torch's gloo and NCCL, and Ray's object transfer.

Each module imports the library that its collective needs. This file imports none of them.
"""

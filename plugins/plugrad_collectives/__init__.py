"""The collectives that ship beside shared memory: gloo and NCCL of torch, and Ray's own transfer of objects.

Each module imports the library that its collective is made of, so nothing here imports another one.
"""

"""Checkpoints: nested states of numpy arrays and plain values on disk, written all or nothing, without pickle.

    save_checkpoint("run/checkpoints", state, metadata={"backend": "torch"})
    checkpoint = load_checkpoint("run/checkpoints")     # the newest save; or "run/checkpoints/save-7"
    checkpoint.state, checkpoint.metadata

The files, lower ones first: `formats` (strict JSON; arrays as safetensors), `content` (the names in a checkpoint, a
state as JSON and its arrays, the manifest), `disk` (durable writing), `writer`, which locks the path, and `reader`,
which follows no link; `runs` has the paths in a run directory.
"""

from plugrad.checkpoint.content import Block, list_saves
from plugrad.checkpoint.reader import Checkpoint, load_checkpoint
from plugrad.checkpoint.writer import save_checkpoint, writer_lock

__all__ = ["Block", "Checkpoint", "list_saves", "load_checkpoint", "save_checkpoint", "writer_lock"]

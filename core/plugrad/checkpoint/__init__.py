"""Checkpoints: nested states of numpy arrays and plain values on disk, written all or nothing, without pickle.

    save_checkpoint("run/checkpoints", state, metadata={"backend": "torch"})
    checkpoint = load_checkpoint("run/checkpoints")     # the newest save; or "run/checkpoints/save-7"
    checkpoint.state, checkpoint.metadata

The files, lower ones first: `disk` (durable writing), `formats` (strict JSON; arrays as safetensors; a state as both),
`content` (the names in a checkpoint, the manifest, writing a save), and `reader`, which follows no link; `runs` has the
paths in a run directory.
"""

from plugrad.checkpoint.content import list_saves, save_checkpoint, writer_lock
from plugrad.checkpoint.formats import Block
from plugrad.checkpoint.reader import Checkpoint, load_checkpoint

__all__ = ["Block", "Checkpoint", "list_saves", "load_checkpoint", "save_checkpoint", "writer_lock"]

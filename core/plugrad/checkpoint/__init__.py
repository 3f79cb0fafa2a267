"""Checkpoints: nested states of numpy arrays and plain values on disk, written all or nothing, without pickle.

    save_checkpoint("run/checkpoints", state, metadata={"backend": "torch"})
    checkpoint = load_checkpoint("run/checkpoints")     # the newest save; or "run/checkpoints/save-7"
    checkpoint.state, checkpoint.metadata

The files, lower ones first: `strict_json` (the subset of JSON that is used), `layout` (names on disk), `disk` (durable
writing), `named_arrays` (arrays as safetensors files, and blocks that are written once), `tree` (a state as JSON and
its arrays), `manifest` (`metadata.json`), `lock` (one writer per path), `writer` and `reader`, which follows no link;
`runs` has the paths in a run directory.
"""

from plugrad.checkpoint.layout import list_saves
from plugrad.checkpoint.lock import writer_lock
from plugrad.checkpoint.named_arrays import Block
from plugrad.checkpoint.reader import Checkpoint, load_checkpoint
from plugrad.checkpoint.writer import save_checkpoint

__all__ = ["Block", "Checkpoint", "list_saves", "load_checkpoint", "save_checkpoint", "writer_lock"]

"""Minimal data sets and checkpoints: only the fields that the tested verbs read."""

import json
import struct


def write_ldata(path, size, count=3, digest=""):
    path.write_bytes(
        struct.pack("<8sIIIIQQ", b"LADDATA\n", 1, size, 3, 0, count, 1)
        + bytes.fromhex(digest).ljust(88, b"\0")
        + bytes(count * size * size * 3)
    )
    return str(path)


def write_checkpoint(run_folder, image_size, number=3, config=None):
    """Write the parts of a checkpoint that the verb reads. `config` replaces the configuration with that image size."""
    step = run_folder / "checkpoints" / f"step_{number:08}"
    step.mkdir(parents=True)
    (step.parent / "latest").write_text(step.name)
    for part in ("ema", "optimizer"):
        (step / f"{part}.safetensors").touch()
    header = json.dumps(
        {"__metadata__": {"config": config or json.dumps({"model": {"image_size": image_size}})}}
    ).encode()
    (step / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)

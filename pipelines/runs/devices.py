"""Sets up the devices of a run, with one or more processes on one or more hosts."""

import keras

from kerasbert.backend import connect, device, parallel
from kerasbert.backend.hosts import check_same, launched_processes
from kerasbert.data.workers import available_cores

from .outputs import counted


def use_devices(devices: str | None) -> None:
    """Connects the processes of a run, and sets the layout of its devices. Call it before models are created.

    Args:
        devices: "data", "fsdp" or "tensor", see `kerasbert.backend.parallel`; "tensor=4" divides layers among 4
            devices. None: as many devices of this process as divide the rows of a batch.
    """
    several = launched_processes() > 1 and keras.distribution.distribution() is None
    if devices is None and not several:
        return
    connect()
    check_same("option --devices", devices)
    if devices is None:
        raise ValueError(
            f"A run of several processes needs a layout of devices, or each would train on the same batches. "
            f"Received: {launched_processes()} processes and no --devices. Use --devices data, fsdp or tensor."
        )
    layout, equals, parts = devices.partition("=")
    if equals and (layout != "tensor" or not parts.isdecimal() or int(parts) < 1):
        raise ValueError(f"--devices must be data, fsdp, tensor or tensor=NUMBER. Received: {devices!r}.")
    keras.distribution.set_distribution(parallel(layout, mesh_of(int(parts)) if equals else None))


def mesh_of(parts: int) -> keras.distribution.DeviceMesh:
    """Returns a mesh of all devices, in which groups of `parts` devices divide layers among them."""
    devices = keras.distribution.list_devices()
    if len(devices) % parts:
        raise ValueError(
            f"`tensor=NUMBER` must divide the number of devices. Received: tensor={parts} and {len(devices)} devices."
        )
    return keras.distribution.DeviceMesh((len(devices) // parts, parts), ("batch", "model"), devices)


def described_device(count: int = 1) -> str:
    """The device that a run computes on: "CPU, 2 cores", or "4 GPUs of compute capability 9.0".

    Args:
        count: number of devices that share a batch.
    """
    found = device()
    if found.kind == "cpu":
        return f"CPU, {counted(available_cores(), 'core')}"
    name = found.kind.upper() if count == 1 else f"{count} {found.kind.upper()}s"
    return name if found.capability is None else f"{name} of compute capability {found.capability}"

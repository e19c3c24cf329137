"""GPUs that were there before and are listed no more.

After a reload of the driver, a restart of the probe or a reboot, NVML numbers what is left from 0 without a gap: only the UUIDs
tell that one is gone.
"""

from msgspec.structs import replace

from tui.core.gpu import GpuSample


def with_gone(before: GpuSample | None, sample: GpuSample) -> GpuSample:
    """The sample, with those that earlier samples of the same host had and that are gone.

    A GPU is gone when neither its UUID is listed nor another one in its place: in its slot, or in the list where that is as long as
    it was. A sample without any GPU says nothing of single ones.
    """
    if before is None:
        return sample
    known = {gpu.uuid: gpu for gpu in (*before.gpus, *before.gone) if gpu.uuid}
    if not sample.gpus:
        return replace(sample, gone=tuple(sorted(known.values(), key=lambda gpu: gpu.index)))
    uuids = {gpu.uuid for gpu in sample.gpus}
    slots = {gpu.pci for gpu in sample.gpus if gpu.pci}
    # a row without identity is a GPU that can't be asked, at its old number
    unnamed = {gpu.index for gpu in sample.gpus if not gpu.uuid}
    gone = [gpu for uuid, gpu in known.items() if uuid not in uuids and gpu.pci not in slots and gpu.index not in unnamed]
    if len(sample.gpus) >= len(known):
        gone = []
    return replace(sample, gone=tuple(sorted(gone, key=lambda gpu: gpu.index)))

"""What the probe reads out of /proc: real lines with the right answers."""

import pytest

from tui.probe.machine_counters import mount_of, nfs_bytes_read
from tui.probe.process_table import container_of, name_of

HEX = "4f5a1b2c3d4e" + "0" * 52


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"VLLM::Worker_TP3\0\0\0\0", "VLLM::Worker_TP3"),
        (b"VLLM::EngineCore" + b" " * 200, "VLLM::EngineCore"),
        (b"sglang::scheduler_TP0\0", "sglang::scheduler_TP0"),
        (b"/usr/bin/python3\0/opt/venv/bin/vllm\0serve\0/models/kimi\0--api-key\0sk-secret\0", "python3 vllm"),
        (
            b"python3\0-m\0vllm.entrypoints.openai.api_server\0--api-key\0sk-secret\0",
            "python3 -m vllm.entrypoints.openai.api_server",
        ),
        (b"/usr/bin/python3.12\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\0", "python3.12"),
        (b"python3\0-u\0-X\0dev\0train.py\0", "python3 train.py"),
        (b"/usr/lib/xorg/Xorg\0-core\0:0\0", "Xorg"),
        (b"nginx: worker process\0", "nginx:"),
        (b"", ""),
        (b"\0\0", ""),
        (b"\xff\xfe\0", "\ufffd\ufffd"),
    ],
)
def test_names_hold_no_arguments(line: bytes, name: str) -> None:
    assert name_of(line) == name
    assert "secret" not in name_of(line)


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{HEX}.scope\n", "4f5a1b2c3d4e"),
        (f"12:memory:/docker/{HEX}\n11:cpu:/docker/{HEX}\n", "4f5a1b2c3d4e"),
        (f"0::/machine.slice/libpod-{HEX}.scope/container\n", "4f5a1b2c3d4e"),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12.slice/cri-containerd-{HEX}.scope\n",
            "4f5a1b2c3d4e",
        ),
        (f"1:name=systemd:/kubepods/burstable/pod1a2b/{HEX}\n", "4f5a1b2c3d4e"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_containers(cgroup: str, container: str | None) -> None:
    assert container_of(cgroup) == container


MOUNTS = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 22 0:26 / /dev/shm rw,nosuid shared:2 - tmpfs tmpfs rw
40 22 9:0 / /models rw shared:3 - xfs /dev/md0 rw
41 40 0:51 / /models/nas rw shared:4 - nfs4 filer:/export/models rw,vers=4.2
42 22 0:60 / /mnt/with\040space rw - lustre 10.0.0.1@tcp:/lfs rw
43 22 0:33 /@home /home rw - btrfs /dev/nvme1n1 rw
44 22 0:34 / /mnt/a\u2028b rw - xfs /dev/nvme2n1 rw
""".replace("\\u2028", "\u2028")  # the kernel escapes spaces and line feeds only


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/var/log/vllm.log", ("259:2", "/", "ext4", "/dev/nvme0n1p2")),
        ("/models", ("9:0", "/models", "xfs", "/dev/md0")),
        ("/models/kimi/model-00001.safetensors", ("9:0", "/models", "xfs", "/dev/md0")),
        ("/models2/x", ("259:2", "/", "ext4", "/dev/nvme0n1p2")),
        ("/models/nas/kimi", ("0:51", "/models/nas", "nfs4", "filer:/export/models")),
        ("/mnt/with space/x", ("0:60", "/mnt/with space", "lustre", "10.0.0.1@tcp:/lfs")),
        ("/home/me", ("0:33", "/home", "btrfs", "/dev/nvme1n1")),
        ("/mnt/a\u2028b/x", ("0:34", "/mnt/a\u2028b", "xfs", "/dev/nvme2n1")),
    ],
)
def test_the_mount_that_holds_a_path(path: str, mount: tuple[str, str, str, str]) -> None:
    assert mount_of(path, MOUNTS) == mount


MOUNTSTATS = """device tmpfs mounted on /dev/shm with fstype tmpfs
device filer:/more mounted on /mnt/a\u2028b with fstype nfs4 statvers=1.1
\tbytes:\t1 2 3 4 9 6 7 8
device filer:/export/models mounted on /models/nas with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tage:\t86400
\tbytes:\t100 200 0 0 5497558138 4096 1342177 1
\tRPC iostats version: 1.1
device filer:/home mounted on /home with fstype nfs4 statvers=1.1
\tbytes:\t1 2 3 4 5 6 7 8
"""


def test_bytes_that_an_nfs_server_sent() -> None:
    assert nfs_bytes_read(MOUNTSTATS, ["/models/nas"]) == 5_497_558_138
    assert nfs_bytes_read(MOUNTSTATS, ["/models/nas", "/home"]) == 5_497_558_143
    assert nfs_bytes_read(MOUNTSTATS, ["/mnt/a\u2028b"]) == 9
    assert nfs_bytes_read(MOUNTSTATS, ["/models"]) is None

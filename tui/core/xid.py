"""What XID errors mean: NVIDIA's catalogue ("XID Errors", docs of the data-centre driver), the codes that a serving host meets."""

from typing import Final

_APPLICATION = "the program on it did something wrong, or an earlier error made it"
_RESET = "reset the GPU or reboot; if it comes back, have the GPU replaced"

MEANINGS: Final[dict[int, tuple[str, str]]] = {
    13: ("graphics engine exception", _APPLICATION),
    31: ("GPU memory page fault", _APPLICATION),
    32: ("corrupted push buffer", "a bad driver, PCIe link or program"),
    38: ("driver firmware error", "restart the driver"),
    43: ("GPU stopped processing", _APPLICATION),
    44: ("fault during a context switch", "restart the engine"),
    45: ("work cleaned up after an earlier error", "look at the errors before it, or at who killed the program"),
    48: ("uncorrectable (double-bit) ECC error", _RESET),
    61: ("internal micro-controller warning", _RESET),
    62: ("internal micro-controller halt", _RESET),
    63: ("memory row remapped or page retired", "takes effect at the next reset of the GPU"),
    64: ("row remapping or page retirement failed", _RESET),
    68: ("video decoder exception", _APPLICATION),
    69: ("graphics engine class error", _APPLICATION),
    74: ("NVLink error", "check the links with nvidia-smi nvlink -s; reset all GPUs, reseat or replace"),
    79: ("GPU has fallen off the bus", "power, heat, or the board: power-cycle the host"),
    92: ("high rate of correctable ECC errors", "watch it"),
    94: ("contained uncorrectable memory error", "restart the engine; the GPU goes on"),
    95: ("uncontained uncorrectable memory error", _RESET),
    109: ("context switch timeout", "restart the engine; if it comes back, reset the GPU"),
    110: ("security fault", _RESET),
    119: ("GSP firmware does not answer", _RESET),
    120: ("GSP firmware error", _RESET),
    121: ("chip-to-chip link error", "watch it"),
    122: ("SPI read failure", "power-cycle the host"),
    136: ("link training failed", _RESET),
    140: ("uncorrectable ECC error in memory", _RESET),
    143: ("GPU initialisation failed", _RESET),
    144: ("NVLink error (SAW)", _RESET),
    145: ("NVLink error (RLW)", _RESET),
    146: ("NVLink error (TLW)", _RESET),
    147: ("NVLink error (TREX)", _RESET),
    148: ("NVLink error (NVLPW)", _RESET),
    149: ("NVLink error (NETIR)", _RESET),
    150: ("NVLink error (MSE)", _RESET),
    154: ("the action that recovers the GPU changed", "nvidia-smi -q names it under GPU Recovery Action"),
    155: ("NVLink error told by software", _RESET),
    156: ("resource retirement", "takes effect at the next reset of the GPU"),
    158: ("GPU fatal timeout", _RESET),
    171: ("uncorrectable DRAM error", _RESET),
    172: ("uncorrectable SRAM error", _RESET),
}
"""Code: what happened, what to do."""


def meaning(code: int) -> str:
    """What the code means, in a few words; never empty."""
    known = MEANINGS.get(code)
    return known[0] if known else "not in the catalogue of common codes"


def advice(code: int) -> str | None:
    """What to do about it, or whose fault it is."""
    known = MEANINGS.get(code)
    return known[1] if known else None

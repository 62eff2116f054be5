"""Configurations that the vector unit's bench runs on."""

from sluice_hw.config import ChipConfig

CONFIGS: dict[str, ChipConfig] = {
    "square": ChipConfig(vmem_bytes=8192),
    "odd": ChipConfig(rows=5, cols=12, vmem_banks=12, vmem_bytes=12 * 16 * 21, acc_bytes=96 * 20),
}

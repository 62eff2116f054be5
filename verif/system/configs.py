"""Configurations that whole programs run on."""

from sluice_hw.config import ChipConfig, preset

CONFIGS: dict[str, ChipConfig] = {
    "tiny": preset("tiny"),
    "wide": ChipConfig(name="wide", rows=5, cols=12, vmem_banks=12, vmem_bytes=12 * 16 * 21, acc_bytes=96 * 20,
                       hbm_bytes=1 << 20),
}

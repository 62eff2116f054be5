"""Configurations that whole programs run on."""

from pathlib import Path

from sluice_hw.config import ChipConfig, preset

CONFIGS: dict[str, ChipConfig] = {
    "tiny": preset("tiny"),
    "wide": ChipConfig(name="wide", rows=5, cols=12, vmem_banks=12, vmem_bytes=12 * 16 * 21, acc_bytes=96 * 20,
                       hbm_bytes=1 << 20),
}

#: Chips of random programs: also one of which nothing is a power of two that need not be, with ECC.
RANDOM_CONFIGS: dict[str, ChipConfig] = {
    **CONFIGS,
    "odd": ChipConfig(name="odd", rows=6, cols=5, hbm_bytes_per_cycle=16, hbm_bytes=128 * 1500, slice_bytes=128,
                      vmem_bytes=10 * 8 * 103, vmem_banks=10, acc_bytes=2 * 4 * 5 * 75, feed_ports=3,
                      microcode_words=700, ld_queue=2, st_queue=3, mxu_queue=5, vpu_queue=2, token_max=40,
                      event_ring=16, ecc="sideband"),
}

#: A chip that multiplies both types.
BOTH_TYPES = ChipConfig(name="tiny-int8-bf16", rows=4, cols=4, dtype="int8+bf16", pe_latency=2)

#: Chips of bf16 with random programs of their own.
FLOAT_CONFIGS: dict[str, ChipConfig] = {
    "tiny-bf16": ChipConfig(name="tiny-bf16", dtype="bf16", pe_latency=4),
    "odd-bf16": ChipConfig(name="odd-bf16", rows=6, cols=5, dtype="bf16", pe_latency=3, hbm_bytes_per_cycle=16,
                           hbm_bytes=128 * 2000, slice_bytes=128, vmem_bytes=12 * 16 * 53, vmem_banks=12,
                           acc_bytes=2 * 4 * 5 * 75, feed_ports=3, microcode_words=900, ld_queue=2, st_queue=3,
                           mxu_queue=5, vpu_queue=2, token_max=40, event_ring=16),
    BOTH_TYPES.name: BOTH_TYPES,
}

_LITTLE = ChipConfig(
    name="little", rows=4, cols=4, vmem_bytes=1 << 15, vmem_banks=8, acc_bytes=4096, feed_ports=2, microcode_words=512,
    event_ring=16, hbm_bytes=1 << 20,
)  # fmt: skip
#: Chips with memory outside, as small as its slices allow: DRAM with check bits on its pins; DRAM with a clock of its
#: own and refresh of all banks; AXI4 with check bits in memory.
MEMORY_CONFIGS: dict[str, ChipConfig] = {
    c.name: c
    for c in (
        _LITTLE.replace(name="little-hbm2", memory="hbm2", ecc="sideband", slice_bytes=4096),
        _LITTLE.replace(name="little-hbm2-clocks", memory="hbm2", ecc="sideband", slice_bytes=4096, memory_clocks=10,
                        core_clocks=7, dram_refresh="all-bank"),
        _LITTLE.replace(name="little-axi4", memory="axi4", ecc="inband"),
    )
}  # fmt: skip

#: Cycles after power-on in which a DRAM controller grants nothing, and more.
SETTLED = 2000


def examples(config: str) -> list[Path]:
    """Programs of examples/asm for a chip."""
    folder = Path(__file__).parents[2] / "examples" / "asm"
    return [path for path in sorted(folder.glob("*.s")) if f".config {config}\n" in path.read_text()]

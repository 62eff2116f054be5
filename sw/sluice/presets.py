"""What each preset stands for: the published figures it follows, and those that it cannot or does not."""

from __future__ import annotations

from dataclasses import dataclass

from sluice_hw.config import PRESETS, ChipConfig
from sluice_hw.hbm.dram_fit import CHANNEL_BEAT

from .sizes import size_text

__all__ = ["NOTES", "Note", "gigabytes_per_second", "markdown", "memory_text", "peak_tops"]


@dataclass(frozen=True)
class Note:
    """A preset in words: what it is for, which published figures it has, and where it differs from them."""

    purpose: str
    follows: str
    differs: str


_V1 = (
    "TPU v1 (Jouppi et al., In-Datacenter Performance Analysis of a Tensor Processing Unit, ISCA 2017): 256x256 int8 "
    "MACs at 700 MHz, 92 TOPS; of 28 MiB on chip, 24 MiB for activations and 4 MiB of int32 accumulators (4096 rows of "
    "256)"
)
_V1_DIFFERS = (
    "256 MiB of memory instead of 8 GiB, to keep models small; activations and weights both come from it, into the "
    "24 MiB, where the published chip fetches weights through a FIFO of four tiles and activations from its host over "
    "PCIe; no 16-bit modes"
)

#: By preset.
NOTES: dict[str, Note] = {
    "tiny": Note(
        "tests, waveforms, a first look",
        "no published chip",
        "as small as every mechanism allows: partial tiles, several HBM beats a slice, ring buffers",
    ),
    "small": Note(
        "comparison with small open generators",
        "the usual size of open generators, for example Gemmini's default of 16x16 int8 and 64 KiB of accumulators",
        "512 KiB of vector memory is twice Gemmini's default scratchpad; 32 bytes a cycle are twice its 128-bit bus",
    ),
    "edgetpu": Note(
        "inference at the edge, weights resident",
        "the Coral Edge TPU's data sheets: 4 TOPS int8 and about 8 MB on chip, which hold the weights",
        "the array's shape is not public, nor are banks, accumulators and queues: 64x64 at 480 MHz is the common "
        "reading of 4 TOPS; the modules have no memory of their own behind the chip, 16 bytes a cycle (7.7 GB/s) "
        "stand for a small LPDDR4 channel",
    ),
    "mid128": Note(
        "the usual MXU size, in int8",
        "a TPU v2 core's 128x128 MXU and 16 MiB of vector memory at 700 MHz (Norrie et al., IEEE Micro 2021)",
        "that core multiplies bf16 and has about 350 GB/s of HBM; here int8 and half of that, 256 bytes a cycle "
        "(179 GB/s), and 256 MiB instead of 8 GiB; accumulators, banks and queues are the project's own",
    ),
    "v1": Note(
        "TPU v1 with a memory that does not hold it back",
        _V1,
        "256 bytes a cycle (179 GB/s) instead of 34 GB/s, see v1-ddr3; " + _V1_DIFFERS,
    ),
    "v1-ddr3": Note(
        "TPU v1 with its own memory",
        _V1 + "; 34 GB/s of DDR3, as 48 bytes a cycle: beats of 64 bytes in 3 of 4 cycles (33.6 GB/s)",
        _V1_DIFFERS + "; the memory is an SRAM with that rate, without DDR3's banks and refresh",
    ),
    "v2": Note(
        "a TPU v2 core: bf16 operands, fp32 sums",
        "a TPU v2 core's 128x128 bf16 MXU, 16 MiB of vector memory and half of its chip's HBM at 700 MHz (Norrie et "
        "al., IEEE Micro 2021)",
        "512 bytes a cycle (358.4 GB/s) for about 350; 256 MiB instead of 8 GiB; 4 MiB of accumulators, an adder of "
        "four stages, banks and queues are the project's own; it is programmed by vector programs (`sluice.vector`), "
        "the compiler of graphs is for int8",
    ),
    "tiny-hbm2": Note(
        "tiny with real memory: a channel of HBM2 behind the slice controller",
        "a 128-bit HBM2 channel of 4 Gb, timings of 2 Gb/s pins (docs/memory.md)",
        "the channel's clock is the chip's, 700 MHz instead of 1000; slices of 4 KiB, the least that its schedule "
        "takes, in a memory of 4 MiB",
    ),
}  # fmt: skip


def peak_tops(config: ChipConfig) -> float:
    """Operations per second at the nominal clock, two for each MAC, in units of 1e12."""
    return 2 * config.macs_per_cycle * config.clock_mhz / 1e6


def gigabytes_per_second(config: ChipConfig) -> float:
    """What HBM moves at the nominal clock, in units of 1e9 bytes."""
    slower = min(1, config.memory_clocks / config.core_clocks)
    return config.hbm_bytes_per_cycle * slower * config.clock_mhz / 1e3


def memory_text(config: ChipConfig) -> str:
    """What HBM is, in words."""
    ecc = f", ECC {config.ecc}" if config.ecc != "off" else ""
    if not config.is_dram:
        return {"sram": "SRAM", "axi4": "on an AXI4 port of 256 bits"}[config.memory] + ecc
    channels = config.hbm_beat_bytes // CHANNEL_BEAT
    clocks = f", {config.memory_clocks} clocks in {config.core_clocks} of the core" if config.memory_crosses else ""
    return (
        f"{channels} channel{'s' * (channels > 1)} of {config.memory.upper()}, {config.dram_gigabits} Gb each, "
        f"refresh {config.dram_refresh}{clocks}{ecc}"
    )


def markdown() -> str:
    """The generated part of ``docs/presets.md``."""
    lines = [
        "| preset | array | types | clock | peak | VMEM + accumulators | memory | HBM bytes/cycle | beat | GB/s "
        "| slice | HBM |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in PRESETS.values():
        lines.append(
            f"| `{c.name}` | {c.rows}x{c.cols} | {c.dtype} | {c.clock_mhz} MHz | {peak_tops(c):.2f} TOPS "
            f"| {size_text(c.vmem_bytes)} + {size_text(c.acc_bytes)} "
            f"| {c.memory} | {c.hbm_bytes_per_cycle} | {c.hbm_beat_bytes} bytes "
            f"| {gigabytes_per_second(c):.1f} | {c.slice_bytes} bytes | {size_text(c.hbm_bytes)} |")  # fmt: skip
    lines += ["", "| preset | for | published figures it follows | where it differs |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {n.purpose} | {n.follows} | {n.differs} |" for name, n in NOTES.items()]
    return "\n".join(lines) + "\n"

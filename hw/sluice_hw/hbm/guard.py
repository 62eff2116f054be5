"""ECC between the requesters' port and a memory: codec, scrubber, counters, injection."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, Signature, connect, flipped

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from .coded import CodedPortSignature, EccCodec
from .errors import ErrorMasks, injection_layout
from .inband import InbandCodec, inband_slices
from .scrub import Scrubber
from .watch import DeviceWatch

__all__ = ["MODES", "EccGuard", "EccStatusSignature", "usable_slices"]

#: Where check bits are kept. ``sideband``: beside the data, the memory's port carries them. ``inband``: in slices of
#: their own at the end of memory. ``device``: the memory corrects by itself and marks a beat that it cannot.
MODES = ("sideband", "inband", "device")
#: Counters stop at their top.
_TOP = (1 << 32) - 1


def usable_slices(config: ChipConfig, mode: str) -> int:
    """Slices that hold data: 8 of 9 in mode ``inband``, else all."""
    return inband_slices(config) if mode == "inband" else config.hbm_slices


class EccStatusSignature(Signature):
    """Counters of errors, and where the last ones were, from the guard's view.

    ``corrected``, ``detected``: 64-bit words. ``scrubbed``, ``repaired``: slices that the scrubber has read, and
    written back. ``corrected_slice`` and ``_word``, ``detected_slice`` and ``_word``: the last such word.
    """

    def __init__(self, config: ChipConfig) -> None:
        word = range(max(2, config.slice_bytes // 8))
        super().__init__({
            "corrected": Out(32), "detected": Out(32), "scrubbed": Out(32), "repaired": Out(32),
            "corrected_slice": Out(ADDR_BITS), "corrected_word": Out(word),
            "detected_slice": Out(ADDR_BITS), "detected_word": Out(word),
        })  # fmt: skip


class EccGuard(wiring.Component):
    """Protects what lies behind a slice port.

    A single error is corrected on the way; a word with two makes its beat one with ``error``, and is named in
    ``status``. Requests beyond the usable slices are refused. What memory holds, wrong bits included, and the counters
    survive a reset.

    Parameters
    ----------
    config : ChipConfig
    mode : one of :data:`MODES`
    model : bool
        The memory keeps data only and errors are injected in front of it (:class:`~.errors.ErrorMasks`); then
        ``memory`` is a plain port in mode ``sideband``, too. Without, nothing is injected.
    stored : bool
        With ``model`` and mode ``sideband``: the memory keeps check bits too, and errors are injected in front of both.
    entries : int
        Wrong words that the model holds at a time.

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(SlicePortSignature(config)), or Out(CodedPortSignature(config)) for a memory with check bits
    period : In(32)
        Cycles between scrubs, 0 for none. Has no effect in mode ``device``.
    inject : In(stream of :func:`~.errors.injection_layout`)
        Taken as soon as the model has room for it; never in mode ``device``, or without the model.
    clear : In(1)
        Sets the counters to 0.
    status : Out(EccStatusSignature(config))

    Raises
    ------
    ValueError
        For an unknown mode.
    """

    def __init__(
        self, config: ChipConfig, *, mode: str, model: bool = True, stored: bool = False, entries: int = 4
    ) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if mode not in MODES:
            raise ValueError(f"ECC mode must be one of {', '.join(MODES)}, not {mode!r}")
        if stored and mode != "sideband":
            raise ValueError(f"check bits are stored beside the data in ECC mode sideband, not in {mode!r}")
        self._config, self._mode, self._model, self._stored, self._entries = config, mode, model, stored, entries
        coded = mode == "sideband" and (stored or not model)
        super().__init__({
            "port": In(SlicePortSignature(config)),
            "memory": Out(CodedPortSignature(config) if coded else SlicePortSignature(config)),
            "period": In(32), "inject": In(stream.Signature(injection_layout(config))), "clear": In(1),
            "status": Out(EccStatusSignature(config)),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    @property
    def mode(self) -> str:
        return self._mode

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        m.submodules.scrubber = scrubber = Scrubber(config, slices=usable_slices(config, self._mode))
        codec = {"sideband": EccCodec, "inband": InbandCodec, "device": DeviceWatch}[self._mode](config)
        m.submodules.codec = codec
        connect(m, flipped(self.port), scrubber.port)
        connect(m, scrubber.memory, codec.port)
        m.d.comb += [
            scrubber.period.eq(0 if self._mode == "device" else self.period),
            scrubber.corrected.eq(codec.event.corrected != 0),
        ]  # fmt: skip
        if self._model and self._mode != "device":
            coded = self._mode == "sideband"
            masks = ErrorMasks(config, coded=coded, stored=self._stored, entries=self._entries)
            m.submodules.masks = masks
            connect(m, codec.memory, masks.port)
            connect(m, masks.memory, flipped(self.memory))
            connect(m, flipped(self.inject), masks.inject)
        else:
            connect(m, codec.memory, flipped(self.memory))

        # Counters, without a reset: a program that an error has ended is followed by one.
        status, event = self.status, codec.event
        counters = (("corrected", event.corrected), ("detected", event.detected),
                    ("scrubbed", scrubber.scrubbed), ("repaired", scrubber.repaired))  # fmt: skip
        for name, more in counters:
            count, total = Signal(32, name=f"{name}_count", reset_less=True), Signal(33, name=f"{name}_total")
            m.d.comb += [total.eq(count + more), getattr(status, name).eq(count)]
            m.d.sync += count.eq(Mux(self.clear, 0, Mux(total[32], _TOP, total)))
        for name in ("corrected", "detected"):
            slice_ = Signal(ADDR_BITS, name=f"{name}_slice_held", reset_less=True)
            word = Signal(len(event.word), name=f"{name}_word_held", reset_less=True)
            m.d.comb += [getattr(status, f"{name}_slice").eq(slice_), getattr(status, f"{name}_word").eq(word)]
            with m.If(getattr(event, name) != 0):
                m.d.sync += [slice_.eq(event.slice), word.eq(event.word)]
        return m

"""Weight tiles in time: read ahead into a queue of rows, which feeds the array when the tile before was swapped in."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sluice.golden.units import MicroOp

from .ports import Stream

if TYPE_CHECKING:
    from .mxu import TimedMatrix

__all__ = ["Loader", "Tile"]


class Tile(Stream):
    """One LOAD_WEIGHTS.

    Attributes
    ----------
    complete
        The cycle in which its last row leaves for the array, from which on it can be swapped in; None: not known.
    asked
        The cycle in which its last row is asked for; None: not known.
    """

    priority = 2

    def __init__(self, loader: Loader, op: MicroOp, start: int, unlock: int | None) -> None:
        mxu, config = loader.mxu, loader.mxu.engine.config
        self._loader, self.op, self.started = loader, op, start
        self.unlock = unlock
        self.complete: int | None = None
        self.asked: int | None = None
        self._rows, self._real = config.rows, op.fields["k"]
        self._vmem, self._pitch = op.address["vmem"], op.fields["pitch"]
        span = (self._real - 1) * self._pitch
        self.regions = mxu.engine.ports.banks.regions(
            self._vmem + min(span, 0), self._vmem + max(span, 0) + config.word_bytes - 1)
        self._asked = self._fed = 0
        self._since = 0
        self._paused = False
        self._arrive: deque[int] = deque()
        self.version = 0
        self.begun = False
        self._before: Tile | None = loader.tiles[-1] if loader.tiles else None

    def begin(self) -> None:
        """Its first row is asked for in this cycle."""
        self.begun = True
        self._loader.mxu.engine.ports.add(self)

    def set_unlock(self, time: int) -> None:
        """The tile before is swapped in: rows may leave from ``time`` on."""
        self.unlock = time
        if self.begun and not self.stepping:
            if self._paused:
                self.resume()
            else:
                self.sync()
                self.plan()

    def resume(self) -> None:
        """There is room for rows again."""
        if self._paused:
            self._paused = False
            self._loader.mxu.engine.ports.add(self)

    @property
    def all_asked(self) -> bool:
        """Whether the next tile's rows may be asked for."""
        return self._asked == self._rows or not self.stepping

    def held(self, now: int) -> int:
        """Rows asked for before this cycle that have not left for the array."""
        asked, fed = self._asked, self._fed
        if self.begun and not self.stepping and not self._paused:
            if self.complete is not None:
                fed = max(fed, min(self._rows, self._rows - 1 - (self.complete - now)))
            asked = min(self._rows, asked + now - self._since, fed + self._loader.mxu.timing.WEIGHT_ROWS_AHEAD)
        return asked - fed

    def plan(self) -> None:
        engine, timing = self._loader.mxu.engine, self._loader.mxu.timing
        self._since = engine.now
        self.version += 1
        version = self.version
        self._paused = False
        left = self._rows - self._asked
        if self.unlock is None:
            # Rows of a tile that feeds the array make room as fast as these can be asked for.
            room = min(left, self._loader.room(locked=True))
            engine.at(self._since + room, lambda: self._pause(version))
            if room == left:
                self._set_asked(self._since + left - 1)
            return
        last = self._since + left - 1
        natural = last + timing.GRANT_TO_ROW if left else self._since
        complete = max(natural, max(self.unlock, self._since) + self._rows - self._fed - 1)
        if self._arrive:
            complete = max(complete, self._arrive[0] + self._rows - self._fed - 1)
        self.complete = complete
        if left:
            ahead = timing.WEIGHT_ROWS_AHEAD
            lag = complete - ahead + 2 if self._rows > ahead else last
            self._set_asked(max(last, min(lag, complete - timing.GRANT_TO_ROW)))
        engine.at(complete, lambda: self._done(version))

    def _set_asked(self, time: int) -> None:
        if self.asked is None:
            self.asked = time
            self._loader.asked(self)

    def _pause(self, version: int) -> None:
        if version == self.version:
            self.sync()
            self._paused = True
            self._loader.mxu.engine.ports.remove(self)

    def _done(self, version: int) -> None:
        if version == self.version:
            self._loader.mxu.engine.ports.remove(self)
            self._loader.done(self, self._loader.mxu.engine.now)

    def sync(self) -> None:
        now, timing = self._loader.mxu.engine.now, self._loader.mxu.timing
        self.version += 1
        asked = self._asked
        if self.complete is not None:
            self._fed = max(self._fed, min(self._rows, self._rows - 1 - (self.complete - now)))
            self.complete = None
        self._asked = min(self._rows, asked + now - self._since, self._fed + timing.WEIGHT_ROWS_AHEAD)
        held = self._asked - self._fed
        self._arrive = deque(max(now - held + i, now - timing.GRANT_TO_ROW) + timing.GRANT_TO_ROW for i in range(held))
        if self._asked == self._rows and self.asked is None:
            self._set_asked(now)

    def step(self, time: int, taken: int) -> int:
        loader, ports = self._loader, self._loader.mxu.engine.ports
        if self._arrive and self.unlock is not None and time >= self.unlock and self._arrive[0] <= time:
            self._arrive.popleft()
            self._fed += 1
            loader.fed.append(time)
            ports.progress = True
            if self._fed == self._rows:
                self.complete = time
                self._before = None
                ports.remove(self)
                loader.done(self, time)
                return taken
        if self._asked < self._rows and loader.room() > 0 and (self._before is None or self._before.all_asked):
            mask = ports.banks.narrow(self._vmem + self._asked * self._pitch) if self._asked < self._real else 0
            ports.progress = True
            if mask & taken:
                loader.mxu.waits["VMEM"] += 1
            else:
                self._asked += 1
                self._arrive.append(time + loader.mxu.timing.GRANT_TO_ROW)
                if self._asked == self._rows - 1:
                    self._set_asked(time + 1)  # the last row stands ready, and the next tile may move up
            return taken | mask
        return taken


class Loader:
    """The tiles that are started and not swapped in."""

    def __init__(self, mxu: TimedMatrix) -> None:
        self.mxu = mxu
        self._waiting: Tile | None = None  # behind the one being read
        self._last: Tile | None = None  # read last
        self._began = -1  # when the tile read last left the waiting place
        #: Tiles not complete, or complete and not swapped in; oldest first.
        self.tiles: deque[Tile] = deque()
        self._unlock: int | None = 0
        self.started = 0
        self.fed: deque[int] = deque()  # when rows left that have not made room yet
        self._ended: list[int] = []

    def may_start(self, shown: int) -> int | None:
        """When a LOAD_WEIGHTS can start."""
        if self._waiting is not None:
            return None
        if self.started >= self.mxu.timing.TILES:
            known = self.started - self.mxu.timing.TILES
            if known >= len(self._ended):
                return None
            shown = max(shown, self._ended[known] + 1)
        return max(shown, self._began)

    def start(self, op: MicroOp, time: int) -> None:
        self.started += 1
        tile = Tile(self, op, time, self._unlock)
        self._unlock = None
        self.tiles.append(tile)
        self._waiting = tile
        self._begin()

    def _begin(self) -> None:
        tile, timing = self._waiting, self.mxu.timing
        if tile is None:
            return
        began = tile.started + timing.LOAD_TO_READ
        if self._last is not None:
            if self._last.asked is None:
                return
            began = max(began, self._last.asked - timing.ROW_TO_REQUEST)
        self._began, self._last, self._waiting = began, tile, None
        self.mxu.engine.at(began + 1 + timing.ROW_TO_REQUEST, tile.begin)
        self.mxu.poke()

    def room(self, *, locked: bool = False) -> int:
        """Rows that may be asked for; ``locked``: as far as tiles go that cannot feed the array yet."""
        now = self.mxu.engine.now
        held = sum(tile.held(now) for tile in self.tiles if not locked or tile.unlock is None)
        while self.fed and self.fed[0] <= now - self.mxu.timing.ROOM_TO_REQUEST:
            self.fed.popleft()
        return self.mxu.timing.WEIGHT_ROWS_AHEAD - held - len(self.fed)

    def asked(self, tile: Tile) -> None:
        """A tile's last row is, or will be, asked for."""
        self._begin()

    def done(self, tile: Tile, time: int) -> None:
        """A tile's last row leaves for the array."""
        self._ended.append(self.mxu.report(tile.op, time + self.mxu.timing.TILE_TO_TOKEN))
        self.mxu.tile_done()
        self.mxu.poke()

    def swap(self, time: int) -> None:
        """The first row of a pass takes the oldest tile over, when it is issued in cycle ``time``."""
        self.tiles.popleft()
        if self.tiles:
            self.tiles[0].set_unlock(time + 1)
            for tile in list(self.tiles)[1:]:  # its rows make room for those of the tiles behind it
                self.mxu.engine.at(time + 1 + self.mxu.timing.ROOM_TO_REQUEST, tile.resume)
        else:
            self._unlock = time + 1

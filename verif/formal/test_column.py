"""A column of PEs adds what its specification says: sum over the rows of activation x weight of the active tile.

The specification knows nothing of stages. A row of activations is multiplied, in the cycle in which it enters, by the
tile that was streamed in completely before the last swap, and the sum comes out ``rows x latency`` cycles later. Rows,
weights and swaps come in any cycles that the rules of :mod:`sluice_hw.pe` allow, with bubbles anywhere.

Bound: columns of 3 PEs with latency 1 and of 2 with latency 2 (in the soak run 2 and 4 with latency 1, 3 with latency
2); operands of OPERAND_BITS bits, sign extended to 8 (4 in the soak run). Otherwise unbounded, by induction.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Module, Mux, Signal, signed

from sluice_hw.pe import PE
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

OPERAND_BITS = 3


class ColumnCheck(Check):
    """A column beside its specification."""

    def __init__(self, rows: int, latency: int, *, bits: int = OPERAND_BITS, pe: type = PE) -> None:
        super().__init__()
        self.rows, self.latency, self.bits, self.pe = rows, latency, bits, pe

    def small(self, value):
        return (value >= -(1 << self.bits - 1)) & (value < 1 << self.bits - 1)

    def describe(self, m: Module) -> None:
        rows, latency = range(self.rows), self.latency
        a_valid, a_swap = self.free(1, "a_valid"), self.free(1, "a_swap")
        a = [self.free(signed(8), f"a{r}") for r in rows]
        w_valid, w_data = self.free(1, "w_valid"), self.free(signed(8), "w_data")
        for value in (*a, w_data):
            m.d.comb += Assume(self.small(value))

        # Rules of use: tiles of `rows` rows; a swap behind the last one, the next tile not before the swap.
        row, full = Signal(range(self.rows + 1), name="row"), Signal(name="full")
        swap = Signal(name="swap")
        m.d.comb += [
            swap.eq(a_valid & a_swap),
            Assume(~swap | full),
            Assume(~w_valid | ~full | swap),
        ]
        with m.If(swap):
            m.d.sync += full.eq(0)
        with m.If(w_valid):
            m.d.sync += row.eq(row + 1)
            with m.If(row == self.rows - 1):
                m.d.sync += [row.eq(0), full.eq(1)]

        # The specification: the tile on its way in, the active one, the sums of the rows down to each.
        now: dict[str, Signal] = {
            "valid": a_valid, "swap": swap, "w_valid": w_valid, "w_data": w_data, "row": row,
            **{f"a{r}": a[r] for r in rows},
            **{f"coming{r}": Signal(signed(8), name=f"coming{r}") for r in rows},
            **{f"active{r}": Signal(signed(8), name=f"active{r}") for r in rows},
            **{f"weight{r}": Signal(signed(8), name=f"weight{r}") for r in rows},
            **{f"sum{r}": Signal(signed(18), name=f"sum{r}") for r in rows},
            # The last weight of those from row r on was that of row r.
            **{f"first{r}": Signal(name=f"first{r}") for r in rows},
        }
        for r in rows:
            with m.If(w_valid & (row == r)):
                m.d.sync += now[f"coming{r}"].eq(w_data)
            with m.If(swap):
                m.d.sync += now[f"active{r}"].eq(now[f"coming{r}"])
            with m.If(w_valid & (row >= r)):
                m.d.sync += now[f"first{r}"].eq(row == r)
            m.d.comb += [
                now[f"weight{r}"].eq(Mux(swap, now[f"coming{r}"], now[f"active{r}"])),
                now[f"sum{r}"].eq(sum(a[i] * now[f"weight{i}"] for i in range(r + 1))),
            ]
        # All of it as it was so many cycles ago. For the induction: neighbours in time belong together.
        past = [now]
        for age in range(1, self.rows * latency + 1):
            newer, older = past[-1], {name: Signal.like(value, name=f"{name}_{age}") for name, value in now.items()}
            m.d.sync += [older[name].eq(newer[name]) for name in now]
            for r in rows:
                coming, active, weight = (older[f"{name}{r}"] for name in ("coming", "active", "weight"))
                takes, passes = older["row"] == r, older["w_valid"] & (older["row"] >= r)
                self.invariant(m, newer[f"coming{r}"] == Mux(older["w_valid"] & takes, older["w_data"], coming))
                self.invariant(m, newer[f"active{r}"] == Mux(older["swap"], coming, active))
                self.invariant(m, newer[f"first{r}"] == Mux(passes, takes, older[f"first{r}"]))
                self.invariant(m, weight == Mux(older["swap"], coming, active))
                self.invariant(
                    m, older[f"sum{r}"] == (older[f"sum{r - 1}"] if r else 0) + older[f"a{r}"] * older[f"weight{r}"])
            past.append(older)
        # The operands stay small on their way.
        for then in past if self.bits < 8 else ():
            for name in ("w_data", *(f"{name}{r}" for name in ("a", "coming", "active") for r in rows)):
                self.invariant(m, self.small(then[name]))

        # The column, with the skew of the array around it.
        pes = [self.pe(rows=self.rows, latency=latency) for _ in rows]
        for r, pe in enumerate(pes):
            then = past[r * latency]
            m.submodules[f"pe{r}"], inside = open_up(pe)
            m.d.comb += [pe.left.valid.eq(then["valid"]), pe.left.data.eq(then[f"a{r}"])]
            # Without a row the swap bit means nothing.
            m.d.comb += pe.left.swap.eq(Mux(then["valid"], then["swap"], self.free(1, f"idle_swap{r}")))
            if r:
                above = pes[r - 1].down
                m.d.comb += [pe.up.psum.eq(above.psum), pe.up.w_valid.eq(above.w_valid),
                             pe.up.w_start.eq(above.w_start), pe.up.w_data.eq(above.w_data)]
            else:
                m.d.comb += [pe.up.psum.eq(0), pe.up.w_valid.eq(w_valid), pe.up.w_start.eq(row == 0),
                             pe.up.w_data.eq(w_data)]

            # What this PE holds is what the specification held when the wave front entered.
            self.invariant(m, inside["shadow"] == then[f"coming{r}"])
            self.invariant(m, inside["active"] == then[f"active{r}"])
            self.invariant(m, inside["next_is_first"] == then[f"first{r}"])
            self.invariant(m, ~pe.left.valid | (inside["weight"] == then[f"weight{r}"]))
            for stage in range(latency):
                then = past[r * latency + stage + 1]
                passed = then["w_valid"] & (then["row"] > r)
                self.invariant(m, inside[f"psum_valid{stage}"] == then["valid"])
                self.invariant(m, ~then["valid"] | (inside[f"psum{stage}"] == then[f"sum{r}"]))
                self.invariant(m, inside[f"w_valid{stage}"] == passed)
                self.invariant(m, ~passed | (inside[f"w{stage}"] == then["w_data"]))
                self.invariant(m, inside[f"w_start{stage}"] == (passed & (then["row"] == r + 1)))
        self.invariant(m, ~full | (row == 0))
        # The mark of the first row for the PE below is right because the rows come in order.
        for then in past:
            self.invariant(m, (then["row"] < self.rows) & (then["valid"] | ~then["swap"]))
            for r in range(self.rows - 1):
                self.invariant(m, then[f"first{r}"] == (then["row"] == r + 1))

        down = pes[-1].down
        self.claim(m, down.valid == past[-1]["valid"])
        with m.If(down.valid):
            self.claim(m, down.psum == past[-1][f"sum{self.rows - 1}"])


def columns(*sizes: tuple[int, int], bits: int = OPERAND_BITS) -> dict[str, Check]:
    return {f"column_{rows}_{latency}": ColumnCheck(rows, latency, bits=bits) for rows, latency in sizes}


def test_columns():
    prove_checks("column", columns((3, 1), (2, 2)), depth=2)


@pytest.mark.soak
def test_larger_columns():
    prove_checks("column_larger", columns((2, 1), (4, 1), (3, 2)), depth=2)


@pytest.mark.soak
def test_wider_operands():
    prove_checks("column_wide", columns((2, 1), bits=4), depth=2)


BUGS = {
    "new weight too early": ("weight.eq(Mux(left.swap, shadow, active))", "weight.eq(shadow)"),
    "swap a row late": ("weight.eq(Mux(left.swap, shadow, active))", "weight.eq(active)"),
    "keeps every weight": ("ours.eq(up.w_valid & up.w_start)", "ours.eq(up.w_valid)"),
    "mark of the first row too early": ("next_is_first.eq(ours)", "next_is_first.eq(1)"),
    "unsigned activation": (
        "total.eq(up.psum + left.data * weight)", "total.eq(up.psum + left.data.as_unsigned() * weight)"),
    "swap without a row": ("            with m.If(left.swap):\n", "        if 1:\n            with m.If(left.swap):\n"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("column_bites", ColumnCheck(3, 1, pe=altered(PE, bug)), depth=10)

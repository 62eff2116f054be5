"""Models that C++ drives, which leave what they reached when ``make coverage`` runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sluice.build import build_shared
from verif.cover import covering

__all__ = ["build_driven"]

# The first instance of a context to end takes the counts of all and empties the context: none is read of an instance
# that is gone. Each process adds up a model's counts in one file; the library's own place says which model it is.
_COUNTED = """
#include <dlfcn.h>
#include <unistd.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include "Vtop.h"
#include "verilated.h"
#include "verilated_cov.h"
namespace {
class CountedTop final : public Vtop {
public:
    using Vtop::Vtop;
    ~CountedTop() override {
        Dl_info self;
        if (!dladdr(reinterpret_cast<void*>(&sluice_counted), &self)) return;
        const auto model = std::filesystem::path(self.dli_fname).parent_path();
        const auto folder = model.parent_path().parent_path() / "report" / "driven" / model.filename()
            / std::to_string(getpid());
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "model") << model.string() << "\\n";
        const auto all = folder / "coverage.dat", fresh = folder / "fresh";
        contextp()->coveragep()->write(fresh.string());
        contextp()->coveragep()->clear();
        std::map<std::string, std::uint64_t> sums;
        for (const auto& path : {all, fresh}) {
            std::ifstream in(path);
            for (std::string line; std::getline(in, line);)
                if (const auto end = line.rfind("' "); line[0] == 'C' && end != line.npos)
                    sums[line.substr(0, end + 2)] += std::stoull(line.substr(end + 2));
        }
        std::filesystem::remove(fresh);
        std::ofstream out(all);
        for (const auto& [point, count] : sums) out << point << count << "\\n";
    }
private:
    static void sluice_counted() {}
};
}
#define Vtop CountedTop
"""


def build_driven(
    name: str,
    verilog: str,
    top: str,
    driver: str,
    *,
    counted: bool = True,
    opt: str = "-O1",
    verilator_args: Sequence[str] = (),
) -> Path:
    """A shared library as by :func:`sluice.build.build_shared`; with ``SLUICE_COVERAGE`` it counts what it reaches.

    Parameters
    ----------
    driver
        C++ text. It deletes its ``Vtop`` objects; those that live at one time and have no ``VerilatedContext`` of their
        own are counted until the first of them ends.
    counted
        ``False`` for hardware with a planted fault, which is not what is to be reached.
    """
    counts = counted and covering()
    return build_shared(
        name, verilog, top, _COUNTED + driver if counts else driver, coverage=counts, verilator_args=verilator_args,
        opt="-O1" if counts else opt,  # compiling takes the most time then
    )  # fmt: skip

// The host of a chip that runs inside the driver's own process: clock, reset, AXI masters, waveforms. Called by ctypes
// (rtl_library.py), which lets Python's other threads run meanwhile. One thread at a time may use a chip.
//
// Defined from outside:
//   SLUICE_RAM    member of the model's root that is the memory behind the chip
//   SLUICE_MEMORY_CLOCKS, SLUICE_CORE_CLOCKS   the memory has a clock of its own: so many in so many of the chip's
//   SLUICE_EDGE   the model has one clock and no other event: a rising edge is a call of its NBA region, and its inputs'
//                 logic need not be evaluated again where they have not changed

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include <sys/mman.h>
#include <unistd.h>

#include "Vtop.h"
#include "Vtop___024root.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

double sc_time_stamp() { return 0; }  // nothing in the chip asks for the time

#ifdef SLUICE_EDGE
void Vtop___024root___eval_nba(Vtop___024root* root);
#endif

namespace {

constexpr int kNoAnswer = -1;
constexpr uint64_t kPatience = 1 << 22;  // cycles without any handshake after which the chip is taken for dead
constexpr uint64_t kBeat = 8, kBurst = 256 * kBeat, kPage = 4096, kPeriod = 10;  // bytes, bytes, bytes, ns
constexpr double kSlice = 0.2;
#ifdef SLUICE_MEMORY_CLOCKS
constexpr int kResetCycles = 4 + 4 * SLUICE_CORE_CLOCKS / SLUICE_MEMORY_CLOCKS;  // several of either clock
#else
constexpr int kResetCycles = 4;
#endif

// The model has no threads of its own; the pool that would wait for work is not wanted.
struct Context : VerilatedContext {
    Context() { threads(1); }
};

class Chip {
public:
    Chip(const char* waves, uint64_t first, uint64_t last) : top{&context, ""}, first{first}, last{last} {
#if VM_TRACE
        if (waves) {
            context.traceEverOn(true);
            trace = std::make_unique<VerilatedFstC>();
            trace->set_time_unit("1ns");
            trace->set_time_resolution("1ns");
            top.trace(trace.get(), 99);
            trace->open(waves);
        }
#endif
        clear_memory();
        const Timer timer{*this};
        reset(1);
        top.clk = 0;
        top.s_axil_wstrb = 0xF;
        top.s_axi_wstrb = 0xFF;
        top.s_axi_awsize = top.s_axi_arsize = 3;
        top.s_axi_awburst = top.s_axi_arburst = 1;
        for (int i = 0; i < kResetCycles; ++i) step();
        reset(0);
        changed = true;
        step();
    }

    ~Chip() {
        Verilated::threadContextp(&context);  // where the model's parts sign off; not that of another chip
        top.final();
#if VM_TRACE
        if (trace) trace->close();
#endif
    }

    int csr_read(uint32_t offset, uint32_t* value) {
        const Timer timer{*this};
        top.s_axil_araddr = offset;
        top.s_axil_arvalid = top.s_axil_rready = 1;
        changed = true;
        for (uint64_t waited = 0; waited < kPatience; ++waited) {
            settle();
            const bool asked = top.s_axil_arvalid && top.s_axil_arready, answered = top.s_axil_rvalid;
            const int resp = top.s_axil_rresp;
            *value = top.s_axil_rdata;
            edge();
            if (asked) lower(top.s_axil_arvalid);
            if (answered) return lower(top.s_axil_rready), resp;
        }
        return kNoAnswer;
    }

    int csr_write(uint32_t offset, uint32_t value) {
        const Timer timer{*this};
        top.s_axil_awaddr = offset;
        top.s_axil_wdata = value;
        top.s_axil_awvalid = top.s_axil_wvalid = top.s_axil_bready = 1;
        changed = true;
        for (uint64_t waited = 0; waited < kPatience; ++waited) {
            settle();
            const bool asked = top.s_axil_awvalid && top.s_axil_awready, given = top.s_axil_wvalid && top.s_axil_wready;
            const bool answered = top.s_axil_bvalid;
            const int resp = top.s_axil_bresp;
            edge();
            if (asked) lower(top.s_axil_awvalid);
            if (given) lower(top.s_axil_wvalid);
            if (answered) return lower(top.s_axil_bready), resp;
        }
        return kNoAnswer;
    }

    int mem_read(uint64_t address, uint64_t size, uint8_t* data) {
        const Timer timer{*this};
        while (size) {
            const uint64_t bytes = burst(address, size);
            if (const int resp = read_burst(address, bytes / kBeat, data)) return resp;
            address += bytes, data += bytes, size -= bytes;
        }
        return 0;
    }

    int mem_write(uint64_t address, uint64_t size, const uint8_t* data) {
        const Timer timer{*this};
        while (size) {
            const uint64_t bytes = burst(address, size);
            if (const int resp = write_burst(address, bytes / kBeat, data)) return resp;
            address += bytes, data += bytes, size -= bytes;
        }
        return 0;
    }

    // Let `count` cycles pass, fewer when the interrupt rises and `for_interrupt`, or when kSlice seconds have passed:
    // then Python has a look at its signals and asks again. Returns how many have.
    uint64_t run(uint64_t count, bool for_interrupt) {
        const Timer timer{*this};
        settle();
        uint64_t done = 0;
        while (done < count && !(for_interrupt && top.irq)) {
            edge();
            if (++done % 64 == 0 && timer.elapsed() > kSlice) break;
        }
        return done;
    }

    bool interrupt() const { return top.irq; }

    // A window of waveforms counts its cycles from here on, unless an earlier call has set the point.
    void mark() {
        if (!marked && !all()) origin = cycles;
        marked = true;
    }

    bool all() const { return first == 0 && last == UINT64_MAX; }

    uint8_t* memory(uint64_t* bytes) {
        *bytes = sizeof top.rootp->SLUICE_RAM;
        return reinterpret_cast<uint8_t*>(&top.rootp->SLUICE_RAM);
    }

    uint64_t cycles = 0, shown = 0;  // simulated; in the waveform
    double seconds = 0;

private:
    using Clock = std::chrono::steady_clock;

    // Around every use of the model.
    struct Timer {
        explicit Timer(Chip& chip) : chip{chip} { Verilated::threadContextp(&chip.context); }
        Chip& chip;
        const Clock::time_point began = Clock::now();
        double elapsed() const { return std::chrono::duration<double>(Clock::now() - began).count(); }
        ~Timer() { chip.seconds += elapsed(); }
    };

    // The model's constructor leaves the memory alone (build/archive.py). Its pages are given back, to come again as
    // zeros when they are touched; they may hold what was here before.
    void clear_memory() {
        uint64_t bytes;
        uint8_t* const begin = memory(&bytes);
        const uintptr_t page = sysconf(_SC_PAGESIZE), at = reinterpret_cast<uintptr_t>(begin);
        const uint64_t head = std::min<uint64_t>(bytes, -at & (page - 1)), whole = (bytes - head) & ~(page - 1);
        std::memset(begin, 0, head);
        if (whole && madvise(begin + head, whole, MADV_DONTNEED)) std::memset(begin + head, 0, whole);
        std::memset(begin + head + whole, 0, bytes - head - whole);
    }

    static uint64_t burst(uint64_t address, uint64_t size) {
        return std::min({size, kBurst, kPage - address % kPage});
    }

    int read_burst(uint64_t address, uint64_t beats, uint8_t* data) {
        int worst = 0;
        top.s_axi_araddr = address;
        top.s_axi_arlen = beats - 1;
        top.s_axi_arvalid = top.s_axi_rready = 1;
        changed = true;
        for (uint64_t waited = 0; waited < kPatience; ++waited) {
            settle();
            const bool asked = top.s_axi_arvalid && top.s_axi_arready, given = top.s_axi_rvalid;
            if (given) {
                const uint64_t word = top.s_axi_rdata;
                std::memcpy(data, &word, kBeat);
                data += kBeat;
                worst = std::max<int>(worst, top.s_axi_rresp);
                waited = 0;
            }
            edge();
            if (asked) lower(top.s_axi_arvalid);
            if (given && --beats == 0) return lower(top.s_axi_rready), worst;
        }
        return kNoAnswer;
    }

    int write_burst(uint64_t address, uint64_t beats, const uint8_t* data) {
        top.s_axi_awaddr = address;
        top.s_axi_awlen = beats - 1;
        top.s_axi_awvalid = top.s_axi_wvalid = top.s_axi_bready = 1;
        const auto present = [&] {
            uint64_t word;
            std::memcpy(&word, data, kBeat);
            top.s_axi_wdata = word;
            top.s_axi_wlast = beats == 1;
            changed = true;
        };
        present();
        for (uint64_t waited = 0; waited < kPatience; ++waited) {
            settle();
            const bool asked = top.s_axi_awvalid && top.s_axi_awready, taken = top.s_axi_wvalid && top.s_axi_wready;
            const bool answered = top.s_axi_bvalid;
            const int resp = top.s_axi_bresp;
            edge();
            if (asked) lower(top.s_axi_awvalid);
            if (taken) {
                data += kBeat;
                waited = 0;
                if (--beats) present(); else lower(top.s_axi_wvalid);
            }
            if (answered) return lower(top.s_axi_bready), resp;
        }
        return kNoAnswer;
    }

    void lower(CData& valid) {
        valid = 0;
        changed = true;
    }

    void reset(int on) {
        top.rst = on;
#ifdef SLUICE_MEMORY_CLOCKS
        top.memory_rst = on;
#endif
    }

    void step() {
        settle();
        edge();
    }

    // A period of the chip's clock up to its falling edge, with what the memory's clock does in it.
    void rise() {
#ifdef SLUICE_MEMORY_CLOCKS
        // In units of which a period of the chip's clock has MEMORY_CLOCKS and one of the memory's CORE_CLOCKS.
        for (due += SLUICE_MEMORY_CLOCKS; due >= SLUICE_CORE_CLOCKS; due -= SLUICE_CORE_CLOCKS) {
            top.memory_clk = 1;
            top.eval();
            top.memory_clk = 0;
            top.eval();
        }
#endif
        top.clk = 1;
        top.eval();
    }

    // Outputs follow the inputs.
    void settle() {
        if (!changed) return;
        top.eval();
        changed = false;
    }

    // A rising edge, and everything after it.
    void edge() {
        ++cycles;
#if VM_TRACE
        if (trace) return traced_edge();
#endif
#ifdef SLUICE_EDGE
        Vtop___024root* const root = top.rootp;
        root->__VnbaTriggered[0U] = 1;
        Vtop___024root___eval_nba(root);
        root->__VnbaTriggered[0U] = 0;
#else
        rise();
        top.clk = 0;
        top.eval();
#endif
    }

#if VM_TRACE
    void traced_edge() {
        const uint64_t cycle = cycles - origin - 1;
        const bool show = all() || (marked && first <= cycle && cycle <= last);
        rise();
        if (show) trace->dump(cycle * kPeriod);
        top.clk = 0;
        top.eval();
        if (show) trace->dump(cycle * kPeriod + kPeriod / 2);
        shown += show;
    }
    std::unique_ptr<VerilatedFstC> trace;
#endif

    Context context;
    Vtop top;
    const uint64_t first, last;
    uint64_t origin = 0;
#ifdef SLUICE_MEMORY_CLOCKS
    int due = 0;
#endif
    bool marked = false, changed = true;
};

Chip& chip(void* handle) { return *static_cast<Chip*>(handle); }

}  // namespace

extern "C" {
// `waves`: FST file of the cycles `first` to `last` after the mark; null for none.
void* sluice_new(const char* waves, uint64_t first, uint64_t last) { return new Chip{waves, first, last}; }
void sluice_delete(void* handle) { delete &chip(handle); }
int sluice_csr_read(void* handle, uint32_t offset, uint32_t* value) { return chip(handle).csr_read(offset, value); }
int sluice_csr_write(void* handle, uint32_t offset, uint32_t value) { return chip(handle).csr_write(offset, value); }
int sluice_mem_read(void* handle, uint64_t address, uint64_t size, uint8_t* data) {
    return chip(handle).mem_read(address, size, data);
}
int sluice_mem_write(void* handle, uint64_t address, uint64_t size, const uint8_t* data) {
    return chip(handle).mem_write(address, size, data);
}
uint64_t sluice_run(void* handle, uint64_t cycles, int for_interrupt) { return chip(handle).run(cycles, for_interrupt); }
int sluice_interrupt(void* handle) { return chip(handle).interrupt(); }
void sluice_mark(void* handle) { chip(handle).mark(); }
uint8_t* sluice_memory(void* handle, uint64_t* bytes) { return chip(handle).memory(bytes); }
uint64_t sluice_shown(void* handle) { return chip(handle).shown; }
uint64_t sluice_cycles(void* handle) { return chip(handle).cycles; }
double sluice_seconds(void* handle) { return chip(handle).seconds; }
}

// Traffic for a Verilated slice controller (hw/sluice_hw/hbm/controller.py) with the DRAM of dram.cpp, which stands in front
// of this text, behind its pins. Python sets CHANNELS, SLICE_BEATS, SLICES, TABLE, PHY and what `place` needs as macros.
//
// Every beat that is read is compared with what was written to its slice last; trains that would touch slices of an
// unfinished write wait. Slices never written read as zeros.

#include <set>

#include "Vtop.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {

constexpr int WORDS = 8 * CHANNELS;  // of 32 bits in a beat
constexpr uint32_t UNKNOWN = 0xffffffff;

struct Rng {  // xorshift64*
    uint64_t s;
    explicit Rng(uint64_t seed) : s(seed * 0x9E3779B97F4A7C15ull + 1) { for (int i = 0; i < 8; i++) next(); }
    uint64_t next() { s ^= s >> 12; s ^= s << 25; s ^= s >> 27; return s * 0x2545F4914F6CDD1Dull; }
    bool percent(int p) { return int((next() >> 33) % 100) < p; }
};

inline uint32_t pattern(uint32_t slice, uint32_t version, int beat, int word) {
    if (!version) return 0;
    uint64_t x = (uint64_t(slice) << 32 | version) * 0x9E3779B97F4A7C15ull + uint64_t(beat * 64 + word) * 0xD1B54A32D192ED03ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    return uint32_t(x >> 32);
}

struct Train { uint32_t slice; uint32_t count; bool refused; };

struct Counts {
    uint64_t cycles, read_slices, write_slices, read_trains, write_trains, refused, errors, wrong, broken_rules, columns,
        latencies[8], latency_count, port_latencies[8], port_latency_count, worst_wait[2], longest_done, corrected, detected, stuck,
        wrong_checks, scrubbed, repaired, row_commands[6];
};

struct Bench {
    std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    std::unique_ptr<Vtop> top;
    dram::Device device{dram::TABLES[TABLE], CHANNELS, PHY};
    Rng rng;
    Counts c{};
    std::string first_wrong;
    std::vector<uint32_t> version = std::vector<uint32_t>(SLICES, 0), writing = std::vector<uint32_t>(SLICES, 0),
                          reading = std::vector<uint32_t>(SLICES, 0);
    std::deque<Train> offer[2], open[2], sending;
    bool offered[2] = {};
    uint32_t read_beat = 0, read_slice = 0, send_beat = 0, send_slice = 0, wait[2] = {};
    bool sending_valid = false;
    int pause_request = 0, pause_sink = 0, pause_source = 0;
    bool sink_always = true;
    std::deque<uint64_t> grants[2], port_grants;
    std::set<uint64_t> latencies, port_latencies;
    uint64_t last_move = 0, next_version = 1;
    explicit Bench(uint64_t seed) : rng(seed) {}
    void bad(const std::string& what) {
        if (!c.wrong++) first_wrong = "clock " + std::to_string(device.now) + ": " + what;
    }
    bool clear_of(int kind, const Train& t) {
        if (t.refused) return true;
        for (uint32_t s = t.slice; s < t.slice + t.count; s++)
            if (writing[s] || (kind && reading[s])) return false;
        return true;
    }
    void mark(int kind, const Train& t, int by) {
        if (t.refused) return;
        for (uint32_t s = t.slice; s < t.slice + t.count; s++) (kind ? writing : reading)[s] += by;
    }
    bool active() const {
        return !offer[0].empty() || !offer[1].empty() || !open[0].empty() || !open[1].empty() || !sending.empty();
    }
    // To the next edge of the memory's clock; the port's clock has MEMORY_CLOCKS to CORE_CLOCKS of it.
    void cycle(bool reset) {
        for (;;) {
            uint64_t memory = memory_edges * CORE_CLOCKS, core = core_edges * MEMORY_CLOCKS;
            bool at_memory = memory <= core, at_core = core <= memory;
            memory_edges += at_memory, core_edges += at_core;
            step(reset, at_memory, at_core);
            if (at_memory) return;
        }
    }
    uint64_t memory_edges = 0, core_edges = 0;
    void step(bool reset, bool at_memory, bool at_core) {
        Vtop& t = *top;
        t.rst = reset;
        bool sink = false;
        if (at_core) sink = offer_port(reset);
        t.lo = lo;
        t.hi = hi;
        t.period = period;
        t.clear = 0;
        if (at_memory) t.dram___05Fread_valid = device.read_pins(&t.dram___05Fread_data[0], checks_in());
        t.clk = 0;
#if MEMORY_CLOCKS != CORE_CLOCKS
        t.memory_rst = reset;
        t.memory_clk = 0;
#endif
        t.eval();
        if (at_memory) {
            // What the pins carry.
            uint32_t row = t.dram___05Frow, column = t.dram___05Fcolumn;
            device.commands(row & 7, row >> 3 & 1, row >> 4 & ((1 << BANK_BITS) - 1), row >> (4 + BANK_BITS), column & 3, column >> 2 & 1,
                            column >> 3 & ((1 << BANK_BITS) - 1), column >> (3 + BANK_BITS));
            if (column & 3) c.columns++;
            c.row_commands[row & 7]++;
            device.write_pins(&t.dram___05Fwrite_data[0], checks_out());
            if (!reset) observe_schedule();
        }
        if (at_core && !reset) observe_port(sink);
#if MEMORY_CLOCKS != CORE_CLOCKS
        t.memory_clk = at_memory;
        t.clk = at_core;
#else
        t.clk = 1;
#endif
        t.eval();
        if (!at_memory) return;
        device.now++;
        c.cycles++;
        c.broken_rules = device.checker.total;
        c.wrong_checks = device.memory.wrong_checks;
    }
    bool offer_port(bool reset) {
        Vtop& t = *top;
        for (int k = 0; k < 2; k++) {
            if (!offered[k] && !offer[k].empty() && !rng.percent(pause_request) && clear_of(k, offer[k].front()) && !reset) {
                offered[k] = true;
                mark(k, offer[k].front(), 1);
            }
            uint64_t payload = offer[k].empty() ? 0 : offer[k].front().slice | uint64_t(offer[k].front().count) << 32;
            (k ? t.port___05Fwrite___05Fvalid : t.port___05Fread___05Fvalid) = offered[k];
            (k ? t.port___05Fwrite___05Fpayload : t.port___05Fread___05Fpayload) = payload;
        }
        if (!sending_valid && !sending.empty() && !rng.percent(pause_source)) {
            sending_valid = true;
            const Train& train = sending.front();
            uint32_t slice = train.slice + send_slice;
            for (int i = 0; i < WORDS; i++)
                t.port___05Fwrite_data___05Fpayload[i] =
                    train.refused ? 0xdeadbeef : pattern(slice, uint32_t(next_version + send_slice), int(send_beat), i);
        }
        t.port___05Fwrite_data___05Fvalid = sending_valid;
        bool sink = !rng.percent(pause_sink);
        t.port___05Fread_data___05Fready = sink;
        t.port___05Fwrite_done___05Fready = sink;
        return sink;
    }
#if CHANNELS == 1
    uint32_t* checks_in() { return &top->dram___05Fread_check; }
    uint32_t* checks_out() { return &top->dram___05Fwrite_check; }
#elif CHANNELS == 2
    uint32_t* checks_in() { return reinterpret_cast<uint32_t*>(&top->dram___05Fread_check); }
    uint32_t* checks_out() { return reinterpret_cast<uint32_t*>(&top->dram___05Fwrite_check); }
#else
    uint32_t* checks_in() { return &top->dram___05Fread_check[0]; }
    uint32_t* checks_out() { return &top->dram___05Fwrite_check[0]; }
#endif
    void observe_schedule() {
        Vtop& t = *top;
        uint64_t now = device.now;
        for (int v = 0; v < 2; v++) {
            bool granted = t.granted && t.granted_write == v;
            if (granted) {
                c.worst_wait[v] = std::max<uint64_t>(c.worst_wait[v], wait[v]);
                wait[v] = 0;
                grants[v].push_back(now);
                if (!v) port_grants.push_back(now);
                (v ? c.write_slices : c.read_slices)++;
            } else if (t.waiting >> v & 1) {
                wait[v]++;
            } else {
                wait[v] = 0;
            }
        }
        if (t.done) {
            auto& queue = grants[t.done_write];
            if (queue.empty()) bad("a slice is done that was not granted");
            else latencies.insert(now - queue.front()), queue.pop_front();
            last_move = now;
        }
    }
    void observe_port(bool sink) {
        Vtop& t = *top;
        uint64_t now = device.now;
        bool moved = false;
        if (offered[0] && t.port___05Fread___05Fready) {
            open[0].push_back(offer[0].front());
            offer[0].pop_front();
            offered[0] = false, moved = true;
        }
        if (offered[1] && t.port___05Fwrite___05Fready) {
            open[1].push_back(offer[1].front());
            if (offer[1].front().count) sending.push_back(offer[1].front());
            offer[1].pop_front();
            offered[1] = false, moved = true;
        }
        if (sending_valid && t.port___05Fwrite_data___05Fready) {
            sending_valid = false, moved = true;
            Train& train = sending.front();
            if (++send_beat == SLICE_BEATS) {
                send_beat = 0;
                if (!train.refused) pending.push_back({train.slice + send_slice, uint32_t(next_version + send_slice)});
                if (++send_slice == train.count) {
                    send_slice = 0;
                    next_version += train.count;
                    sending.pop_front();
                }
            }
        }
        if (t.port___05Fread_data___05Fvalid && sink) moved = true, take_beat(now);
        if (t.port___05Fwrite_done___05Fvalid && sink) {
            moved = true;
            if (open[1].empty()) { bad("an answer to no write"); return; }
            Train train = open[1].front();
            open[1].pop_front();
            bool error = t.port___05Fwrite_done___05Fpayload & 1;
            c.write_trains++, c.errors += error, c.refused += train.refused;
            if (train.refused && !error) bad("a train that is to be refused is written");
            if (!train.refused && error && !expect_errors) bad("a write is answered with an error");
            mark(1, train, -1);
            if (!train.refused)
                for (uint32_t i = 0; i < train.count; i++) {
                    version[pending.front().first] = error ? UNKNOWN : pending.front().second;
                    pending.pop_front();
                }
        }
        if (moved) last_move = now;
    }
    void take_beat(uint64_t now) {
        Vtop& t = *top;
        if (open[0].empty()) { bad("a beat of no read"); return; }
        Train& train = open[0].front();
        unsigned flags = t.port___05Fread_data___05Fpayload[WORDS];
        bool last = flags & 1, error = flags >> 1 & 1;
        if (train.refused) {
            c.read_trains++, c.refused++;
            if (!error || !last) bad("a read that is to be refused is not");
            open[0].pop_front();
            return;
        }
        uint32_t slice = train.slice + read_slice;
        c.errors += error;
        if (error) { if (!expect_errors) bad("a beat with an error"); }
        else if (version[slice] != UNKNOWN)
            for (int i = 0; i < WORDS; i++)
                if (t.port___05Fread_data___05Fpayload[i] != pattern(slice, version[slice], int(read_beat), i)) {
                    bad("slice " + std::to_string(slice) + " beat " + std::to_string(read_beat) + " differs");
                    break;
                }
        if (++read_beat == SLICE_BEATS) {
            read_beat = 0;
            if (port_grants.empty()) bad("more slices than grants");
            else {
                if (sink_always) port_latencies.insert(now - port_grants.front());
                port_grants.pop_front();
            }
            if (++read_slice == train.count) {
                if (!last) bad("the last beat of a train is not marked");
                read_slice = 0;
                c.read_trains++;
                mark(0, train, -1);
                open[0].pop_front();
                return;
            }
        }
        if (last) bad("a train ends too early");
    }
    std::deque<std::pair<uint32_t, uint32_t>> pending;
    bool expect_errors = false;
    uint32_t period = 0, lo = 0, hi = SLICES;
};

void export_set(const std::set<uint64_t>& from, uint64_t* to, uint64_t& count) {
    count = from.size();
    int i = 0;
    for (uint64_t x : from) if (i < 8) to[i++] = x;
}

}  // namespace

extern "C" {

Bench* bench_new(uint64_t seed, const uint64_t* code) {
    auto* b = new Bench(seed);
    b->context->randReset(2);
    b->context->randSeed(int(seed & 0x7fffffff) | 1);
    b->top.reset(new Vtop(b->context.get()));
    if (code) std::memcpy(b->device.memory.code, code, sizeof b->device.memory.code);
    for (int i = 0; i < 4; i++) b->cycle(true);
    return b;
}
void bench_free(Bench* b) { delete b; }
void bench_pauses(Bench* b, int request, int sink, int source) {
    b->pause_request = request, b->pause_sink = sink, b->pause_source = source, b->sink_always = sink == 0;
}
void bench_train(Bench* b, int write, uint32_t slice, uint32_t count) {
    bool refused = count == 0 || slice < b->lo || uint64_t(slice) + count > b->hi || uint64_t(slice) + count > SLICES;
    b->offer[write].push_back({slice, count, refused});
}
// Runs `cycles`, or until nothing is open; gives up when nothing moves for `patience`.
void bench_run(Bench* b, uint64_t cycles, int until_empty, uint64_t patience) {
    b->last_move = b->device.now;
    for (uint64_t i = 0; i < cycles; i++) {
        if (until_empty && !b->active()) return;
        b->cycle(false);
        if (b->active() && b->device.now - b->last_move > patience) { b->c.stuck++; return; }
    }
    if (until_empty && b->active()) b->c.stuck++;
}
// What was under way is forgotten; slices that may have been touched are unknown.
void bench_reset(Bench* b, uint64_t cycles) {
    for (uint32_t s = 0; s < SLICES; s++) {
        if (b->writing[s]) b->version[s] = UNKNOWN;
        b->writing[s] = b->reading[s] = 0;
    }
    for (int k = 0; k < 2; k++) b->offer[k].clear(), b->open[k].clear(), b->offered[k] = false, b->grants[k].clear(), b->wait[k] = 0;
    b->next_version += 1 << 20;
    b->sending.clear(), b->pending.clear(), b->port_grants.clear();
    b->sending_valid = false, b->read_beat = b->read_slice = b->send_beat = b->send_slice = 0;
    for (uint64_t i = 0; i < cycles; i++) b->cycle(true);
}
void bench_silence(Bench* b, int on) { b->device.silent = on; }
void bench_expect_errors(Bench* b, int on) { b->expect_errors = on; }
void bench_clear(Bench* b) {
    uint64_t wrong = b->c.wrong, stuck = b->c.stuck;
    b->c = Counts{};
    b->c.wrong = wrong, b->c.stuck = stuck;
    b->latencies.clear(), b->port_latencies.clear();
}
void bench_counts(Bench* b, Counts* out) {
    export_set(b->latencies, b->c.latencies, b->c.latency_count);
    export_set(b->port_latencies, b->c.port_latencies, b->c.port_latency_count);
    b->c.corrected = b->top->status___05Fcorrected, b->c.detected = b->top->status___05Fdetected;
    b->c.scrubbed = b->top->status___05Fscrubbed, b->c.repaired = b->top->status___05Frepaired;
    *out = b->c;
}
const char* bench_wrong(Bench* b) { return b->first_wrong.c_str(); }
dram::Checker* bench_checker(Bench* b) { return &b->device.checker; }
uint8_t* bench_memory(Bench* b, uint64_t* bytes) { *bytes = b->device.memory.bytes; return b->device.memory.data; }
void bench_flip(Bench* b, uint64_t word, uint64_t data, int check) {
    auto& e = b->device.memory.errors[word];
    e.data ^= data, e.check ^= uint8_t(check);
}
void bench_scrub(Bench* b, uint32_t period) { b->period = period; }
void bench_window(Bench* b, uint32_t lo, uint32_t hi) { b->lo = lo, b->hi = hi; }
int bench_fault(Bench* b) { return b->top->fault; }
int bench_state(Bench* b) { return b->top->state; }

}  // extern "C"

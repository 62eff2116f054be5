// Routers, channels and clocks around two link ends (verif/models/link.py fills in the sizes, and puts cable.hpp first).
#include "Vtop.h"

namespace {

constexpr int WORDS = 64;  // of 32 bits: the widest port here

template <typename T> void get(const T& port, uint32_t* out, int words) {
    std::memset(out, 0, 4 * words);
    std::memcpy(out, &port, std::min<size_t>(sizeof(T), 4 * words));
}
template <typename T> void put(T& port, const uint32_t* in, int bits) {
    uint32_t copy[WORDS] = {};
    std::memcpy(copy, in, 4 * ((bits + 31) / 32));
    if (bits % 32) copy[bits / 32] &= (1u << bits % 32) - 1;
    std::memcpy(static_cast<void*>(&port), copy, sizeof(T));
}
uint32_t field(const uint32_t* in, int at, int bits) {
    uint64_t two = in[at / 32] | uint64_t(in[at / 32 + 1]) << 32;
    return (two >> at % 32) & ((1ull << bits) - 1);
}
void set_field(uint32_t* out, int at, int bits, uint32_t value) {
    for (int i = 0; i < bits; ++i) {
        uint32_t& word = out[(at + i) / 32];
        word = (word & ~(1u << (at + i) % 32)) | ((value >> i & 1) << (at + i) % 32);
    }
}

struct RouterSettings {
    double rate, take;
    uint32_t channels, blocked;
    uint64_t flits;
};
struct Report {
    uint64_t sent, received, wrong, missing, died_at, ended_at, over_credit, first_latency;
    uint32_t state, reason, mismatch, theirs, dead, ended;
    uint32_t counters[COUNTERS];
    uint64_t sent_vc[16], received_vc[16];
};

struct Router {
    RouterSettings s{0, 1, ~0u, 0, 0};
    Random random{0};
    int vcs, data_bits, vc_bits, credits[16] = {}, gives[16] = {}, turn = 0;
    uint64_t next[16] = {}, expect[16] = {}, sent_at[16][4096];
    int held[16] = {};
    uint64_t now = 0;
    Report r{};

    static uint64_t mix(uint64_t a, uint64_t b) { Random m{a * 0x100000001B3ull ^ b}; return m.next(); }
    // A flit says its count and a mix of channel and count over the rest of its data.
    void fill(uint32_t* flit, int vc, uint64_t count) const {
        for (int at = 0; at < data_bits; at += 32) {
            uint32_t value = at == 0 ? uint32_t(count) : uint32_t(mix(count, vc * 64 + at));
            set_field(flit, at, std::min(32, data_bits - at), value);
        }
        set_field(flit, data_bits, vc_bits, vc);
        set_field(flit, data_bits + vc_bits, 3, mix(count, vc) & 7);
    }
    void restart() {
        for (int v = 0; v < 16; ++v) { credits[v] = 0; gives[v] = DEPTH; next[v] = expect[v] = held[v] = 0; }
    }
};

struct Pair {
    VerilatedContext context;
    Vtop top{&context};
    Router routers[2];
    Channel channels[2];
    uint64_t period[2], due[2] = {0, 0}, edges[2] = {0, 0};
    int resetting[2] = {4, 4};

    Pair(uint64_t seed, uint64_t pa, uint64_t pb) {
        period[0] = pa; period[1] = pb;
        due[0] = pa; due[1] = pb;
        for (int e = 0; e < 2; ++e) {
            routers[e].random.state = Router::mix(seed, 1 + e);
            channels[e].random.state = Router::mix(seed, 11 + e);
            routers[e].vcs = e ? VCS_B : VCS_A;
            routers[e].data_bits = e ? DATA_BITS_B : DATA_BITS_A;
            routers[e].vc_bits = e ? VC_BITS_B : VC_BITS_A;
            routers[e].restart();
        }
        top.a_rst = top.b_rst = 1;
        top.eval();
    }
    ~Pair() { top.final(); }

#define ENDS(e, name) ((e) ? top.b_##name : top.a_##name)

    // What router `e` does at an edge, from what it sees before the edge; the results are driven after it.
    void router(int e) {
        Router& R = routers[e];
        Router& P = routers[!e];  // flits come from there
        const bool in_reset = resetting[e] > 0;
        ++R.now;
        uint32_t flit[WORDS] = {};
        bool valid = false;
        uint32_t give = 0;
        if (in_reset) {
            R.restart();
            if (--resetting[e] == 0) { if (e) top.b_rst = 0; else top.a_rst = 0; }
        } else {
            uint32_t state = ENDS(e, status);
            R.r.state = state & 3; R.r.reason = state >> 2 & 7; R.r.mismatch = state >> 5 & 7; R.r.theirs = state >> 8;
            R.r.dead = ENDS(e, tx__dead);
            R.r.ended = ENDS(e, rx__ended);
            if (R.r.dead && !R.r.died_at) R.r.died_at = R.now;
            if (R.r.ended && !R.r.ended_at) R.r.ended_at = R.now;
            uint32_t credit = ENDS(e, tx__credit);
            for (int v = 0; v < R.vcs; ++v) {
                R.credits[v] += credit >> v & 1;
                if (R.credits[v] > DEPTH) ++R.r.over_credit;
            }
            if (ENDS(e, rx__valid)) {
                uint32_t came[WORDS] = {}, wanted[WORDS] = {};
                const int words = (R.data_bits + R.vc_bits + 3 + 31) / 32;
                if (e) get(top.b_rx__flit, came, words); else get(top.a_rx__flit, came, words);
                int vc = field(came, R.data_bits, R.vc_bits);
                R.fill(wanted, vc, R.expect[vc]);
                if (std::memcmp(came, wanted, 4 * words) || R.held[vc] >= DEPTH || R.r.ended) ++R.r.wrong;
                uint64_t took = edges[!e] - P.sent_at[vc][R.expect[vc] % 4096];
                if (R.r.received == 0) R.r.first_latency = took;
                ++R.expect[vc]; ++R.r.received; ++R.r.received_vc[vc]; ++R.held[vc];
            }
            for (int v = 0; v < R.vcs; ++v) {
                if (R.gives[v]) { give |= 1u << v; --R.gives[v]; }
                else if (R.held[v] && !(R.s.blocked >> v & 1) && (R.s.take >= 1 || R.random.chance(R.s.take))) {
                    give |= 1u << v; --R.held[v];
                }
            }
            if (R.r.sent < R.s.flits && !R.r.dead && (R.s.rate >= 1 || R.random.chance(R.s.rate))) {
                for (int k = 0, first = R.s.rate >= 1 ? R.turn : R.random.below(R.vcs); k < R.vcs; ++k) {
                    int v = (first + k) % R.vcs;
                    if (!(R.s.channels >> v & 1) || !R.credits[v]) continue;
                    valid = true;
                    R.turn = (v + 1) % R.vcs;
                    --R.credits[v];
                    R.fill(flit, v, R.next[v]);
                    R.sent_at[v][R.next[v] % 4096] = edges[e];
                    ++R.next[v]; ++R.r.sent; ++R.r.sent_vc[v];
                    break;
                }
            }
        }
        drive[e].valid = valid; drive[e].give = give;
        std::memcpy(drive[e].flit, flit, sizeof flit);
    }
    struct Drive { bool valid; uint32_t give; uint32_t flit[WORDS]; bool word_valid; uint32_t word[WORDS]; } drive[2] = {};

    void apply(int e) {
        Drive& d = drive[e];
        const int bits = routers[e].data_bits + routers[e].vc_bits + 3;
        if (e) {
            top.b_tx__valid = d.valid; top.b_rx__credit = d.give; put(top.b_tx__flit, d.flit, bits);
            top.a_wire_in__valid = d.word_valid; put(top.a_wire_in__word, d.word, WIRE_A);
        } else {
            top.a_tx__valid = d.valid; top.a_rx__credit = d.give; put(top.a_tx__flit, d.flit, bits);
            top.b_wire_in__valid = d.word_valid; put(top.b_wire_in__word, d.word, WIRE_B);
        }
    }
    void channel(int e) {  // the direction whose sender is `e`
        uint32_t word[WORDS] = {};
        const int bits = e ? WIRE_B : WIRE_A;
        if (e) get(top.b_wire_out__word, word, (bits + 31) / 32); else get(top.a_wire_out__word, word, (bits + 31) / 32);
        const Bits* out = channels[e].step(ENDS(e, wire_out__valid) && !resetting[e], word, bits);
        drive[e].word_valid = out != nullptr;
        std::memset(drive[e].word, 0, sizeof drive[e].word);
        if (out) std::memcpy(drive[e].word, out->data(), 4 * out->size());
    }
    void step() {
        const uint64_t now = std::min(due[0], due[1]);
        const bool edge[2] = {due[0] == now, due[1] == now};
        for (int e = 0; e < 2; ++e) if (edge[e]) { channel(e); router(e); }
        for (int e = 0; e < 2; ++e) if (edge[e]) { if (e) top.b_clk = 1; else top.a_clk = 1; }
        top.eval();
        for (int e = 0; e < 2; ++e) if (edge[e]) {
            apply(e);
            if (e) top.b_clk = 0; else top.a_clk = 0;
            due[e] += period[e];
            ++edges[e];
        }
        top.eval();
    }
    bool done() const {
        for (int e = 0; e < 2; ++e)
            if (routers[e].r.sent < routers[e].s.flits || routers[!e].r.received < routers[e].r.sent) return false;
        return true;
    }
};
}  // namespace

extern "C" {
void* pair_new(uint64_t seed, uint64_t pa, uint64_t pb) { return new Pair(seed, pa, pb); }
void pair_delete(void* p) { delete static_cast<Pair*>(p); }
void pair_channel(void* p, int direction, const Fault* fault) { static_cast<Pair*>(p)->channels[direction].f = *fault; }
void pair_router(void* p, int end, const RouterSettings* s) { static_cast<Pair*>(p)->routers[end].s = *s; }
void pair_reset(void* p, int end) {
    Pair& pair = *static_cast<Pair*>(p);
    pair.resetting[end] = 4;
    if (end) pair.top.b_rst = 1; else pair.top.a_rst = 1;
    pair.routers[end].r = Report{};
}
uint64_t pair_run(void* p, uint64_t cycles, int until_done) {
    Pair& pair = *static_cast<Pair*>(p);
    const uint64_t start = pair.edges[0];
    while (pair.edges[0] - start < cycles && !(until_done && pair.done())) pair.step();
    return pair.edges[0] - start;
}
void pair_report(void* p, int end, Report* out) {
    Pair& pair = *static_cast<Pair*>(p);
    Router& R = pair.routers[end];
    uint32_t counters[COUNTERS];
    if (end) get(pair.top.b_counters, counters, COUNTERS); else get(pair.top.a_counters, counters, COUNTERS);
    R.r.missing = pair.routers[!end].r.sent - R.r.received;
    *out = R.r;
    std::memcpy(out->counters, counters, sizeof counters);
}
}

// Traffic for a Verilated torus, and the account of every packet. Python sets the constants (DATA_BITS, ...) as
// macros and flits.hpp in front of this text and calls the functions at the end through ctypes.
//
// The model is either one router, of which the driver makes one per node and does the wiring (all of a router's inputs go
// to registers, so that one evaluation per cycle is exact), or, with TORUS_TOP, the torus of hw/sluice_hw/ici/torus.py.
//
// Sources have queues without end. Every packet carries a number of its flow (source, destination, message, order), so
// that a flit that is lost, doubled, changed or out of its place is seen where it arrives.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

namespace {

constexpr int LANES = 8;
int ROWS, COLS, N;  // of the run; one router serves every torus up to its config's
constexpr int TAG_AT = HEADER_BITS;  // 16 bits: number

struct Rng {  // xorshift64*
    uint64_t s;
    explicit Rng(uint64_t seed) : s(seed * 0x9E3779B97F4A7C15ull + 1) { for (int i = 0; i < 8; i++) next(); }
    uint64_t next() { s ^= s >> 12; s ^= s << 25; s ^= s >> 27; return s * 0x2545F4914F6CDD1Dull; }
    uint32_t below(uint32_t n) { return uint32_t(((next() >> 32) * n) >> 32); }
    bool chance(double p) { return double(next() >> 11) * 0x1p-53 < p; }
};

struct Packet { uint64_t born; uint16_t number; uint8_t length; bool gone; };
struct Job { uint32_t flow; uint16_t number; uint8_t length, code; };
struct Assembly { bool open = false; uint32_t flow = 0; uint16_t number = 0; uint8_t at = 0; bool error = false; };

inline uint32_t flow_of(int src, int dst, int message, int order) { return ((src * N + dst) * 2 + message) * 2 + order; }

// What a body flit carries: anything that tells its packet and place.
inline uint64_t body(uint32_t flow, uint16_t number, int at) {
    uint64_t x = (uint64_t(flow) << 32 | uint64_t(number) << 8 | uint64_t(at)) * 0x9E3779B97F4A7C15ull;
    return (x >> 8) & ((1ull << DATA_BITS) - 1);
}

}  // namespace

extern "C" {

struct Counts {
    uint64_t cycles, created, delivered, latency_sum, packets_created, packets_delivered, packets_cut, packets_returned,
        packets_refused, backlog, hops, wrong, stuck, longest;
};

#ifdef TORUS_TOP
struct Fabric {
    Vtop top;
    explicit Fabric(VerilatedContext* context) : top(context, "top") {
        for (int n = 0; n < N; n++) top.inject_valid[n] = 0, top.eject_ready[n] = 0xff, top.dead[n] = 0;
        for (int i = 0; i < N * LANES; i++) top.inject_flit[i] = 0;
    }
    unsigned inject_ready(int n) { return top.inject_ready[n]; }
    void inject(int n, int l, uint64_t flit) { top.inject_flit[n * LANES + l] = flit; }
    void inject_valid(int n, unsigned mask) { top.inject_valid[n] = mask; }
    void eject_ready(int n, unsigned mask) { top.eject_ready[n] = mask; }
    unsigned eject_valid(int n) { return top.eject_valid[n]; }
    uint64_t eject(int n, int l) { return top.eject_flit[n * LANES + l]; }
    unsigned passed(int n) { return top.passed[n]; }
    void dead(int n, int port) { top.dead[n] |= 1 << port; }
    void cycle(bool reset) {
        top.rst = reset;
        top.clk = 1;
        top.eval();
        top.clk = 0;
        top.eval();
    }
};
#else
struct Pins {
    CData *in_valid[4], *in_credit[4], *in_ended[4], *out_valid[4], *out_credit[4], *out_dead[4];
    QData *in_flit[4], *out_flit[4], *inject[LANES], *eject[LANES];
    CData *inject_valid[LANES], *inject_ready[LANES], *eject_valid[LANES], *eject_ready[LANES];
};
struct Fabric {
    std::vector<std::unique_ptr<Vtop>> routers;
    std::vector<Pins> pins{size_t(N)};
    std::vector<std::array<int, 4>> peer{size_t(N)};
    explicit Fabric(VerilatedContext* context) {
        for (int n = 0; n < N; n++) {
            routers.emplace_back(new Vtop{context, "router"});
            Vtop& r = *routers[n];
            Pins& p = pins[n];
            int x = n % COLS, y = n / COLS;
            r.x = x;
            r.y = y;
            r.last_x = COLS - 1;
            r.last_y = ROWS - 1;
            peer[n][0] = y * COLS + (x + 1) % COLS;
            peer[n][1] = y * COLS + (x + COLS - 1) % COLS;
            peer[n][2] = (y + 1) % ROWS * COLS + x;
            peer[n][3] = (y + ROWS - 1) % ROWS * COLS + x;
#define LINK(i)                                                                                              \
    p.in_valid[i] = &r.link_in___05F##i##___05Fvalid, p.in_flit[i] = &r.link_in___05F##i##___05Fflit,                          \
    p.in_credit[i] = &r.link_in___05F##i##___05Fcredit, p.in_ended[i] = &r.link_in___05F##i##___05Fended,                      \
    p.out_valid[i] = &r.link_out___05F##i##___05Fvalid, p.out_flit[i] = &r.link_out___05F##i##___05Fflit,                      \
    p.out_credit[i] = &r.link_out___05F##i##___05Fcredit, p.out_dead[i] = &r.link_out___05F##i##___05Fdead;
#define LANE(i, m)                                                                                           \
    p.inject[2 * i + m] = &r.inject___05F##i##___05F##m##___05Fpayload, p.eject[2 * i + m] = &r.eject___05F##i##___05F##m##___05Fpayload, \
    p.inject_valid[2 * i + m] = &r.inject___05F##i##___05F##m##___05Fvalid,                                               \
    p.inject_ready[2 * i + m] = &r.inject___05F##i##___05F##m##___05Fready,                                               \
    p.eject_valid[2 * i + m] = &r.eject___05F##i##___05F##m##___05Fvalid,                                                 \
    p.eject_ready[2 * i + m] = &r.eject___05F##i##___05F##m##___05Fready;
            LINK(0) LINK(1) LINK(2) LINK(3)
            LANE(0, 0) LANE(0, 1) LANE(1, 0) LANE(1, 1) LANE(2, 0) LANE(2, 1) LANE(3, 0) LANE(3, 1)
            for (int l = 0; l < LANES; l++) *p.inject_valid[l] = 0, *p.inject[l] = 0, *p.eject_ready[l] = 1;
            for (int i = 0; i < 4; i++)
                *p.in_valid[i] = 0, *p.in_flit[i] = 0, *p.in_ended[i] = 0, *p.out_credit[i] = 0, *p.out_dead[i] = 0;
        }
    }
    ~Fabric() { for (auto& r : routers) r->final(); }
    static unsigned mask(CData* const* bits) {
        unsigned m = 0;
        for (int l = 0; l < LANES; l++) m |= unsigned(*bits[l]) << l;
        return m;
    }
    unsigned inject_ready(int n) { return mask(pins[n].inject_ready); }
    void inject(int n, int l, uint64_t flit) { *pins[n].inject[l] = flit; }
    void inject_valid(int n, unsigned m) { for (int l = 0; l < LANES; l++) *pins[n].inject_valid[l] = m >> l & 1; }
    void eject_ready(int n, unsigned m) { for (int l = 0; l < LANES; l++) *pins[n].eject_ready[l] = m >> l & 1; }
    unsigned eject_valid(int n) { return mask(pins[n].eject_valid); }
    uint64_t eject(int n, int l) { return *pins[n].eject[l]; }
    unsigned passed(int n) { return routers[n]->passed; }
    // The wire still carries what is sent in the cycle in which `dead` rises.
    void dead(int n, int port) { *pins[n].out_dead[port] = 1; *pins[n].in_ended[port] = 1; }
    void cycle(bool reset) {
        for (int n = 0; n < N; n++)
            for (int i = 0; i < 4; i++) {
                Pins& far = pins[peer[n][i]];
                *far.in_valid[i ^ 1] = *pins[n].out_valid[i];
                *far.in_flit[i ^ 1] = *pins[n].out_flit[i];
                *pins[n].out_credit[i] = *far.in_credit[i ^ 1];
            }
        for (auto& r : routers) {
            r->rst = reset;
            r->clk = 1;
            r->eval();
            r->clk = 0;
            r->eval();
        }
    }
};
#endif

struct Torus {
    std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    std::unique_ptr<Fabric> top;
    Rng rng;
    uint64_t now = 0, last_move = 0;
    std::vector<uint8_t> route;        // [order][src][dst]: header bits, 255: none
    std::vector<std::deque<Packet>> flows{size_t(N * N * 4)};
    std::vector<uint16_t> numbers = std::vector<uint16_t>(N * N * 4, 0);
    std::vector<std::deque<Job>> queues{size_t(N * LANES)};
    std::vector<int> sent = std::vector<int>(N * LANES, 0);
    std::vector<Assembly> assembly{size_t(N * LANES)};
    std::vector<uint64_t> arrived = std::vector<uint64_t>(N * N * 4, 0);  // flits by [dst][lane][src]
    std::vector<uint8_t> stall = std::vector<uint8_t>(N, 0);
    Counts c{};
    std::string first_wrong;
    // traffic
    double load = 0;
    int length_min = 1, length_max = 1, pattern = 0, messages = 2, orders = ORDERS, hot = 0, hot_percent = 0;
    int backpressure = 0;
    unsigned hold = 0;  // lanes that nobody empties, at all nodes
    bool faults = false;
    explicit Torus(uint64_t seed) : rng(seed) {}
};

static void wrong(Torus* t, const char* what, uint32_t flow, int node) {
    if (!t->c.wrong++) {
        char text[200];
        std::snprintf(text, sizeof text, "cycle %llu: %s: flow %u -> %u message %u order %u, seen at node %d",
                      (unsigned long long)t->now, what, flow / 4 / N, flow / 4 % N, flow >> 1 & 1, flow & 1, node);
        t->first_wrong = text;
    }
}

static void create(Torus* t, int src, int dst, int message, int order, int length) {
    uint8_t code = t->route[(order * N + src) * N + dst];
    t->c.packets_created++;
    t->c.created += length;
    if (code == 255) { t->c.packets_refused++; return; }
    order = code & 1;
    uint32_t flow = flow_of(src, dst, message, order);
    uint16_t number = t->numbers[flow]++;
    int sx = src % COLS, sy = src / COLS, dx = dst % COLS, dy = dst / COLS;
    bool go_x = sx != dx && (order == 0 || sy == dy);
    int port = go_x ? (code >> 1 & 1) : 2 + (code >> 2 & 1);
    if (src == dst) port = code >> 1 & 3;  // any will do, but one for the flow
    t->flows[flow].push_back({t->now, number, uint8_t(length), false});
    t->queues[src * LANES + port * 2 + message].push_back({flow, number, uint8_t(length), code});
    t->c.backlog += length;
}

static uint64_t flit_of(const Job& job, int at) {
    uint32_t flow = job.flow;
    uint32_t src = flow / 4 / N, dst = flow / 4 % N, message = flow >> 1 & 1, order = flow & 1;
    Flit f;
    f.vc = message << (ORDERS == 2 ? 2 : 1) | (ORDERS == 2 ? order << 1 : 0);
    f.head = at == 0;
    f.tail = at == job.length - 1;
    f.error = false;
    if (at)
        f.data = body(flow, job.number, at);
    else
        f.data = uint64_t(dst % COLS) | uint64_t(dst / COLS) << X_BITS | uint64_t(src % COLS) << (X_BITS + Y_BITS) |
                 uint64_t(src / COLS) << (2 * X_BITS + Y_BITS) | uint64_t(job.code >> 1) << (2 * (X_BITS + Y_BITS)) |
                 uint64_t(job.number) << TAG_AT;
    return pack(f);
}

static void arrive(Torus* t, int node, int lane, const Flit& f) {
    Assembly& a = t->assembly[node * LANES + lane];
    int message = lane & 1;
    if (f.head) {
        if (a.open) wrong(t, "a packet starts inside another", a.flow, node);
        uint64_t d = f.data;
        int dst = int(d & ((1 << X_BITS) - 1)) + COLS * int(d >> X_BITS & ((1 << Y_BITS) - 1));
        d >>= X_BITS + Y_BITS;
        int src = int(d & ((1 << X_BITS) - 1)) + COLS * int(d >> X_BITS & ((1 << Y_BITS) - 1));
        int order = ORDERS == 2 ? f.vc >> 1 & 1 : 0;
        if (src >= N || dst >= N) { wrong(t, "header destroyed", 0, node); return; }
        a = {true, flow_of(src, dst, message, order), uint16_t(f.data >> TAG_AT), 0, false};
    } else if (!a.open) {
        wrong(t, "a flit outside a packet", a.flow, node);
        return;
    } else if (!f.error && f.data != body(a.flow, a.number, a.at)) {
        wrong(t, "flit changed or out of place", a.flow, node);
    }
    a.at++;
    a.error |= f.error;
    int src = a.flow / 4 / N, dst = a.flow / 4 % N;
    if (!f.error && node == dst) {
        t->c.delivered++;
        t->arrived[(node * 4 + lane / 2) * N + src]++;
    }
    if (!f.tail) return;
    a.open = false;
    auto& flow = t->flows[a.flow];
    // In order: the first of the flow that is not accounted for. Errors come from other places and may overtake.
    size_t at = 0;
    while (at < flow.size() && (flow[at].gone || (a.error && flow[at].number != a.number))) at++;
    if (at == flow.size()) { wrong(t, "a packet arrives twice or was never sent", a.flow, node); return; }
    if (flow[at].number != a.number) {
        // Packets before it may still be on their way back as errors; without faults nothing is.
        size_t later = at;
        while (later < flow.size() && (flow[later].gone || flow[later].number != a.number)) later++;
        if (!t->faults || later == flow.size()) { wrong(t, "a packet is out of order in its flow", a.flow, node); return; }
        at = later;
    }
    Packet& p = flow[at];
    if (!a.error) {
        if (node != dst) wrong(t, "a packet arrives at the wrong node", a.flow, node);
        if (a.at != p.length) wrong(t, "a packet has a wrong length", a.flow, node);
        uint64_t latency = t->now - p.born;
        t->c.latency_sum += latency;
        if (latency > t->c.longest) t->c.longest = latency;
        t->c.packets_delivered++;
    } else if (node == dst) {
        t->c.packets_cut++;
    } else {
        // The node where it stranded answers the source.
        t->c.packets_returned++;
        if (message == 0) create(t, node, src, 1, a.flow & 1, 1);
    }
    p.gone = true;
    while (!flow.empty() && flow.front().gone) flow.pop_front();
}

static int destination(Torus* t, int src) {
    int x = src % COLS, y = src / COLS, dst;
    switch (t->pattern) {
    case 0: do dst = int(t->rng.below(N)); while (dst == src && N > 1); return dst;
    case 1: return y * COLS + (x + (COLS + 1) / 2 - 1) % COLS;
    case 2: return ROWS == COLS ? x * COLS + y : src;
    case 3: return int(t->rng.below(100)) < t->hot_percent ? t->hot : int(t->rng.below(N));
    default: return t->hot;
    }
}

Torus* torus_new(int rows, int cols, uint64_t seed, const uint8_t* route) {
    ROWS = rows, COLS = cols, N = rows * cols;
    auto* t = new Torus(seed);
    t->context->randReset(2);
    t->context->randSeed(int(seed & 0x7fffffff) | 1);
    t->top.reset(new Fabric(t->context.get()));
    t->route.assign(route, route + 2 * N * N);
    for (int i = 0; i < 4; i++) t->top->cycle(true);
    return t;
}
void torus_free(Torus* t) { delete t; }
void torus_routes(Torus* t, const uint8_t* route) { t->route.assign(route, route + 2 * N * N); }
void torus_traffic(Torus* t, double load, int length_min, int length_max, int pattern, int messages, int orders, int hot,
                   int hot_percent, int backpressure) {
    t->load = load; t->length_min = length_min; t->length_max = length_max; t->pattern = pattern;
    t->messages = messages; t->orders = orders; t->hot = hot; t->hot_percent = hot_percent; t->backpressure = backpressure;
}
// One end of a link; both are to be killed together.
void torus_kill(Torus* t, int node, int port) {
    t->top->dead(node, port);
    t->faults = true;
}
void torus_hold(Torus* t, int lanes) {
    t->hold = unsigned(lanes);
    for (int n = 0; n < N; n++) t->top->eject_ready(n, 0xff & ~t->hold);
}
void torus_send(Torus* t, int src, int dst, int message, int order, int length) { create(t, src, dst, message, order, length); }
void torus_clear(Torus* t) {
    uint64_t backlog = t->c.backlog;
    t->c = Counts{};
    t->c.backlog = backlog;
    std::fill(t->arrived.begin(), t->arrived.end(), 0);
}
void torus_counts(Torus* t, Counts* out) { *out = t->c; }
void torus_arrived(Torus* t, uint64_t* out) { std::memcpy(out, t->arrived.data(), t->arrived.size() * 8); }
const char* torus_wrong(Torus* t) { return t->first_wrong.c_str(); }

// Runs `cycles`; with `until_empty` stops when every packet is accounted for. Stops by itself when nothing has moved for
// `patience` cycles though something is under way (c.stuck).
void torus_run(Torus* t, uint64_t cycles, int generate, int until_empty, uint64_t patience) {
    auto& top = *t->top;
    const double rate = t->load * 2 / (t->length_min + t->length_max);
    const auto accounted = [&] {
        bool empty = t->c.backlog == 0;
        for (auto& flow : t->flows) empty &= flow.empty();
        return empty;
    };
    for (uint64_t i = 0; i < cycles; i++, t->now++, t->c.cycles++) {
        if (generate)
            for (int n = 0; n < N; n++)
                if (t->rng.chance(rate)) {
                    int dst = destination(t, n);
                    if (t->pattern && dst == n) continue;
                    uint32_t r = uint32_t(t->rng.next() >> 40);
                    int length = t->length_min + (t->length_max > t->length_min ? int(t->rng.below(t->length_max - t->length_min + 1)) : 0);
                    create(t, n, dst, t->messages == 2 ? r & 1 : 0, t->orders == 2 ? r >> 1 & 1 : 0, length);
                }
        bool moved = false;
        for (int n = 0; n < N; n++) {
            unsigned valid = 0, ready = top.inject_ready(n), taking = 0xff & ~t->hold;
            for (int l = 0; l < LANES; l++) {
                int at = n * LANES + l;
                auto& queue = t->queues[at];
                if (queue.empty()) continue;
                Job& job = queue.front();
                top.inject(n, l, flit_of(job, t->sent[at]));
                valid |= 1u << l;
                if (ready >> l & 1) {
                    moved = true;
                    t->c.backlog--;
                    if (++t->sent[at] == job.length) { t->sent[at] = 0; queue.pop_front(); }
                }
            }
            top.inject_valid(n, valid);
            if (t->backpressure) {
                // Requests (even lanes) may be held; responses too, but for short times.
                if (t->rng.below(8) == 0) t->stall[n] = uint8_t(t->rng.next() >> 33) & (t->rng.below(100) < unsigned(t->backpressure) ? 0xff : 0);
                taking &= uint8_t(~t->stall[n]);
                top.eject_ready(n, taking);
            }
            unsigned out = top.eject_valid(n) & taking;
            while (out) {
                int l = __builtin_ctz(out);
                out &= out - 1;
                moved = true;
                arrive(t, n, l, unpack(top.eject(n, l)));
            }
            unsigned passed = top.passed(n);
            t->c.hops += __builtin_popcount(passed);
            moved |= passed != 0;
        }
        top.cycle(false);
        if (moved) t->last_move = t->now;
        else if (until_empty && accounted()) return;
        if (t->now - t->last_move > patience) {
            if (!accounted()) { t->c.stuck = 1; return; }
            t->last_move = t->now;
        }
    }
    if (until_empty) t->c.stuck = 1;
}

}  // extern "C"

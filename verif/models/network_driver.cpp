// A torus of routers, network interfaces and links, cables between them, traffic, and the account of every packet. Python
// puts the constants, the names of the pins, part.py's header, flits.hpp and cable.hpp in front of this text.
//
// Outputs of the parts depend on registers alone, but for the lanes out through a network interface, which is settled
// between the router's edge and its own.

#include <cstdio>
#include <set>
#include <string>

namespace {

constexpr int PORTS = 4, LANES = 8, TAG_AT = HEADER_BITS;  // of the tag: 16 bits number, 8 bits length
int ROWS, COLS, N;

struct Packet { uint16_t number; uint8_t length; bool gone; };
struct Job { uint32_t flow; uint16_t number; uint8_t length; };
struct Assembly { bool open = false, error = false; uint32_t flow = 0; uint16_t number = 0; uint8_t at = 0; };

uint32_t flow_of(int src, int dst, int message) { return (src * N + dst) * 2 + message; }
uint64_t body(uint32_t flow, uint16_t number, int at) {
    return Random{uint64_t(flow) << 32 | uint64_t(number) << 8 | uint64_t(at)}.next() & ((1ull << DATA_BITS) - 1);
}

struct Element {  // an instance of a part
    const PartType* type;
    void* handle;
    std::vector<void*> pins;
    Element(const PartType* t, int count, uint64_t seed) : type(t), pins(count) { handle = t->make(seed, pins.data()); }
    Element(Element&& o) : type(o.type), handle(o.handle), pins(std::move(o.pins)) { o.handle = nullptr; }
    ~Element() { if (handle) type->end(handle); }
    uint64_t get(int pin, int bits) const { return pin_get(pins[pin], bits); }
    void set(int pin, int bits, uint64_t v) { pin_set(pins[pin], bits, v); }
};

#define LINK_IN(i, what) R_link_in__##i##__##what
#define LINK_OUT(i, what) R_link_out__##i##__##what
#define FOUR(macro, what) {macro(0, what), macro(1, what), macro(2, what), macro(3, what)}
#define LANE(prefix, i, m, what) prefix##__##i##__##m##__##what
#define EIGHT(prefix, what) {LANE(prefix, 0, 0, what), LANE(prefix, 0, 1, what), LANE(prefix, 1, 0, what), LANE(prefix, 1, 1, what), \
                             LANE(prefix, 2, 0, what), LANE(prefix, 2, 1, what), LANE(prefix, 3, 0, what), LANE(prefix, 3, 1, what)}
#define LANES_OF(what) {EIGHT(what, valid), EIGHT(what, ready), EIGHT(what, payload)}
constexpr int IN_VALID[] = FOUR(LINK_IN, valid), IN_FLIT[] = FOUR(LINK_IN, flit), IN_ENDED[] = FOUR(LINK_IN, ended),
              IN_CREDIT[] = FOUR(LINK_IN, credit), IN_DEAD[] = FOUR(LINK_IN, dead);
constexpr int OUT_VALID[] = FOUR(LINK_OUT, valid), OUT_FLIT[] = FOUR(LINK_OUT, flit), OUT_ENDED[] = FOUR(LINK_OUT, ended),
              OUT_CREDIT[] = FOUR(LINK_OUT, credit), OUT_DEAD[] = FOUR(LINK_OUT, dead);
struct Lanes { int valid[LANES], ready[LANES], payload[LANES]; };
constexpr Lanes R_INJECT = LANES_OF(R_inject), R_EJECT = LANES_OF(R_eject), I_INJECT = LANES_OF(I_inject),
                I_EJECT = LANES_OF(I_eject), RECEIVE = LANES_OF(I_receive);
constexpr int SEND_VALID[] = {I_send__0__valid, I_send__1__valid}, SEND_READY[] = {I_send__0__ready, I_send__1__ready},
              SEND_FLIT[] = {I_send__0__payload, I_send__1__payload};

struct Write { int dst, order, entry; };

}  // namespace

extern "C" {

struct Totals {
    uint64_t cycles, created, delivered, cut, answered, cut_answered, missing, unanswered, flits, wrong, stuck;
    // From the hardware's counters, all nodes together.
    uint64_t answers_made, responses_dropped, lost, retries, bad_frames;
};

struct Network {
    Random random;
    std::vector<Element> routers, interfaces, links;  // link of node n, port p: n * PORTS + p
    std::vector<Channel> cables;           // from that link
    std::vector<int> peer;                 // the link at its other end
    std::vector<std::deque<Job>> queues;   // node * 2 + message
    std::vector<int> sent;
    std::vector<std::deque<Packet>> flows;
    std::vector<uint16_t> numbers;
    std::vector<std::set<uint16_t>> cuts;  // of each flow: arrived cut, not answered yet
    std::vector<Assembly> assembly;
    std::vector<std::deque<Write>> writes;
    std::vector<uint64_t> by_flow;         // created, delivered, cut, answered of each
    std::vector<uint8_t> taking;
    Totals c{};
    std::string first_wrong;
    uint64_t now = 0, last_move = 0;
    double load = 0;
    int length_min = 1, length_max = 1, backpressure = 0, messages = 2;
    bool faults = false;
    explicit Network(uint64_t seed) : random{seed} {}
};

static void wrong(Network* t, const char* what, uint32_t flow, int node) {
    if (t->c.wrong++) return;
    char text[200];
    std::snprintf(text, sizeof text, "cycle %llu: %s: flow %u -> %u message %u, seen at node %d",
                  (unsigned long long)t->now, what, flow / 2 / N, flow / 2 % N, flow & 1, node);
    t->first_wrong = text;
}

static void create(Network* t, int src, int dst, int message, int length) {
    uint32_t flow = flow_of(src, dst, message);
    uint16_t number = t->numbers[flow]++;
    t->flows[flow].push_back({number, uint8_t(length), false});
    t->queues[src * 2 + message].push_back({flow, number, uint8_t(length)});
    t->c.created++;
    t->by_flow[flow * 4]++;
}

// What the node gives: destination and order wished for; the rest of the header is filled in by the hardware, so it is
// random here.
static uint64_t flit_of(Network* t, const Job& job, int at) {
    int dst = job.flow / 2 % N;
    Flit f{body(job.flow, job.number, at), 0, at == 0, at == job.length - 1, false};
    f.vc = uint32_t(body(job.flow, 0, 0)) & ((1u << VC_BITS) - 1);  // the order is the flow's, the rest is filled in, too
    if (at == 0) {
        f.data &= ((1ull << HEADER_BITS) - 1) & ~((1ull << (X_BITS + Y_BITS)) - 1);
        f.data |= uint64_t(dst % COLS) | uint64_t(dst / COLS) << X_BITS | uint64_t(job.number) << TAG_AT |
                  uint64_t(job.length) << (TAG_AT + 16);
    }
    return pack(f);
}

static void arrive(Network* t, int node, int lane, const Flit& f) {
    Assembly& a = t->assembly[node * LANES + lane];
    const int message = lane & 1;
    if (f.head) {
        if (a.open) wrong(t, "a packet starts inside another", a.flow, node);
        uint64_t d = f.data;
        int dst = int(d & ((1 << X_BITS) - 1)) + COLS * int(d >> X_BITS & ((1 << Y_BITS) - 1));
        d >>= X_BITS + Y_BITS;
        int src = int(d & ((1 << X_BITS) - 1)) + COLS * int(d >> X_BITS & ((1 << Y_BITS) - 1));
        if (dst != node || src >= N) { wrong(t, "a packet for another node", 0, node); return; }
        uint16_t number = uint16_t(f.data >> TAG_AT);
        if (f.error) {  // an error answer to a request of this node
            uint32_t flow = flow_of(node, src, 0);
            if (!f.tail || message == 0) { wrong(t, "an error in a first flit that is no answer", flow, node); return; }
            if (t->cuts[flow].erase(number)) { t->c.cut_answered++; return; }
            for (auto& p : t->flows[flow])
                if (!p.gone && p.number == number) {
                    if (uint8_t(f.data >> (TAG_AT + 16)) != p.length) wrong(t, "an answer with another tag", flow, node);
                    p.gone = true;
                    t->c.answered++;
                    t->by_flow[flow * 4 + 3]++;
                    return;
                }
            wrong(t, "an answer to nothing, or the second", flow, node);
            return;
        }
        a = {true, false, flow_of(src, dst, message), number, 0};
    } else if (!a.open) {
        wrong(t, "a flit outside a packet", a.flow, node);
        return;
    } else if (!f.error && f.data != body(a.flow, a.number, a.at)) {
        wrong(t, "flit changed or out of place", a.flow, node);
    }
    a.at++;
    a.error |= f.error;
    if (!f.error) t->c.flits++;
    if (!f.tail) return;
    a.open = false;
    auto& flow = t->flows[a.flow];
    size_t at = 0;
    while (at < flow.size() && flow[at].gone) at++;
    if (t->faults)  // those before it may be answered later, or lost
        while (at < flow.size() && (flow[at].gone || flow[at].number != a.number)) at++;
    if (at == flow.size() || flow[at].number != a.number) { wrong(t, "a packet arrives twice or out of order", a.flow, node); return; }
    Packet& p = flow[at];
    p.gone = true;
    if (a.error) {
        t->c.cut++;
        t->by_flow[a.flow * 4 + 2]++;
        if (message == 0) t->cuts[a.flow].insert(a.number);
    } else {
        if (a.at != p.length) wrong(t, "a packet has a wrong length", a.flow, node);
        t->c.delivered++;
        t->by_flow[a.flow * 4 + 1]++;
    }
    while (!flow.empty() && flow.front().gone) flow.pop_front();
}

static void cycle(Network* t, bool reset) {
    // Links and routers.
    for (int n = 0; n < N; n++) {
        Element &r = t->routers[n], &s = t->interfaces[n];
        for (int l = 0; l < LANES; l++) {
            pin_copy(r.pins[R_INJECT.valid[l]], s.pins[I_INJECT.valid[l]], 1);
            pin_copy(r.pins[R_INJECT.payload[l]], s.pins[I_INJECT.payload[l]], FLIT_BITS);
            pin_copy(s.pins[I_INJECT.ready[l]], r.pins[R_INJECT.ready[l]], 1);
            pin_copy(r.pins[R_EJECT.ready[l]], s.pins[I_EJECT.ready[l]], 1);
        }
        for (int p = 0; p < PORTS; p++) {
            Element& l = t->links[n * PORTS + p];
            pin_copy(l.pins[L_tx__valid], r.pins[OUT_VALID[p]], 1);
            pin_copy(l.pins[L_tx__flit], r.pins[OUT_FLIT[p]], FLIT_BITS);
            pin_copy(l.pins[L_tx__ended], r.pins[OUT_ENDED[p]], 1);
            pin_copy(l.pins[L_rx__credit], r.pins[IN_CREDIT[p]], VCS);
            pin_copy(l.pins[L_rx__dead], r.pins[IN_DEAD[p]], 1);
            pin_copy(r.pins[OUT_CREDIT[p]], l.pins[L_tx__credit], VCS);
            pin_copy(r.pins[OUT_DEAD[p]], l.pins[L_tx__dead], 1);
            pin_copy(r.pins[IN_VALID[p]], l.pins[L_rx__valid], 1);
            pin_copy(r.pins[IN_FLIT[p]], l.pins[L_rx__flit], FLIT_BITS);
            pin_copy(r.pins[IN_ENDED[p]], l.pins[L_rx__ended], 1);
        }
    }
    // Cables.
    for (size_t i = 0; i < t->links.size(); i++) {
        uint32_t word[WIRE_BITS / 32 + 2] = {};
        pin_copy(word, t->links[i].pins[L_wire_out__word], WIRE_BITS);
        const Bits* out = t->cables[i].step(!reset && t->links[i].get(L_wire_out__valid, 1), word, WIRE_BITS);
        Element& far = t->links[t->peer[i]];
        far.set(L_wire_in__valid, 1, out != nullptr);
        if (out) pin_copy(far.pins[L_wire_in__word], out->data(), WIRE_BITS);
    }
    for (auto& l : t->links) l.type->cycle(l.handle, reset);
    for (auto& r : t->routers) r.type->cycle(r.handle, reset);
    for (auto& s : t->interfaces) s.type->cycle(s.handle, reset);
    for (int n = 0; n < N; n++)
        for (int l = 0; l < LANES; l++) {
            pin_copy(t->interfaces[n].pins[I_EJECT.valid[l]], t->routers[n].pins[R_EJECT.valid[l]], 1);
            pin_copy(t->interfaces[n].pins[I_EJECT.payload[l]], t->routers[n].pins[R_EJECT.payload[l]], FLIT_BITS);
        }
}

Network* network_new(int rows, int cols, uint64_t seed, const PartType* router, const PartType* interface,
                     const PartType* link) {
    ROWS = rows, COLS = cols, N = rows * cols;
    auto* t = new Network(seed);
    t->queues.resize(N * 2); t->sent.resize(N * 2); t->flows.resize(N * N * 2); t->numbers.resize(N * N * 2);
    t->cuts.resize(N * N * 2); t->assembly.resize(N * LANES); t->writes.resize(N); t->by_flow.resize(N * N * 8);
    t->taking.assign(N, 0xff); t->cables.resize(N * PORTS); t->peer.resize(N * PORTS);
    for (int n = 0; n < N; n++) {
        Element &r = t->routers.emplace_back(router, int(R_PINS), seed + n), &s = t->interfaces.emplace_back(interface, int(I_PINS), seed + n);
        int x = n % COLS, y = n / COLS;
        r.set(R_x, X_BITS, x); r.set(R_y, Y_BITS, y); r.set(R_last_x, X_BITS, COLS - 1); r.set(R_last_y, Y_BITS, ROWS - 1);
        s.set(I_x, X_BITS, x); s.set(I_y, Y_BITS, y); s.set(I_route__write, 1, 0);
        s.set(I_send__0__valid, 1, 0); s.set(I_send__1__valid, 1, 0);
        for (int l = 0; l < LANES; l++) s.set(RECEIVE.ready[l], 1, 0);
        const int far[4] = {y * COLS + (x + 1) % COLS, y * COLS + (x + COLS - 1) % COLS, (y + 1) % ROWS * COLS + x,
                            (y + ROWS - 1) % ROWS * COLS + x};
        for (int p = 0; p < PORTS; p++) {
            t->links.emplace_back(link, int(L_PINS), seed + 1000 + n * PORTS + p);
            t->cables[n * PORTS + p].random.state = t->random.next();
            t->peer[n * PORTS + p] = far[p] * PORTS + (p ^ 1);
        }
    }
    for (int i = 0; i < 4; i++) cycle(t, true);
    return t;
}
void network_free(Network* t) { delete t; }

// The cable from this link to the next node.
void network_cable(Network* t, int node, int port, const Fault* fault) { t->cables[node * PORTS + port].f = *fault; }
void network_traffic(Network* t, double load, int length_min, int length_max, int messages, int backpressure) {
    t->load = load; t->length_min = length_min; t->length_max = length_max; t->messages = messages; t->backpressure = backpressure;
}
void network_send(Network* t, int src, int dst, int message, int length) { create(t, src, dst, message, length); }
// Entries of all nodes' tables, [order][src][dst]; they are written one per node and cycle.
void network_routes(Network* t, const uint8_t* entries) {
    for (int order = 0; order < 2; order++)
        for (int src = 0; src < N; src++)
            for (int dst = 0; dst < N; dst++) t->writes[src].push_back({dst, order, entries[(order * N + src) * N + dst]});
}
// From now on packets may fail.
void network_expect_faults(Network* t) { t->faults = true; }
uint32_t network_status(Network* t, int node, int port) { return uint32_t(t->links[node * PORTS + port].get(L_status, 32)); }
const char* network_wrong(Network* t) { return t->first_wrong.c_str(); }
void network_flows(Network* t, uint64_t* out) { std::memcpy(out, t->by_flow.data(), 8 * t->by_flow.size()); }
void network_totals(Network* t, Totals* out) {
    Totals c = t->c;
    for (auto& flow : t->flows) for (auto& p : flow) c.missing += !p.gone;
    for (auto& cut : t->cuts) c.unanswered += cut.size();
    for (auto& s : t->interfaces) {
        uint64_t both = s.get(I_counters, 64);
        c.answers_made += both & 0xffffffff;
        c.responses_dropped += both >> 32;
    }
    for (auto& l : t->links) {
        uint32_t counters[COUNTERS];
        pin_copy(counters, l.pins[L_counters], 32 * COUNTERS);
        c.lost += counters[LOST]; c.retries += counters[RETRIES]; c.bad_frames += counters[BAD_FRAMES];
    }
    *out = c;
}

// Runs `cycles`; with `until_quiet` until nothing is left to send and nothing has moved for `patience` cycles. Without,
// no movement for so long though packets are under way stops it, too, and counts as stuck.
void network_run(Network* t, uint64_t cycles, int generate, int until_quiet, uint64_t patience) {
    const double rate = t->load * 2 / (t->length_min + t->length_max);
    t->last_move = t->now;
    for (uint64_t i = 0; i < cycles; i++, t->now++, t->c.cycles++) {
        bool moved = false, waiting = false;
        for (int n = 0; n < N; n++) {
            Element& s = t->interfaces[n];
            if (generate && t->random.chance(rate)) {
                int dst = int(t->random.below(N));
                create(t, n, dst, t->messages == 2 ? t->random.below(2) : 0,
                       t->length_min + int(t->random.below(t->length_max - t->length_min + 1)));
            }
            for (int m = 0; m < 2; m++) {
                auto& queue = t->queues[n * 2 + m];
                const int at = n * 2 + m;
                s.set(SEND_VALID[m], 1, !queue.empty());
                if (queue.empty()) continue;
                waiting = true;
                s.set(SEND_FLIT[m], FLIT_BITS, flit_of(t, queue.front(), t->sent[at]));
                if (s.get(SEND_READY[m], 1)) {
                    moved = true;
                    if (++t->sent[at] == queue.front().length) { t->sent[at] = 0; queue.pop_front(); }
                }
            }
            if (t->random.below(8) == 0) t->taking[n] = int(t->random.below(100)) < t->backpressure ? uint8_t(t->random.next()) : 0xff;
            for (int l = 0; l < LANES; l++) s.set(RECEIVE.ready[l], 1, t->taking[n] >> l & 1);
            s.type->settle(s.handle);
            for (int l = 0; l < LANES; l++)
                if ((t->taking[n] >> l & 1) && s.get(RECEIVE.valid[l], 1)) {
                    moved = true;
                    arrive(t, n, l, unpack(s.get(RECEIVE.payload[l], FLIT_BITS)));
                }
            moved |= t->routers[n].get(R_passed, PORTS) != 0;
            auto& writes = t->writes[n];
            const bool write = !writes.empty() && s.get(I_ready, 1);
            s.set(I_route__write, 1, write);
            waiting |= !writes.empty();
            if (write) {
                const Write w = writes.front();
                writes.pop_front();
                s.set(I_route__x, X_BITS, w.dst % COLS); s.set(I_route__y, Y_BITS, w.dst / COLS);
                s.set(I_route__order, 1, w.order); s.set(I_route__entry, 6, w.entry);
            }
        }
        cycle(t, false);
        if (moved) t->last_move = t->now;
        if (t->now - t->last_move > patience) {
            if (until_quiet) { t->c.stuck |= waiting; return; }
            if (waiting) { t->c.stuck = 1; return; }
        }
    }
    if (until_quiet) t->c.stuck = 1;
}

}  // extern "C"

// Drives a row of lanes: COLS lanes, LATENCY cycles. In front of this come the macros COLS, LATENCY, OPERANDS (their
// number), VALID (a port), LOAD(k, from) (operand k of all lanes), CONTROL(k, value) (a broadcast input), STORE(to) (the results), and
// FIELDS (32-bit results of a lane).

#include <cstdint>
#include <cstring>
#include <vector>

#include "Vtop.h"

double sc_time_stamp() { return 0; }

namespace {

struct Lanes {
    Vtop top;
    uint64_t state = 0x9e3779b97f4a7c15, cycles = 0;

    Lanes() {
        top.VALID = 0;
        top.rst = 1;
        edge();
        top.rst = 0;
    }

    void edge() {
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        ++cycles;
    }

    uint64_t random() { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }
};

}  // namespace

extern "C" {

void* lanes_new() { return new Lanes; }
void lanes_delete(void* lanes) { delete static_cast<Lanes*>(lanes); }
uint64_t lanes_cycles(void* lanes) { return static_cast<Lanes*>(lanes)->cycles; }

void lanes_control(void* handle, int which, uint32_t value) {
    Lanes& lanes = *static_cast<Lanes*>(handle);
    CONTROL(which, value)
}

// Sends `rows` rows of operands, each COLS x 32 bits, and takes as many rows of results. With `bubbles` about a quarter
// of the cycles carry nothing; operands keep changing then, which must not be seen.
void lanes_run(void* handle, uint64_t rows, const uint32_t* const* operands, uint32_t* results, int bubbles) {
    Lanes& lanes = *static_cast<Lanes*>(handle);
    Vtop& top = lanes.top;
    std::vector<uint8_t> under_way(LATENCY, 0);
    std::vector<uint32_t> noise(COLS);
    for (uint64_t sent = 0, taken = 0, now = 0; taken < rows; ++now) {
        const bool send = sent < rows && !(bubbles && lanes.random() % 4 == 0);
        if (!send && bubbles)
            for (uint32_t& word : noise) word = uint32_t(lanes.random());
        for (int k = 0; k < OPERANDS; ++k) {
            const uint32_t* from = send ? operands[k] + sent * COLS : noise.data();
            LOAD(k, from)
        }
        top.VALID = send;
        lanes.edge();
        sent += send;
        under_way[now % LATENCY] = send;
        if (now + 1 >= LATENCY && under_way[(now + 1) % LATENCY]) {
            uint32_t* to = results + taken * COLS * FIELDS;
            STORE(to)
            ++taken;
        }
    }
    top.VALID = 0;
}

}

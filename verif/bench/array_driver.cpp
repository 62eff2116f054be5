// Drives a systolic array without pause: random activations in every cycle, a new weight tile every ROWS cycles.
// ROWS, COLS, WIDTH (bits of a sum) and LATENCY (cycles from a row of activations to its sums) come in front of this.

#include <cstdint>
#include <cstring>
#include <vector>

#include "Vtop.h"

double sc_time_stamp() { return 0; }

namespace {

struct Run {
    Vtop top;
    uint64_t state = 0x9e3779b97f4a7c15, cycle = 0;
    std::vector<int8_t> a = std::vector<int8_t>(ROWS + 8), w = std::vector<int8_t>(COLS + 8);

    Run() {
        top.rst = 1;
        edge();
        top.rst = 0;
    }

    void edge() {
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
    }

    void random(std::vector<int8_t>& bytes) {
        for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            std::memcpy(&bytes[i], &state, 8);
        }
    }

    void step() {
        random(a), random(w);
        std::memcpy(&top.a_data, a.data(), ROWS);
        std::memcpy(&top.w_data, w.data(), COLS);
        top.w_valid = 1, top.w_start = cycle % ROWS == 0;
        top.a_valid = cycle >= ROWS, top.a_swap = cycle % ROWS == 0;
        edge();
        ++cycle;
    }

    // Column `c` of the row of sums at the array's edge.
    int64_t sum(int c) {
        int64_t value = 0;
        for (int bit = 0; bit < WIDTH; ++bit) {
            const int at = c * WIDTH + bit;
            value |= int64_t(reinterpret_cast<const uint8_t*>(&top.p_data)[at / 8] >> at % 8 & 1) << bit;
        }
        return value << (64 - WIDTH) >> (64 - WIDTH);
    }
};

}  // namespace

extern "C" {

void* bench_new() { return new Run; }
void bench_delete(void* run) { delete static_cast<Run*>(run); }

// Runs freely; no value is looked at.
void bench_run(void* handle, uint64_t cycles) {
    for (Run& run = *static_cast<Run*>(handle); cycles; --cycles) run.step();
}

// Runs on from a new array, and compares all sums of `rows` rows with what they should be; the number that differ.
uint64_t bench_check(void* handle, uint64_t rows) {
    Run& run = *static_cast<Run*>(handle);
    std::vector<std::vector<int8_t>> a, w;
    uint64_t wrong = 0;
    for (uint64_t done = 0; done < rows;) {
        run.step();
        a.push_back(run.a), w.push_back(run.w);
        const int64_t t = int64_t(run.cycle) - LATENCY;  // the cycle in which these sums' activations entered
        if (t < ROWS) {
            wrong += run.top.p_valid;
            continue;
        }
        wrong += !run.top.p_valid;
        for (int c = 0; c < COLS; ++c) {
            int64_t sum = 0;
            for (int r = 0; r < ROWS; ++r) sum += a[t][r] * w[t / ROWS * ROWS - ROWS + r][c];
            wrong += run.sum(c) != sum;
        }
        ++done;
    }
    return wrong;
}

}

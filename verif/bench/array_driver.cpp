// Drives a systolic array without pause: random activations in every cycle, a new weight tile every ROWS cycles.
// ROWS, COLS, WIDTH (bits of a sum), LATENCY (cycles from a row of activations to its sums) and BF16 (0 or 1) come in
// front of this.

#include <cstdint>
#include <cstring>
#include <vector>

#include "Vtop.h"

double sc_time_stamp() { return 0; }

namespace {

#if BF16
using Element = uint16_t;
using Sum = uint32_t;

float flush(float x) { return x > -0x1p-126f && x < 0x1p-126f ? (x < 0 ? -0.0f : 0.0f) : x; }

float value(Element bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}

// Normal numbers from 2^-7 to 2, so that sums stay finite.
Element element(Element random) { return (random & 0x83ff) | 0x3c00; }

struct Total {
    float sum = 0;
    void add(Element a, Element w) { sum = flush(sum + flush(value(a) * value(w))); }
    Sum bits() const {
        Sum all;
        std::memcpy(&all, &sum, 4);
        return all;
    }
};
#else
using Element = int8_t;
using Sum = int64_t;

Element element(Element random) { return random; }

struct Total {
    Sum sum = 0;
    void add(Element a, Element w) { sum += a * w; }
    Sum bits() const { return sum; }
};
#endif

struct Run {
    Vtop top;
    uint64_t state = 0x9e3779b97f4a7c15, cycle = 0;
    std::vector<Element> a = std::vector<Element>(ROWS + 8), w = std::vector<Element>(COLS + 8);

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

    void random(std::vector<Element>& elements) {
        constexpr size_t step = 8 / sizeof(Element);
        for (size_t i = 0; i + step <= elements.size(); i += step) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            std::memcpy(&elements[i], &state, 8);
        }
        for (Element& x : elements) x = element(x);
    }

    void step() {
        random(a), random(w);
        std::memcpy(&top.a_data, a.data(), ROWS * sizeof(Element));
        std::memcpy(&top.w_data, w.data(), COLS * sizeof(Element));
        top.w_valid = 1, top.w_start = cycle % ROWS == 0;
        top.a_valid = cycle >= ROWS, top.a_swap = cycle % ROWS == 0;
        edge();
        ++cycle;
    }

    // Column `c` of the row of sums at the array's edge.
    Sum sum(int c) {
        int64_t value = 0;
        for (int bit = 0; bit < WIDTH; ++bit) {
            const int at = c * WIDTH + bit;
            value |= int64_t(reinterpret_cast<const uint8_t*>(&top.p_data)[at / 8] >> at % 8 & 1) << bit;
        }
        return Sum(value << (64 - WIDTH) >> (64 - WIDTH));
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
    std::vector<std::vector<Element>> a, w;
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
            Total total;
            for (int r = 0; r < ROWS; ++r) total.add(a[t][r], w[t / ROWS * ROWS - ROWS + r][c]);
            wrong += run.sum(c) != total.bits();
        }
        ++done;
    }
    return wrong;
}

}

// Drives a vector unit with VMEM, accumulators and tokens around it. In front of this come the macros COLS, WORD_BYTES,
// VMEM_BYTES, ACC_ROWS, OP_BYTES and WRITE_BYTES (bytes of the payload of an op, of a VMEM write).

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "Vtop.h"

double sc_time_stamp() { return 0; }

namespace {

// What a port holds, whatever Verilator makes of it.
template <typename Port> uint8_t* bytes(Port& port) { return reinterpret_cast<uint8_t*>(&port); }
template <typename Port> uint32_t word(Port& port, int k = 0) {
    uint32_t value;
    std::memcpy(&value, bytes(port) + 4 * k, 4);
    return value;
}

struct Read {
    bool valid = false;
    uint8_t data[WORD_BYTES];
};

}  // namespace

struct Outcome {
    uint64_t cycles, rows, started, finished, given, faults, fault, state[16], first_start, last_finish, touched_beyond;
};

extern "C" {

// Runs until `count` ops are taken and the unit is idle, or for `limit` cycles. `refuse[k]` of 256 requests find port k
// taken: source, residual, params, result, acc, acc_write, tokens (of the units of the mask `missing`). Fills in what
// happened.
void unit_run(const uint8_t* ops, uint64_t count, uint64_t limit, const uint32_t* refuse, uint32_t missing, uint64_t seed,
              uint8_t* vmem, uint8_t* acc, Outcome* out) {
    Vtop top;
    std::memset(out, 0, sizeof *out);
    uint64_t state = seed * 2 + 1;
    auto random = [&] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
    auto ready = [&](int port) { return (random() >> 20 & 255) >= refuse[port]; };
    top.rst = 1, top.clk = 0, top.eval(), top.clk = 1, top.eval(), top.rst = 0;
    Read pending[3][2];
    bool acc_valid = false;
    uint8_t acc_data[4 * COLS];
    uint64_t sent = 0, quiet = 0;
    for (uint64_t now = 0; now < limit && quiet < 4; ++now) {
        top.source__req__ready = ready(0), top.residual__req__ready = ready(1), top.params__req__ready = ready(2);
        top.result__req__ready = ready(3), top.acc__req__ready = ready(4), top.acc_write__req__ready = ready(5);
        top.unit__take__ready = ready(6), top.unit__missing = top.unit__take__ready ? 0 : missing;
        top.unit__op__valid = sent < count && (sent || now > 2);
        if (sent < count) std::memcpy(bytes(top.unit__op__payload), ops + sent * OP_BYTES, OP_BYTES);
#define RESPOND(port, k) \
        top.port##__rsp_valid = pending[k][1].valid; \
        if (pending[k][1].valid) std::memcpy(bytes(top.port##__rsp_data), pending[k][1].data, WORD_BYTES);
        RESPOND(source, 0) RESPOND(residual, 1) RESPOND(params, 2)
        top.acc__rsp_valid = acc_valid;
        if (acc_valid) std::memcpy(bytes(top.acc__rsp_data), acc_data, 4 * COLS);
        top.clk = 0, top.eval();

#define REQUEST(port, k) \
        pending[k][1] = pending[k][0]; \
        pending[k][0].valid = top.port##__req__valid && top.port##__req__ready; \
        if (pending[k][0].valid) { \
            const uint32_t at = word(top.port##__req__payload); \
            if (at >= VMEM_BYTES) ++out->touched_beyond; \
            for (uint32_t i = 0; i < WORD_BYTES; ++i) \
                pending[k][0].data[i] = at + i < VMEM_BYTES ? vmem[at + i] : uint8_t(0xA5); \
        }
        REQUEST(source, 0) REQUEST(residual, 1) REQUEST(params, 2)
        acc_valid = top.acc__req__valid && top.acc__req__ready;
        if (acc_valid) {
            const uint32_t row = word(top.acc__req__payload);
            if (row < ACC_ROWS) std::memcpy(acc_data, acc + 4ull * COLS * row, 4 * COLS);
            else ++out->touched_beyond;
        }
        if (top.result__req__valid && top.result__req__ready) {
            uint8_t write[WRITE_BYTES];
            std::memcpy(write, bytes(top.result__req__payload), WRITE_BYTES);
            uint32_t at;
            std::memcpy(&at, write, 4);
            for (uint32_t i = 0; i < WORD_BYTES; ++i)
                if (write[4 + WORD_BYTES + i / 8] >> i % 8 & 1) {
                    if (at + i < VMEM_BYTES) vmem[at + i] = write[4 + i];
                    else ++out->touched_beyond;
                }
        }
        if (top.acc_write__req__valid && top.acc_write__req__ready) {
            const uint32_t row = word(top.acc_write__req__payload);
            if (row < ACC_ROWS) std::memcpy(acc + 4ull * COLS * row, bytes(top.acc_write__req__payload) + 4, 4 * COLS);
            else ++out->touched_beyond;
        }
        if (top.unit__started) {
            if (!out->started++) out->first_start = now;
        }
        if (top.unit__finished) ++out->finished, out->last_finish = now;
        if (top.unit__give) ++out->given;
        if (top.unit__fault_valid) {
            if (!out->faults++) std::memcpy(&out->fault, bytes(top.unit__fault), 7);
        }
        out->rows += top.vector_rows;
        ++out->state[top.unit__state];
        ++out->cycles;
        sent += top.unit__op__valid && top.unit__op__ready;
        quiet = (sent == count || out->faults) && top.unit__idle ? quiet + 1 : 0;
        top.clk = 1, top.eval();
    }
}

}

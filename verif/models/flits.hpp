// Flits as the ports of router and network interface hold them. Python puts DATA_BITS and VC_BITS in front of this text.

#include <cstdint>

namespace {

struct Flit { uint64_t data; uint32_t vc; bool head, tail, error; };

inline uint64_t pack(const Flit& f) {
    return f.data | uint64_t(f.vc) << DATA_BITS | uint64_t(f.head) << (DATA_BITS + VC_BITS) |
           uint64_t(f.tail) << (DATA_BITS + VC_BITS + 1) | uint64_t(f.error) << (DATA_BITS + VC_BITS + 2);
}
inline Flit unpack(uint64_t w) {
    return {w & ((1ull << DATA_BITS) - 1), uint32_t(w >> DATA_BITS) & ((1u << VC_BITS) - 1),
            bool(w >> (DATA_BITS + VC_BITS) & 1), bool(w >> (DATA_BITS + VC_BITS + 1) & 1), bool(w >> (DATA_BITS + VC_BITS + 2) & 1)};
}

}  // namespace

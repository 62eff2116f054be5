// A cable: latency, and faults drawn from a seed. Python puts this text in front of the drivers that have cables.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace {

struct Random {  // splitmix64
    uint64_t state;
    uint64_t next() {
        uint64_t z = (state += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    double unit() { return (next() >> 11) * 0x1.0p-53; }
    bool chance(double p) { return p > 0 && unit() < p; }
    uint32_t below(uint32_t n) { return n ? next() % n : 0; }
};

using Bits = std::vector<uint32_t>;

struct Fault {
    uint32_t latency, jitter, reach;
    double drop, corrupt, bit_errors, twice, late;
    uint64_t cut_at;
};

struct Channel {
    Fault f{1, 0, 0, 0, 0, 0, 0, 0, ~0ull};
    Random random{0};
    struct Word { uint64_t due; Bits bits; };
    std::deque<Word> way;
    Bits last;
    bool repeat = false;
    uint64_t now = 0, extra = 0;

    // A word enters (or none); returns what leaves, or nullptr. `hold` keeps it until the next call.
    Bits hold;
    const Bits* step(bool valid, const uint32_t* word, int bits) {
        ++now;
        if (f.jitter && random.below(64) == 0) extra = random.below(f.jitter + 1);
        if (valid && now < f.cut_at) {
            Bits copy(word, word + (bits + 31) / 32 + 1);
            if (repeat) { copy = last; repeat = false; }
            else if (random.chance(f.twice)) repeat = true;
            last = copy;
            if (f.bit_errors > 0) {
                // Distance to the next wrong bit, drawn anew for each word: bits are independent.
                for (double at = gap(); at < bits; at += 1 + gap()) flip(copy, int(at));
            }
            if (random.chance(f.corrupt))
                for (int n = 1 + random.below(5); n; --n) flip(copy, random.below(bits));
            if (!random.chance(f.drop)) {
                uint64_t due = now + f.latency - 1 + extra;
                if (!way.empty() && due <= way.back().due) due = way.back().due + 1;
                way.push_back({due, std::move(copy)});
                if (f.reach && random.chance(f.late)) {  // change places with one of those before it
                    size_t back = 1 + random.below(f.reach);
                    if (way.size() > back) std::swap(way.back().bits, way[way.size() - 1 - back].bits);
                }
            }
        }
        if (now >= f.cut_at) way.clear();
        if (way.empty() || way.front().due > now) return nullptr;
        hold = std::move(way.front().bits);
        way.pop_front();
        return &hold;
    }
    double gap() { return std::floor(std::log1p(-random.unit()) / std::log1p(-f.bit_errors)); }
    static void flip(Bits& word, int bit) { word[bit / 32] ^= 1u << bit % 32; }
};
}  // namespace

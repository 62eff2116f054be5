"""Stand-ins for the lz4 and zlib headers, for FST waveforms on a machine that has neither.

Verilator's FST writer calls four functions of the two libraries. The lz4 one here is a plain greedy compressor for the
LZ4 block format; the zlib one writes stored (uncompressed) blocks, which the writer then drops in favour of raw data.
"""

from pathlib import Path

from .cache import atomic_write

__all__ = ["install"]

# LZ4 block format: sequences of (token, literals, 2-byte offset, match length); the last 5 bytes are literals and no
# match starts in the last 12.
_LZ4 = r"""
#ifndef SLUICE_LZ4_SHIM_H
#define SLUICE_LZ4_SHIM_H
#include <cstdint>
#include <cstring>
#include <vector>
static inline int LZ4_compressBound(int n) { return n + n / 255 + 16; }
static inline uint8_t* sluice_lz4_length(uint8_t* out, int rest) {
    for (; rest >= 255; rest -= 255) *out++ = 255;
    *out++ = static_cast<uint8_t>(rest);
    return out;
}
static inline int LZ4_compress_default(const char* source, char* target, int size, int) {
    const uint8_t* const src = reinterpret_cast<const uint8_t*>(source);
    uint8_t* out = reinterpret_cast<uint8_t*>(target);
    std::vector<int> table(1 << 14, -1);
    int anchor = 0;
    for (int at = 0; at + 12 < size;) {
        uint32_t word;
        std::memcpy(&word, src + at, 4);
        const uint32_t slot = (word * 2654435761u) >> 18;
        const int ref = table[slot];
        table[slot] = at;
        if (ref < 0 || at - ref > 65535 || std::memcmp(src + ref, src + at, 4) != 0) { ++at; continue; }
        int length = 4;
        while (at + length < size - 5 && src[ref + length] == src[at + length]) ++length;
        const int literals = at - anchor, extra = length - 4;
        *out++ = static_cast<uint8_t>(((literals < 15 ? literals : 15) << 4) | (extra < 15 ? extra : 15));
        if (literals >= 15) out = sluice_lz4_length(out, literals - 15);
        std::memcpy(out, src + anchor, literals);
        out += literals;
        *out++ = static_cast<uint8_t>(at - ref);
        *out++ = static_cast<uint8_t>((at - ref) >> 8);
        if (extra >= 15) out = sluice_lz4_length(out, extra - 15);
        at += length;
        anchor = at;
    }
    const int literals = size - anchor;
    *out++ = static_cast<uint8_t>((literals < 15 ? literals : 15) << 4);
    if (literals >= 15) out = sluice_lz4_length(out, literals - 15);
    if (literals > 0) std::memcpy(out, src + anchor, literals);
    out += literals;
    return static_cast<int>(out - reinterpret_cast<uint8_t*>(target));
}
#endif
"""

_ZLIB = r"""
#ifndef SLUICE_ZLIB_SHIM_H
#define SLUICE_ZLIB_SHIM_H
#include <cstdint>
#include <cstring>
typedef unsigned char Bytef;
typedef unsigned long uLong;
typedef unsigned long uLongf;
#define Z_OK 0
#define Z_BUF_ERROR (-5)
static inline uLong compressBound(uLong n) { return n + 5 * (n / 65535 + 1) + 6; }
static inline int compress2(Bytef* out, uLongf* room, const Bytef* src, uLong n, int) {
    if (*room < compressBound(n)) return Z_BUF_ERROR;
    Bytef* p = out;
    *p++ = 0x78;
    *p++ = 0x01;
    uLong done = 0;
    do {
        const uLong part = n - done < 65535 ? n - done : 65535;
        *p++ = done + part == n;
        *p++ = part & 255; *p++ = part >> 8; *p++ = ~part & 255; *p++ = (~part >> 8) & 255;
        if (part) std::memcpy(p, src + done, part);
        p += part;
        done += part;
    } while (done < n);
    uint32_t a = 1, b = 0;
    for (uLong i = 0; i < n; ++i) { a = (a + src[i]) % 65521; b = (b + a) % 65521; }
    *p++ = b >> 8; *p++ = b & 255; *p++ = a >> 8; *p++ = a & 255;
    *room = p - out;
    return Z_OK;
}
#endif
"""


def install(folder: Path) -> Path:
    """Write the headers, and empty libraries for the ``-llz4 -lz`` of Verilator's makefile, into ``folder``."""
    atomic_write(folder / "lz4.h", _LZ4)
    atomic_write(folder / "zlib.h", _ZLIB)
    for name in ("liblz4.a", "libz.a"):
        if not (folder / name).exists():
            atomic_write(folder / name, "!<arch>\n")  # the whole of an archive with no members
    return folder

/*
 * crc32.c - the CRC-32 of zip files, at the speed of memory where the processor multiplies without carries.
 * Layer: base.
 *
 * How it works: a message is a polynomial over GF(2), its checksum the remainder by P. A block of 128 bits that stands
 * n bits before the end counts as (high x^(n+64) + low x^n) mod P, so two carry-less products by constants x^k mod P
 * move it forward onto the block n bits later, where it is added (xor). Four blocks at a time are moved by 512 bits
 * (or sixteen by 2048, in wide registers), then the four are moved onto one another, then single blocks by 128 bits.
 * What is left, one block with the same remainder, and the odd bytes are zlib's. Bits are reflected, so the lower half
 * of a register is the higher power. Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel, 2009.
 */
#include <zlib.h>

#include "base/core.h"

static uint32_t crc_plain(uint32_t crc, const unsigned char *data, size_t size)
{
    return (uint32_t)crc32_z(crc, data, size);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define CRC_TARGET __attribute__((target("pclmul,sse4.1")))

static inline CRC_TARGET __m128i load(const unsigned char *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

/* `block`, moved by the distance of the constants, plus `next`. */
static inline CRC_TARGET __m128i fold(__m128i block, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(block, constants, 0x00), high = _mm_clmulepi64_si128(block, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* At least 64 bytes. */
static CRC_TARGET uint32_t crc_folded(uint32_t crc, const unsigned char *data, size_t size)
{
    /* x^(512+32), x^(512-32), x^(128+32), x^(128-32) mod P, reflected and shifted by one */
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128((int)~crc));
    __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        a = fold(a, by_512, load(data));
        b = fold(b, by_512, load(data + 16));
        c = fold(c, by_512, load(data + 32));
        d = fold(d, by_512, load(data + 48));
    }
    a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
    for (; size >= 16; data += 16, size -= 16)
        a = fold(a, by_128, load(data));
    unsigned char rest[16];
    _mm_storeu_si128((__m128i *)rest, a);
    return crc_plain(crc_plain(0xFFFFFFFFu, rest, sizeof(rest)), data, size); /* all ones: zlib starts from zero */
}

#define WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

static inline WIDE_TARGET __m512i load_wide(const unsigned char *data)
{
    return _mm512_loadu_si512(data);
}

static inline WIDE_TARGET __m512i fold_wide(__m512i block, __m512i constants, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(block, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(block, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor of three */
}

/* At least 512 bytes: four registers of four blocks each are moved by 2048 bits, then onto one another. */
static WIDE_TARGET uint32_t crc_wide(uint32_t crc, const unsigned char *data, size_t size)
{
    /* x^(2048+32), x^(2048-32), then as below, mod P, reflected and shifted by one */
    const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322d1430, 0x11542778a));
    const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    __m512i a = _mm512_xor_si512(load_wide(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    __m512i b = load_wide(data + 64), c = load_wide(data + 128), d = load_wide(data + 192);
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256) {
        a = fold_wide(a, by_2048, load_wide(data));
        b = fold_wide(b, by_2048, load_wide(data + 64));
        c = fold_wide(c, by_2048, load_wide(data + 128));
        d = fold_wide(d, by_2048, load_wide(data + 192));
    }
    a = fold_wide(fold_wide(fold_wide(a, by_512, b), by_512, c), by_512, d);
    unsigned char rest[64];
    _mm512_storeu_si512(rest, a);
    crc = crc_folded(0xFFFFFFFFu, rest, sizeof(rest)); /* all ones: the inner function starts from zero */
    return size ? yk__crc32(crc, data, size) : crc;
}

uint32_t yk__crc32(uint32_t crc, const void *data, size_t size)
{
    if (size >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        return crc_wide(crc, data, size);
    bool folds = size >= 128 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return folds ? crc_folded(crc, data, size) : crc_plain(crc, data, size);
}
#else
uint32_t yk__crc32(uint32_t crc, const void *data, size_t size)
{
    return crc_plain(crc, data, size);
}
#endif

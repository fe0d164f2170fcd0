/*
 * philox_words.h - many blocks of Philox at once, in vectors of the instruction set that includes it. Layer: base.
 */
#ifndef YOKE_BASE_PHILOX_WORDS_H
#define YOKE_BASE_PHILOX_WORDS_H

#include "base/philox.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES            8
#define WIDE             __m512i
#define WIDE_SET1(x)     _mm512_set1_epi64((long long)(x))
#define WIDE_MUL(a, b)   _mm512_mul_epu32(a, b)
#define WIDE_ADD(a, b)   _mm512_add_epi64(a, b)
#define WIDE_HIGH(a)     _mm512_srli_epi64(a, 32)
#define WIDE_LEFT(a)     _mm512_slli_epi64(a, 32)
#define WIDE_XOR(a, b)   _mm512_xor_si512(a, b)
#define WIDE_OR(a, b)    _mm512_or_si512(a, b)
#define WIDE_AND(a, b)   _mm512_and_si512(a, b)
#define WIDE_LO(a, b)    _mm512_unpacklo_epi64(a, b)
#define WIDE_HI(a, b)    _mm512_unpackhi_epi64(a, b)
#define WIDE_STORE(p, a) _mm512_storeu_si512(p, a)
#define WIDE_LANES       _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)
#elif defined(__AVX2__)
#define LANES            4
#define WIDE             __m256i
#define WIDE_SET1(x)     _mm256_set1_epi64x((long long)(x))
#define WIDE_MUL(a, b)   _mm256_mul_epu32(a, b)
#define WIDE_ADD(a, b)   _mm256_add_epi64(a, b)
#define WIDE_HIGH(a)     _mm256_srli_epi64(a, 32)
#define WIDE_LEFT(a)     _mm256_slli_epi64(a, 32)
#define WIDE_XOR(a, b)   _mm256_xor_si256(a, b)
#define WIDE_OR(a, b)    _mm256_or_si256(a, b)
#define WIDE_AND(a, b)   _mm256_and_si256(a, b)
#define WIDE_LO(a, b)    _mm256_unpacklo_epi64(a, b)
#define WIDE_HI(a, b)    _mm256_unpackhi_epi64(a, b)
#define WIDE_STORE(p, a) _mm256_storeu_si256((__m256i *)(p), a)
#define WIDE_LANES       _mm256_setr_epi64x(0, 2, 1, 3)
#elif defined(__SSE2__)
#define LANES            2
#define WIDE             __m128i
#define WIDE_SET1(x)     _mm_set1_epi64x((long long)(x))
#define WIDE_MUL(a, b)   _mm_mul_epu32(a, b)
#define WIDE_ADD(a, b)   _mm_add_epi64(a, b)
#define WIDE_HIGH(a)     _mm_srli_epi64(a, 32)
#define WIDE_LEFT(a)     _mm_slli_epi64(a, 32)
#define WIDE_XOR(a, b)   _mm_xor_si128(a, b)
#define WIDE_OR(a, b)    _mm_or_si128(a, b)
#define WIDE_AND(a, b)   _mm_and_si128(a, b)
#define WIDE_LO(a, b)    _mm_unpacklo_epi64(a, b)
#define WIDE_HI(a, b)    _mm_unpackhi_epi64(a, b)
#define WIDE_STORE(p, a) _mm_storeu_si128((__m128i *)(p), a)
#define WIDE_LANES       _mm_set_epi64x(1, 0)
#endif

/* The words of blocks first, first + 1, ... into `words`; `blocks` is rounded up to the next 8. */
static inline void yk__philox_words(yk__stream s, uint64_t first, int64_t blocks, uint32_t *words)
{
#if defined(LANES)
    /* Each 64-bit lane holds one block's word in its low half; the high half is rubbish, which the products ignore.
     * The lanes take the blocks in an order for which unpacking leaves them sorted. */
    const WIDE m0 = WIDE_SET1(0xD2511F53u), m1 = WIDE_SET1(0xCD9E8D57u), low = WIDE_SET1(0xFFFFFFFFu);
    blocks = (blocks + 7) & ~(int64_t)7;
    for (int64_t block = 0; block < blocks; block += LANES) {
        WIDE c0 = WIDE_ADD(WIDE_SET1(first + (uint64_t)block), WIDE_LANES), c1 = WIDE_HIGH(c0);
        WIDE c2 = WIDE_SET1(s.epoch), c3 = WIDE_SET1(s.purpose);
        uint32_t k0 = (uint32_t)s.key, k1 = (uint32_t)(s.key >> 32);
        for (int round = 0; round < 10; round++) {
            WIDE p0 = WIDE_MUL(m0, c0), p1 = WIDE_MUL(m1, c2);
            c0 = WIDE_XOR(WIDE_XOR(WIDE_HIGH(p1), c1), WIDE_SET1(k0));
            c1 = p1;
            c2 = WIDE_XOR(WIDE_XOR(WIDE_HIGH(p0), c3), WIDE_SET1(k1));
            c3 = p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        WIDE c01 = WIDE_OR(WIDE_AND(c0, low), WIDE_LEFT(c1)), c23 = WIDE_OR(WIDE_AND(c2, low), WIDE_LEFT(c3));
        WIDE_STORE(words + block * 4, WIDE_LO(c01, c23));
        WIDE_STORE(words + block * 4 + LANES * 2, WIDE_HI(c01, c23));
    }
#else
    for (int64_t block = 0; block < blocks; block++)
        yk__philox(s, first + (uint64_t)block, words + block * 4);
#endif
}

#undef LANES
#undef WIDE
#undef WIDE_SET1
#undef WIDE_MUL
#undef WIDE_ADD
#undef WIDE_HIGH
#undef WIDE_LEFT
#undef WIDE_XOR
#undef WIDE_OR
#undef WIDE_AND
#undef WIDE_LO
#undef WIDE_HI
#undef WIDE_STORE
#undef WIDE_LANES

#endif

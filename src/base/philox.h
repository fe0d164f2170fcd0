/*
 * philox.h - the counter-based random numbers that everything draws from. Layer: base. C and C++, host and GPU.
 */
#ifndef YOKE_BASE_PHILOX_H
#define YOKE_BASE_PHILOX_H

#include <stdint.h>

/* In front of scalar functions that kernels of every device share; the GPU's compiler needs more (device/cuda). */
#ifndef YK__SCALAR
#define YK__SCALAR static inline
#endif

/*
 * Philox 4x32-10 (Salmon et al., 2011): 128 bits of counter and 64 of key give 128 random bits, with no state.
 * A stream is (seed, purpose); within it a counter of (index, step) picks the block. No two purposes share a stream.
 */
typedef struct yk__stream {
    uint64_t key;     /* seed */
    uint32_t purpose; /* one of yk__purpose */
    uint32_t epoch;   /* or the number of the call, for the process's generator */
} yk__stream;
enum yk__purpose {
    YK__RANDOM_USER = 1, /* yk_rand and its kin, initialisation, dropout: the process's generator */
    YK__RANDOM_SHUFFLE,
    YK__RANDOM_AUGMENT,
    YK__RANDOM_GLYPHS,
    YK__RANDOM_TEST,
    YK__RANDOM_BRANCH,   /* generators that come from that of the process */
    YK__RANDOM_SPLIT,    /* which samples are held out for a test */
    YK__RANDOM_SAMPLER,  /* which samples a weighted sampler gives */
    YK__RANDOM_GENERATE, /* which token follows */
    YK__RANDOM_MIX       /* how batches are mixed with themselves */
};
/* Four words for block `index` of the stream: key (seed), counter (index low, index high, epoch, purpose). */
YK__SCALAR void yk__philox(yk__stream s, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = s.epoch, c3 = s.purpose;
    uint32_t k0 = (uint32_t)s.key, k1 = (uint32_t)(s.key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
/* A float in [0, 1) from 24 bits, a double in [0, 1) from 53. */
YK__SCALAR float yk__unit_float(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}
YK__SCALAR double yk__unit_double(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}
/* An integer in [0, bound) without bias worth speaking of (64 bits scaled by multiplication), bound > 0. */
YK__SCALAR uint64_t yk__below(uint32_t high, uint32_t low, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)(((uint64_t)high << 32) | low) * bound) >> 64);
}

#endif

/*
 * stream.h - writing memory past the caches. Layer: device/cpu.
 *
 * Whole cache lines go to memory at once, and no cache has to own them first: for what another core reads next, and for
 * what is read by nobody soon.
 */
#ifndef YOKE_DEVICE_CPU_STREAM_H
#define YOKE_DEVICE_CPU_STREAM_H

#include <stdint.h>
#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__SSE2__)
#include <immintrin.h>

/* One line, aligned at both ends. */
static inline void yk__stream_line(char *to, const char *from)
{
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)(void *)to, _mm512_loadu_si512(from));
#elif defined(__AVX__)
    for (int i = 0; i < 64; i += 32)
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
#else
    for (int i = 0; i < 64; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
#endif
}

/* What was streamed before is seen by those who see what is written after. */
static inline void yk__stream_end(void)
{
    _mm_sfence();
}

static inline void yk__stream_write(char *to, const char *from, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)to & 63);
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    for (; head + 64 <= bytes; head += 64)
        yk__stream_line(to + head, from + head);
    memcpy(to + head, from + head, bytes - head);
}
#else
static inline void yk__stream_end(void)
{
}

static inline void yk__stream_write(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

#endif

/* Vectors of L float64 or float32 numbers, by the vector types of gcc and clang.

   Arithmetic is written with operators: + - * round once for each element in every instruction
   set. `multiply_add` is one rounding where the processor has it and two elsewhere; every bound
   counts two. Conversions and maxima are intrinsics where the compilers emit more than one
   instruction for the generic form. */
#ifndef TRUENORM_VECTORS_H
#define TRUENORM_VECTORS_H

#include <math.h>
#include <string.h>

#include "core.h"

#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(function) JOIN(JOIN(function, INSTRUCTIONS), ELEMENT)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#define L 8
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define L 4
#else
#define L 2
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#endif

enum { VECTORS = LANES / L };

typedef double doubles __attribute__((vector_size(8 * L)));
typedef int64_t longs __attribute__((vector_size(8 * L)));
typedef float halves __attribute__((vector_size(4 * L))); /* L float32 numbers */
typedef int32_t half_bits __attribute__((vector_size(4 * L)));
typedef float floats __attribute__((vector_size(8 * L))); /* 2*L float32 numbers */
typedef uint32_t bits __attribute__((vector_size(8 * L)));
typedef uint32_t half_unsigned __attribute__((vector_size(4 * L)));
typedef uint16_t half_shorts __attribute__((vector_size(2 * L))); /* L 16-bit numbers */
typedef uint16_t shorts __attribute__((vector_size(4 * L)));

/* Loads and stores without alignment. */
#define LOAD(type, address)                             \
    ({                                                  \
        type loaded_;                                   \
        memcpy(&loaded_, (address), sizeof(type));      \
        loaded_;                                        \
    })
#define STORE(address, value)                           \
    do {                                                \
        __typeof__(value) stored_ = (value);            \
        memcpy((address), &stored_, sizeof(stored_));   \
    } while (0)

INLINE doubles all(double value) { return value - (doubles){0}; }
INLINE floats all_floats(float value) { return value - (floats){0}; }

#if L == 8
INLINE doubles widened(halves x) { return (doubles)_mm512_cvtps_pd((__m256)x); }
INLINE halves narrow(doubles x) { return (halves)_mm512_cvtpd_ps((__m512d)x); }
INLINE halves low_half(floats x) { return (halves)_mm512_castps512_ps256((__m512)x); }
INLINE halves high_half(floats x) { return (halves)_mm512_extractf32x8_ps((__m512)x, 1); }
INLINE bits max_bits(bits a, bits b) { return (bits)_mm512_max_epu32((__m512i)a, (__m512i)b); }
INLINE doubles multiply_add(doubles a, doubles b, doubles c)
{
    return (doubles)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
INLINE doubles subtract_product(doubles c, doubles a, doubles b)
{
    return (doubles)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
INLINE floats multiply_add_floats(floats a, floats b, floats c)
{
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
#define HAS_FMA 1
#elif L == 4
INLINE doubles widened(halves x) { return (doubles)_mm256_cvtps_pd((__m128)x); }
INLINE halves narrow(doubles x) { return (halves)_mm256_cvtpd_ps((__m256d)x); }
INLINE halves low_half(floats x) { return (halves)_mm256_castps256_ps128((__m256)x); }
INLINE halves high_half(floats x) { return (halves)_mm256_extractf128_ps((__m256)x, 1); }
INLINE bits max_bits(bits a, bits b) { return (bits)_mm256_max_epu32((__m256i)a, (__m256i)b); }
INLINE doubles multiply_add(doubles a, doubles b, doubles c)
{
    return (doubles)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
INLINE doubles subtract_product(doubles c, doubles a, doubles b)
{
    return (doubles)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
INLINE floats multiply_add_floats(floats a, floats b, floats c)
{
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#define HAS_FMA 1
#else
INLINE doubles widened(halves x) { return __builtin_convertvector(x, doubles); }
INLINE halves narrow(doubles x) { return __builtin_convertvector(x, halves); }
INLINE halves low_half(floats x) { return (halves){x[0], x[1]}; }
INLINE halves high_half(floats x) { return (halves){x[2], x[3]}; }
INLINE bits max_bits(bits a, bits b)
{
    bits larger = (bits)(a > b);
    return (a & larger) | (b & ~larger);
}
#if defined(__aarch64__)
INLINE doubles multiply_add(doubles a, doubles b, doubles c)
{
    return (doubles)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
INLINE doubles subtract_product(doubles c, doubles a, doubles b)
{
    return (doubles)vfmsq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
INLINE floats multiply_add_floats(floats a, floats b, floats c)
{
    return (floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#define HAS_FMA 1
#else
INLINE doubles multiply_add(doubles a, doubles b, doubles c) { return a * b + c; }
INLINE doubles subtract_product(doubles c, doubles a, doubles b) { return c - a * b; }
INLINE floats multiply_add_floats(floats a, floats b, floats c) { return a * b + c; }
#define HAS_FMA 0
#endif
#endif

INLINE doubles absolute(doubles x) { return (doubles)((longs)x & INT64_MAX); }
INLINE uint32_t bits_of(float x)
{
    uint32_t pattern;
    memcpy(&pattern, &x, sizeof pattern);
    return pattern;
}

/* True if a bit is set in any element. */
INLINE bool any(half_bits x)
{
#if L == 8
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
#elif L == 4
    return !_mm_testz_si128((__m128i)x, (__m128i)x);
#else
    return (x[0] | x[1]) != 0;
#endif
}

INLINE bool any_short(half_shorts x)
{
#if L == 8
    return !_mm_testz_si128((__m128i)x, (__m128i)x);
#elif L == 4
    uint64_t pattern;
    memcpy(&pattern, &x, sizeof pattern);
    return pattern != 0;
#else
    return (x[0] | x[1]) != 0;
#endif
}

/* True if a bit of a mask is set in any element. */
INLINE bool any_of(bits x, uint32_t mask)
{
#if L == 8
    return _mm512_test_epi32_mask((__m512i)x, _mm512_set1_epi32((int)mask)) != 0;
#elif L == 4
    return !_mm256_testz_si256((__m256i)x, _mm256_set1_epi32((int)mask));
#else
    return ((x[0] | x[1] | x[2] | x[3]) & mask) != 0;
#endif
}

INLINE uint32_t largest_of(bits x)
{
#if L == 8
    return _mm512_reduce_max_epu32((__m512i)x);
#elif L == 4
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128((__m256i)x),
                              _mm256_extracti128_si256((__m256i)x, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
#else
    uint32_t a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
#endif
}

/* The sign bits of the elements. */
INLINE unsigned signs_of(floats x)
{
#if L == 8
    return _mm512_movepi32_mask((__m512i)x);
#elif L == 4
    return (unsigned)_mm256_movemask_ps((__m256)x);
#else
    bits b = (bits)x >> 31;
    return b[0] | b[1] << 1 | b[2] << 2 | b[3] << 3;
#endif
}

/* True if a sum of products with zero is zero: then all factors are finite. */
INLINE bool all_zero(doubles x)
{
    bool zero = true;
    for (int k = 0; k < L; k++)
        zero &= x[k] == 0;
    return zero;
}

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

#endif

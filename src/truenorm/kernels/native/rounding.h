/* Rounding to the stored types, one number at a time: for double-double results and columns. */
#ifndef TRUENORM_ROUNDING_H
#define TRUENORM_ROUNDING_H

#include "double_double.h"

INLINE float float_of(uint32_t pattern)
{
    float value;
    memcpy(&value, &pattern, sizeof value);
    return value;
}

INLINE float float_of_bfloat16(uint16_t x) { return float_of((uint32_t)x << 16); }

/* Exponents 1 to 30 are shifted to those of float32; 0 is subnormal, 31 infinite or NaN. */
INLINE float float_of_float16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7FFF;
    uint32_t normal = (rest << 13) + 0x38000000u, special = (rest << 13) | 0x7F800000u;
    float small = (float)(int32_t)rest * 0x1p-24f;
    uint32_t pattern = rest >= 0x7C00 ? special : rest < 0x0400 ? bits_of(small) : normal;
    return float_of(sign | pattern);
}

/* Round to nearest even. NaN is not expected. */
INLINE uint16_t bfloat16_of_float(float x)
{
    uint32_t pattern = bits_of(x);
    return (uint16_t)((pattern + 0x7FFFu + ((pattern >> 16) & 1u)) >> 16);
}
INLINE uint16_t float16_of_float(float x)
{
    uint32_t pattern = bits_of(x), sign = pattern >> 16 & 0x8000u, rest = pattern & 0x7FFFFFFFu;
    /* Below 2**-14 the sum with 0.5 has its last place at 2**-24, which is float16's. */
    uint32_t small = bits_of(float_of(rest) + 0.5f) - 0x3F000000u;
    uint32_t normal = (rest - 0x38000000u + 0xFFFu + ((rest >> 13) & 1u)) >> 13;
    uint32_t result = rest < 0x38800000u ? small : rest >= 0x477FF000u ? 0x7C00u : normal;
    return (uint16_t)(sign | result);
}

/* Round high + low once to a type and return its bits: first to odd in float64 (and in float32,
   for 16 bits), so that the last rounding decides alone. */
INLINE uint32_t rounded_bits(double high, double low, int type)
{
    pair_t s = two_sum(high, low);
    int64_t pattern;
    memcpy(&pattern, &s.high, sizeof pattern);
    if (s.low != 0 && (pattern & 1) == 0)
        pattern += (s.low > 0) == (s.high > 0) ? 1 : -1;
    memcpy(&s.high, &pattern, sizeof pattern);
    float nearest = (float)s.high;
    uint32_t result = bits_of(nearest);
    if (type == FLOAT32)
        return result;
    double back = nearest;
    if (fabs(back) > fabs(s.high))
        result--;
    if (back != s.high)
        result |= 1;
    return type == FLOAT16 ? float16_of_float(float_of(result))
                           : bfloat16_of_float(float_of(result));
}

/* Put high + low, rounded once, into an array of any of the four types. */
INLINE void put_rounded(void *array, int64_t j, int type, double high, double low)
{
    if (type == FLOAT64) {
        double sum = high + low;
        memcpy((char *)array + 8 * j, &sum, 8);
        return;
    }
    uint32_t pattern = rounded_bits(high, low, type);
    uint16_t half = (uint16_t)pattern;
    if (type == FLOAT32)
        memcpy((char *)array + 4 * j, &pattern, 4);
    else
        memcpy((char *)array + 2 * j, &half, 2);
}

/* Rounding test: store the rounded lower end of the bracket. Return True if the upper end rounds
   to the same number. */
INLINE bool is_decided(pair_t z, double bound, int type, void *array, int64_t j)
{
    double lower = z.low - bound, upper = z.low + bound;
    put_rounded(array, j, type, z.high, lower);
    if (type == FLOAT64)
        return z.high + lower == z.high + upper;
    return rounded_bits(z.high, lower, type) == rounded_bits(z.high, upper, type);
}

/* Rounding test of the undecided columns of some strips. Return True if all are decided. */
INLINE bool decide_strips(const call_t *call, const strip_t *strips, int64_t count,
                          const uint8_t *undecided)
{
    bool is_done = true;
    for (const strip_t *strip = strips; strip < strips + count; strip++)
        for (int64_t k = 0, n = smaller(STRIP, call->size - strip->column); k < n; k++)
            if (undecided[strip->column + k])
                is_done &= is_decided(two_sum(strip->high[k], strip->low[k]),
                                      call->bound_scale * SLACK * strip->bound[k],
                                      call->dgamma_type, call->dgamma, strip->column + k);
    return is_done;
}

#endif

/* Elements of rows as they are stored: float32, float16 or bfloat16, one of them per compilation.

   Loads widen exactly. Stores round once, to nearest even. The 16-bit types are rounded by way of
   float32; where that would round twice, by way of float32 rounded to odd. */
#ifndef TRUENORM_ELEMENTS_H
#define TRUENORM_ELEMENTS_H

#include "rounding.h"

#ifndef ELEMENT
#define ELEMENT float32
#endif
#define TYPE_float32 0
#define TYPE_float16 1
#define TYPE_bfloat16 2
#define TYPE JOIN(TYPE, ELEMENT)

/* The cell test. If z - E and z + E are equal but for the low CELL bits, no number of one bit more
   than the type has lies between them: neither a number of the type nor a midpoint, subnormal ones
   included. So z and the exact value round to the same number. CELL counts bits of a float64 for
   float32 results, and of a float32 for 16-bit ones. */
#ifndef CELL
#define CELL (TYPE == TYPE_float32 ? 28 : TYPE == TYPE_float16 ? 12 : 15)
#endif

#if TYPE == TYPE_float32

typedef float element_t;
typedef halves rounded_t;   /* L results */
typedef half_bits differ_t; /* bits in which two of them differ */

INLINE float to_float(element_t x) { return x; }
INLINE halves load_halves(const element_t *x) { return LOAD(halves, x); }
INLINE floats load_floats(const element_t *x) { return LOAD(floats, x); }
INLINE void store_floats(element_t *to, floats x) { STORE(to, x); }

/* Round both ends of a bracket; return the bits in which they differ. */
INLINE differ_t round_both(doubles lower, doubles upper, rounded_t *rounded)
{
    *rounded = narrow(lower);
    return (half_bits)*rounded ^ (half_bits)narrow(upper);
}
INLINE differ_t round_bracket(doubles z, doubles bound, double k, rounded_t *lower)
{
    return round_both(subtract_product(z, bound, all(k)), multiply_add(bound, all(k), z), lower);
}
INLINE element_t nearest(double x) { return (float)x; }

/* The cells of 25 bits in which the ends of brackets differ, by OR. */
typedef longs cells_t;

INLINE cells_t compare_cells(cells_t cells, doubles z, doubles bound, doubles k)
{
    longs lower = (longs)subtract_product(z, bound, k), upper = (longs)multiply_add(bound, k, z);
#if L == 8
    return (longs)_mm512_ternarylogic_epi64((__m512i)cells, (__m512i)lower, (__m512i)upper, 0xF6);
#else
    return cells | (lower ^ upper);
#endif
}
INLINE bool any_cell(cells_t cells)
{
#if L == 8
    return _mm512_test_epi64_mask((__m512i)cells, _mm512_set1_epi64(-(1LL << CELL))) != 0;
#elif L == 4
    return !_mm256_testz_si256((__m256i)cells, _mm256_set1_epi64x(-(1LL << CELL)));
#else
    return (cells[0] | cells[1]) >> CELL != 0;
#endif
}
INLINE rounded_t rounded(doubles z) { return narrow(z); }

#else

typedef uint16_t element_t;
typedef half_shorts rounded_t;
typedef half_shorts differ_t;

#if TYPE == TYPE_bfloat16
INLINE float to_float(element_t x) { return float_of_bfloat16(x); }
#if L == 8
INLINE halves load_halves(const element_t *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
    return (halves)_mm256_slli_epi32(wide, 16);
}
INLINE floats load_floats(const element_t *x)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    return (floats)_mm512_slli_epi32(wide, 16);
}
INLINE half_shorts high_shorts(half_unsigned x)
{
    return (half_shorts)_mm256_cvtepi32_epi16((__m256i)(x >> 16));
}
INLINE shorts all_high_shorts(bits x) { return (shorts)_mm512_cvtepi32_epi16((__m512i)(x >> 16)); }
#elif L == 4
INLINE halves load_halves(const element_t *x)
{
    __m128i wide = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)x));
    return (halves)_mm_slli_epi32(wide, 16);
}
INLINE floats load_floats(const element_t *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
    return (floats)_mm256_slli_epi32(wide, 16);
}
INLINE half_shorts high_shorts(half_unsigned x)
{
    __m128i shifted = (__m128i)(x >> 16);
    long long result = _mm_cvtsi128_si64(_mm_packus_epi32(shifted, shifted));
    return LOAD(half_shorts, &result);
}
INLINE shorts all_high_shorts(bits x)
{
    __m256i shifted = (__m256i)(x >> 16);
    return (shorts)_mm_packus_epi32(_mm256_castsi256_si128(shifted),
                                    _mm256_extracti128_si256(shifted, 1));
}
#else
INLINE halves load_halves(const element_t *x)
{
    half_unsigned wide = __builtin_convertvector(LOAD(half_shorts, x), half_unsigned);
    return (halves)(wide << 16);
}
INLINE floats load_floats(const element_t *x)
{
    return (floats)(__builtin_convertvector(LOAD(shorts, x), bits) << 16);
}
INLINE half_shorts high_shorts(half_unsigned x)
{
    return __builtin_convertvector(x >> 16, half_shorts);
}
INLINE shorts all_high_shorts(bits x) { return __builtin_convertvector(x >> 16, shorts); }
#endif
INLINE half_shorts rounded_halves(halves x)
{
    half_unsigned b = (half_unsigned)x;
    return high_shorts(b + 0x7FFFu + ((b >> 16) & 1u));
}
INLINE shorts rounded_floats(floats x)
{
    bits b = (bits)x;
    return all_high_shorts(b + 0x7FFFu + ((b >> 16) & 1u));
}
#else
INLINE float to_float(element_t x) { return float_of_float16(x); }
#if L == 8
INLINE halves load_halves(const element_t *x)
{
    return (halves)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
INLINE floats load_floats(const element_t *x)
{
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}
INLINE half_shorts rounded_halves(halves x)
{
    return (half_shorts)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE shorts rounded_floats(floats x)
{
    return (shorts)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif L == 4
INLINE halves load_halves(const element_t *x)
{
    return (halves)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)x));
}
INLINE floats load_floats(const element_t *x)
{
    return (floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
INLINE half_shorts rounded_halves(halves x)
{
    long long result = _mm_cvtsi128_si64(_mm_cvtps_ph((__m128)x, _MM_FROUND_TO_NEAREST_INT));
    return LOAD(half_shorts, &result);
}
INLINE shorts rounded_floats(floats x)
{
    return (shorts)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}
#else
INLINE halves load_halves(const element_t *x)
{
    return (halves){to_float(x[0]), to_float(x[1])};
}
INLINE floats load_floats(const element_t *x)
{
    return (floats){to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3])};
}
INLINE half_shorts rounded_halves(halves x)
{
    return (half_shorts){float16_of_float(x[0]), float16_of_float(x[1])};
}
INLINE shorts rounded_floats(floats x)
{
    return (shorts){float16_of_float(x[0]), float16_of_float(x[1]), float16_of_float(x[2]),
                    float16_of_float(x[3])};
}
#endif
#endif

INLINE void store_floats(element_t *to, floats x) { STORE(to, rounded_floats(x)); }

/* float32 numbers rounded to odd: a second rounding, to a type with at least two bits less, gives
   the nearest. */
INLINE halves narrow_to_odd(doubles x)
{
    halves nearest = narrow(x);
    doubles back = widened(nearest);
    longs is_larger = absolute(back) > absolute(x), is_inexact = back != x;
    half_bits pattern = (half_bits)nearest;
    pattern += __builtin_convertvector(is_larger, half_bits); /* true is -1: towards zero */
    pattern |= __builtin_convertvector(is_inexact, half_bits) & 1;
    return (halves)pattern;
}

/* Round both ends of a bracket; return the bits in which they differ. */
INLINE differ_t round_both(doubles lower, doubles upper, rounded_t *rounded)
{
    *rounded = rounded_halves(narrow_to_odd(lower));
    return *rounded ^ rounded_halves(narrow_to_odd(upper));
}

/* Round the bracket z +- k*bound. Nearly always a wider one decides, whose ends are rounded by way
   of float32: an end is beyond every midpoint that float32 rounds z itself to (C4). */
INLINE differ_t round_bracket(doubles z, doubles bound, double k, rounded_t *lower)
{
    bound *= k;
    doubles wider = multiply_add(absolute(z), all(0x1p-22), bound + 0x1p-147);
    *lower = rounded_halves(narrow(z - wider));
    differ_t differ = *lower ^ rounded_halves(narrow(z + wider));
    if (__builtin_expect(any_short(differ), 0))
        differ = round_both(z - bound, z + bound, lower);
    return differ;
}
INLINE element_t nearest(double x) { return (element_t)rounded_bits(x, 0, TYPE); }

/* The cells in which the ends of brackets differ, by OR, in float32 (C4). */
typedef half_unsigned cells_t;

INLINE cells_t compare_cells(cells_t cells, doubles z, doubles bound, doubles k)
{
    halves near = narrow(z), e = narrow(bound * k);
    e += (halves)((half_unsigned)near & 0x7FFFFFFFu) * 0x1p-22f + 0x1p-147f;
    return cells | ((half_unsigned)(near - e) ^ (half_unsigned)(near + e));
}
INLINE bool any_cell(cells_t cells) { return any((half_bits)(cells >> CELL)); }
INLINE rounded_t rounded(doubles z) { return rounded_halves(narrow(z)); }

#endif

/* How often a cell test has failed. Where nearly all fail, as in rows of integers, they are not
   worthwhile. */
typedef struct {
    int64_t tried, failed;
} trials_t;

INLINE bool are_worthwhile(const trials_t *trials)
{
    return 2 * trials->failed <= trials->tried + 2;
}
INLINE void note_trials(trials_t *trials, int tried, unsigned failed)
{
    trials->tried += tried;
    trials->failed += (failed & 1) + (failed >> 1);
}

INLINE bool any_differ(differ_t x)
{
#if TYPE == TYPE_float32
    return any(x);
#else
    return any_short(x);
#endif
}

INLINE doubles wide(const element_t *x) { return widened(load_halves(x)); }

/* A vector of which n >= 0 elements are loaded; the others are `value`. */
INLINE doubles wide_or(const element_t *x, int64_t n, float value)
{
    if (n >= L)
        return wide(x);
    float filled[L];
    for (int k = 0; k < L; k++)
        filled[k] = k < n ? to_float(x[k]) : value;
    return widened(LOAD(halves, filled));
}

/* L elements of gamma or beta from j on, of which n are loaded; the others are zero. */
INLINE doubles parameters_at(const call_t *call, const void *parameter, int64_t j, int64_t n)
{
    if (call->wide) {
        const double *x = (const double *)parameter + j;
        double filled[L] = {0};
        if (n >= L)
            return LOAD(doubles, x);
        memcpy(filled, x, (size_t)n * sizeof(double));
        return LOAD(doubles, filled);
    }
    const float *x = (const float *)parameter + j;
    float filled[L] = {0};
    if (n >= L)
        return widened(LOAD(halves, x));
    memcpy(filled, x, (size_t)n * sizeof(float));
    return widened(LOAD(halves, filled));
}
INLINE double parameter_at(const call_t *call, const void *parameter, int64_t j)
{
    return call->wide ? ((const double *)parameter)[j] : (double)((const float *)parameter)[j];
}

/* 2*L numbers of which n are loaded; the others are zero. */
INLINE floats floats_or_zero(const element_t *x, int64_t n)
{
    element_t filled[2 * L] = {0};
    memcpy(filled, x, (size_t)n * sizeof(element_t));
    return load_floats(filled);
}

/* Elements of a call from an offset on. */
INLINE const element_t *elements_at(const void *array, int64_t offset)
{
    return (const element_t *)array + offset;
}
INLINE element_t *results_at(const call_t *call, int64_t offset)
{
    return (element_t *)call->out + offset;
}

/* The bits of a magnitude as float32. */
INLINE uint32_t magnitude_of(element_t x) { return bits_of(to_float(x)) & 0x7FFFFFFFu; }

#endif

/* Elements as they are stored: STORAGE is 0 for float32, 1 for float16, 2 for bfloat16.
 *
 * LOAD widens exactly to float. `rounded` rounds a double once, ties to even.
 */
#define INFINITE FLOAT_OF_BITS(0x7f800000u)

#if STORAGE == 0
typedef float store_t;
#define LOAD(a) (a)
#define NAN_BITS FLOAT_OF_BITS(0x7fc00000u)
DEVICE store_t rounded(double z) { return (float)z; }
DEVICE store_t rounded_or_nan(float z) { return z == z ? z : NAN_BITS; }
DEVICE unsigned bits_of(store_t a) { return BITS_OF_FLOAT(a); }
#else
typedef unsigned short store_t;
#if STORAGE == 1
#define MANTISSA 10
#define BIAS 15
#define NAN_BITS ((store_t)0x7e00)
#define TO_UNITS 16777216.0 /* 2**24: the smallest subnormal number is one unit */
DEVICE float LOAD(store_t a) {
    const unsigned size = (unsigned)(a & 0x7fff) << 13;
    const float value = size >= 0x0f800000u ? FLOAT_OF_BITS(size | 0x7f800000u)
                                            : FLOAT_OF_BITS(size) * FLOAT_OF_BITS(0x77800000u);
    return (a & 0x8000) ? -value : value;
}
#else
#define MANTISSA 7
#define BIAS 127
#define NAN_BITS ((store_t)0x7fc0)
#define TO_UNITS 1.0889035741470031e+40 /* 2**133 */
DEVICE float LOAD(store_t a) { return FLOAT_OF_BITS((unsigned)a << 16); }
#endif
DEVICE store_t rounded(double z) {
    const wide_t bits = BITS_OF_DOUBLE(z), size = bits & (wide_t)0x7fffffffffffffff;
    const wide_t cut = 52 - MANTISSA, one = 1;
    const wide_t smallest = one << MANTISSA, infinite = (wide_t)(2 * BIAS + 1) << MANTISSA;
    wide_t result = (size + (one << (cut - 1)) - 1 + ((size >> cut) & 1)) >> cut;
    result -= (wide_t)(1023 - BIAS) << MANTISSA;
    if (result < smallest) { /* adding 2**52 rounds to a multiple of one */
        const double units = ABS(z) * TO_UNITS;
        result = (wide_t)((units + 4503599627370496.0) - 4503599627370496.0);
    }
    if (result > infinite) result = infinite;
    if (size > (wide_t)0x7ff0000000000000) return NAN_BITS;
    return (store_t)(result | ((bits >> 48) & 0x8000));
}
DEVICE store_t rounded_or_nan(double z) { return rounded(z); }
DEVICE unsigned bits_of(store_t a) { return a; }
#endif

/* Elements that a thread reads or writes at a time. */
typedef struct {
    store_t value[VECTOR];
} __attribute__((aligned(VECTOR * sizeof(store_t)))) pack_t;

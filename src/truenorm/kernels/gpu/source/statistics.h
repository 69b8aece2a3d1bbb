/* What is known of a row: (E1) to (E6) of docs/error-analysis.md, with DEPTH for h. */
#define U 1.1102230246251565e-16 /* 2**-53 */
#define SLACK 1.01
#define TINY 9.332636185032189e-302 /* 2**-1000 */

typedef struct {
    double near, low, v;     /* the mean is near + low; v is 0 for constant rows only */
    double w, r;             /* v + eps, 1/sqrt(w) */
    double spread;           /* rms(x - near) */
    double of_mean, of_w, of_r; /* errors, the latter two relative */
    double centring;         /* of (E6), what all elements of a row share */
} stats_t;

DEVICE stats_t stats_of(double near, double low, double v, double eps) {
    stats_t s;
    const double square = v + low * low;
    s.near = near, s.low = low, s.v = v;
    s.w = v + eps, s.r = 1 / SQRT(s.w), s.spread = SQRT(square);
    s.of_mean = CENTRED ? (DEPTH + 2) * U * s.spread : 0.0;                         /* (E3), (R1) */
    s.of_w = ((DEPTH + 6) * U * square + 2 * ABS(low) * s.of_mean) / s.w + U;      /* (E4) */
    s.of_r = s.of_w / 2 + 2 * U;                                                   /* (E5) */
    s.centring = CENTRED ? s.of_mean + U * s.spread : 0.0;
    return s;
}

/* Whether float32 will do for the elements of a row, which is all that fast mode asks. */
DEVICE int is_easy(stats_t s) {
    const double low = 8.673617379884035e-19, high = 1.152921504606847e+18; /* 2**-60, 2**60 */
    return !CORRECT && s.v > low && s.v < high && s.w < high;
}

/* The row itself, as stored: in registers, or read once more, which a cache answers. */
#if HELD
#define HOLD(name) pack_t name[PACKS]
#define READ(name, from, row) (name[p] = PACK(from, row, at))
#define AGAIN(name, from, row) name[p]
#else
#define HOLD(name)
#define READ(name, from, row) PACK(from, row, at)
#define AGAIN(name, from, row) PACK(from, row, at)
#endif

/* What became of a row: see kernels/tuning.py. DONE is zero, and not written. */
#define REFUSED 1
#define UNDEFINED 2
#define NOT_FINITE 3
#define CHANGED 4

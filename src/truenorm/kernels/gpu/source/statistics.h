/* Row statistics and their errors: (E1) to (E6) of docs/inside/error-analysis.md, with DEPTH for h. */
#define U 1.1102230246251565e-16 /* 2**-53 */
#define SLACK 1.01
#define TINY 9.332636185032189e-302 /* 2**-1000 */

typedef struct {
    double near, low, v;     /* the mean is near + low; v is 0 for constant rows only */
    double w, r;             /* v + eps, 1/sqrt(w) */
    double spread;           /* rms(x - near) */
    double err_mean, err_w, err_r; /* errors; the last two are relative */
    double centring;         /* the part of (E6) that all elements share */
} stats_t;

DEVICE stats_t stats_of(double near, double low, double v, double eps) {
    stats_t s;
    const double square = v + low * low;
    s.near = near, s.low = low, s.v = v;
    s.w = v + eps, s.r = 1 / SQRT(s.w), s.spread = SQRT(square);
    s.err_mean = CENTRED ? (DEPTH + 2) * U * s.spread : 0.0;                         /* (E3), (R1) */
    s.err_w = ((DEPTH + 6) * U * square + 2 * ABS(low) * s.err_mean) / s.w + U;      /* (E4) */
    s.err_r = s.err_w / 2 + 2 * U;                                                   /* (E5) */
    s.centring = CENTRED ? s.err_mean + U * s.spread : 0.0;
    return s;
}

/* True if float32 arithmetic keeps the bounds of fast mode for the elements of a row. */
DEVICE int is_easy(stats_t s) {
    const double low = 8.673617379884035e-19, high = 1.152921504606847e+18; /* 2**-60, 2**60 */
    return !CORRECT && s.v > low && s.v < high && s.w < high;
}

/* The elements of a row: in registers, or read again from the cache. */
#if X_IN_REGISTERS
#define REGISTERS(name) pack_t name[PACKS]
#define READ(name, from, row) (name[p] = PACK(from, row, at))
#define REREAD(name, from, row) name[p]
#else
#define REGISTERS(name)
#define READ(name, from, row) PACK(from, row, at)
#define REREAD(name, from, row) PACK(from, row, at)
#endif

/* Row status: see kernels/tuning.py. OK is zero, and not written. */
#define UNDECIDED 1
#define UNDEFINED 2
#define NOT_FINITE 3
#define CHANGED 4

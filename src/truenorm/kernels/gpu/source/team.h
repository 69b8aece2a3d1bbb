/* A team of TEAM threads has a row; a block has TEAMS of them, and more than one only of at most
 * a warp each. Thread t of a team has packs t, t + TEAM, ... of VECTOR elements.
 *
 * A sum over a row is: a thread's elements in their order, then the threads of a warp in a
 * butterfly (16, 8, 4, 2, 1 apart), then warps in their order. Nothing else decides the order:
 * every interface, device and number of blocks gives the same bits. No element goes through more
 * than DEPTH additions.
 */
#define LANES (TEAM < 32 ? TEAM : 32)
#define WARPS (TEAM / LANES)
#define THREADS_OF_ROW (THREAD % TEAM)
#define TEAM_OF_BLOCK (THREAD / TEAM)
#define PACKS ((SIZE + TEAM * VECTOR - 1) / (TEAM * VECTOR))
#define ITEMS (PACKS * VECTOR)
#if X_IN_REGISTERS || SUMS_IN_REGISTERS
#define UNROLL_PACKS UNROLL
#else
#define UNROLL_PACKS
#endif

#define EACH_PACK \
    UNROLL_PACKS for (small_t p = 0, at = THREADS_OF_ROW * VECTOR; p < PACKS; ++p, at += TEAM * VECTOR) \
        if (at < SIZE)
#define EACH_ITEM UNROLL for (small_t k = 0; k < VECTOR; ++k)
#define ITEM (p * VECTOR + k)
#define PACK(from, row, at) (*(GLOBAL const pack_t *)((from) + (index_t)(row) * SIZE + (at)))
#define PUT(to, row, at, pack) (*(GLOBAL pack_t *)((to) + (index_t)(row) * SIZE + (at)) = (pack))

/* Rows in turn, one for each team of a block. All threads of a block do the same number of
 * iterations, since they meet at barriers: a team without a row repeats the last one and writes
 * nothing.
 */
#define EACH_ROW(count)                                                                     \
    for (index_t first = (index_t)BLOCK * TEAMS; first < (count); first += (index_t)BLOCKS * TEAMS)
#define ROW_OF_TEAM(count) \
    (first + TEAM_OF_BLOCK < (count) ? first + TEAM_OF_BLOCK : (index_t)((count) - 1))
#define HAS_ROW(count) (first + TEAM_OF_BLOCK < (count))

/* Offsets of elements, and offsets within a row: a test makes both smaller. */
#ifndef INDEX
#define INDEX wide_t
#define SMALL int
#endif
typedef INDEX index_t;
typedef SMALL small_t;

#ifdef EXCHANGE
#define SCRATCH(n) ((n) * WARPS)
DEVICE double from_lane(double value, int offset) {
    union {
        double whole;
        int half[2];
    } a;
    a.whole = value;
    a.half[0] = EXCHANGE(a.half[0], offset);
    a.half[1] = EXCHANGE(a.half[1], offset);
    return a.whole;
}
DEVICE void team_sums(int n, double *a, LOCAL double *scratch) {
    for (int offset = LANES / 2; offset; offset >>= 1)
        for (int q = 0; q < n; ++q) a[q] += from_lane(a[q], offset);
    if (WARPS == 1) return;
    BARRIER;
    if (THREAD % LANES == 0)
        for (int q = 0; q < n; ++q) scratch[q * WARPS + THREAD / LANES] = a[q];
    BARRIER;
    for (int q = 0; q < n; ++q) {
        a[q] = scratch[q * WARPS];
        for (int w = 1; w < WARPS; ++w) a[q] += scratch[q * WARPS + w];
    }
}
#else /* through local memory: the same tree as lane 0 of a butterfly */
#define SCRATCH(n) ((n) * THREADS)
DEVICE void team_sums(int n, double *a, LOCAL double *scratch) {
    BARRIER;
    for (int q = 0; q < n; ++q) scratch[q * THREADS + THREAD] = a[q];
    BARRIER;
    for (int offset = LANES / 2; offset; offset >>= 1) {
        if (THREAD % LANES < offset)
            for (int q = 0; q < n; ++q)
                scratch[q * THREADS + THREAD] += scratch[q * THREADS + THREAD + offset];
        BARRIER;
    }
    for (int q = 0; q < n; ++q) {
        const int base = q * THREADS + TEAM_OF_BLOCK * TEAM;
        a[q] = scratch[base];
        for (int w = 1; w < WARPS; ++w) a[q] += scratch[base + w * LANES];
    }
}
#endif

/* The part of CUDA that the kernels use, on a CPU: the threads of a block are fibers of one thread.
 *
 * A fiber runs until it waits: at a barrier for all threads of its block, at a shuffle for all
 * lanes of its warp. The next fiber is drawn at random from a seed, and so is the order of blocks.
 * A deadlock is reported.
 */
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

namespace fibers {
const int LANES_OF_WARP = 32, WARPS_OF_BLOCK = (THREADS + LANES_OF_WARP - 1) / LANES_OF_WARP;
const size_t STACK = 1 << 16;
enum State { READY, AT_BARRIER, AT_SHUFFLE, ENDED };

ucontext_t beginning, scheduler_before;
jmp_buf scheduler, places[THREADS]; /* a jump, unlike swapcontext, is no call of the system */
alignas(64) char stacks[THREADS][STACK];
State states[THREADS];
int ready[WARPS_OF_BLOCK][LANES_OF_WARP], ready_in[WARPS_OF_BLOCK], in_total;
int at_barrier, at_shuffle[WARPS_OF_BLOCK];
int sent[THREADS], received[THREADS], offsets[THREADS];
volatile int thread, block, blocks;
const char *volatile complaint;
uint64_t random_state;

/* xorshift64*: a number below n. */
unsigned draw(unsigned n) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (unsigned)((random_state * 2685821657736338717ull) >> 33) % n;
}

void make_ready(int t) {
    const int warp = t / LANES_OF_WARP;
    states[t] = READY;
    ready[warp][ready_in[warp]++] = t;
    ++in_total;
}

void wait_as(State state) {
    const int t = thread;
    states[t] = state;
    if (!_setjmp(places[t])) _longjmp(scheduler, 1);
}

void barrier() {
    if (++at_barrier == THREADS) {
        at_barrier = 0;
        for (int t = 0; t < THREADS; ++t)
            if (t != thread) make_ready(t);
        make_ready(thread);
        wait_as(READY);
    } else
        wait_as(AT_BARRIER);
}

int shuffle(int value, int offset) {
    const int t = thread, warp = t / LANES_OF_WARP, first = warp * LANES_OF_WARP;
    sent[t] = value, offsets[t] = offset;
    if (++at_shuffle[warp] == LANES_OF_WARP) {
        at_shuffle[warp] = 0;
        for (int k = first; k < first + LANES_OF_WARP; ++k) {
            if (offsets[k] != offset) complaint = "lanes of a warp meet at different shuffles";
            received[k] = sent[first + ((k ^ offsets[k]) % LANES_OF_WARP)];
            make_ready(k);
        }
        wait_as(READY);
    } else
        wait_as(AT_SHUFFLE);
    return received[t];
}

/* The next to run: by times one of the warp that ran last, so that a warp runs far ahead. */
int next_thread(int last, unsigned stay) {
    int warp = last / LANES_OF_WARP;
    if (!ready_in[warp] || draw(1024) >= stay) {
        unsigned place = draw(in_total);
        for (warp = 0; place >= (unsigned)ready_in[warp]; ++warp) place -= ready_in[warp];
    }
    const int place = draw(ready_in[warp]), t = ready[warp][place];
    ready[warp][place] = ready[warp][--ready_in[warp]];
    --in_total;
    return t;
}

template <class Body> struct Threads {
    static const Body *body;
    static void run() {
        if (!_setjmp(places[thread])) swapcontext(&beginning, &scheduler_before);
        (*body)();
        states[thread] = ENDED;
        _longjmp(scheduler, 1);
    }
};
template <class Body> const Body *Threads<Body>::body;

template <class Body> void run_block(const Body &body, unsigned stay) {
    Threads<Body>::body = &body;
    in_total = at_barrier = 0;
    for (int warp = 0; warp < WARPS_OF_BLOCK; ++warp) ready_in[warp] = at_shuffle[warp] = 0;
    for (int t = 0; t < THREADS; ++t) {
        getcontext(&beginning);
        beginning.uc_stack.ss_sp = stacks[t];
        beginning.uc_stack.ss_size = STACK;
        beginning.uc_link = nullptr;
        makecontext(&beginning, Threads<Body>::run, 0);
        thread = t;
        swapcontext(&scheduler_before, &beginning);
        make_ready(t);
    }
    volatile int ended = 0;
    while (in_total && !complaint) {
        thread = next_thread(thread, stay);
        if (!_setjmp(scheduler)) _longjmp(places[thread], 1);
        if (states[thread] == ENDED) ++ended;
    }
    if (ended == THREADS || complaint) return;
    complaint = "threads wait at a barrier that others do not come to";
    for (int t = 0; t < THREADS; ++t)
        if (states[t] == AT_SHUFFLE) complaint = "lanes wait at a shuffle that others do not come to";
}

template <class... Types, size_t... Places>
const char *run(void (*kernel)(Types...), void **values, std::index_sequence<Places...>) {
    const auto body = [=] { kernel(*(Types *)values[Places]...); };
    const unsigned stays[] = {0, 512, 1000, 1022};
    int *order = new int[blocks];
    for (int b = 0; b < blocks; ++b) {
        const int place = draw(b + 1);
        order[b] = order[place];
        order[place] = b;
    }
    complaint = nullptr, thread = 0;
    for (int b = 0; b < blocks && !complaint; ++b) {
        block = order[b];
        run_block(body, stays[draw(4)]);
    }
    delete[] order;
    return complaint;
}

template <class... Types>
const char *launched(void (*kernel)(Types...), int count, uint64_t seed, int arity, void **values) {
    if (arity != sizeof...(Types)) return "the kernel takes another number of arguments";
    blocks = count, random_state = seed * 0x9e3779b97f4a7c15ull + 1;
    return run(kernel, values, std::index_sequence_for<Types...>());
}
} // namespace fibers

struct { struct { operator unsigned() const { return fibers::thread; } } x; } threadIdx;
struct { struct { operator unsigned() const { return fibers::block; } } x; } blockIdx;
struct { struct { operator unsigned() const { return fibers::blocks; } } x; } gridDim;

static inline void __syncthreads() { fibers::barrier(); }
static inline int __shfl_xor_sync(unsigned, int value, int offset) {
    return fibers::shuffle(value, offset);
}

template <class To, class From> static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float a) { return same_bits<unsigned>(a); }
static inline float __uint_as_float(unsigned a) { return same_bits<float>(a); }
static inline long long __double_as_longlong(double a) { return same_bits<long long>(a); }
static inline double __longlong_as_double(long long a) { return same_bits<double>(a); }

/* Run blocks of a kernel; return what went wrong, or nothing. */
#define LAUNCH(kernel)                                                                       \
    extern "C" const char *launch(int blocks, uint64_t seed, int arity, void **values) {     \
        return fibers::launched(kernel, blocks, seed, arity, values);                        \
    }

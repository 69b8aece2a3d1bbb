/* Helper threads.

   A helper spins for a while after each job and then sleeps. Callers claim idle helpers one by
   one, so several Python threads can call at the same time; a caller that finds none computes
   alone. Chunks of a job are handed out by a counter: a helper that arrives late takes fewer, and
   an offer that no helper has taken up when the chunks run out is withdrawn. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "core.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define PAUSE() _mm_pause()
void use_ieee_arithmetic(void) { _mm_setcsr(0x1F80); }
/* The rounding mode, flush-to-zero and denormals-are-zero. */
bool arithmetic_is_ieee(void) { return (_mm_getcsr() & 0xE040u) == 0; }
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
void use_ieee_arithmetic(void) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0)); }
bool arithmetic_is_ieee(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (control & ((uint64_t)7 << 22)) == 0;
}
#else
#define PAUSE() ((void)0)
void use_ieee_arithmetic(void) {}
bool arithmetic_is_ieee(void) { return true; }
#endif

typedef struct {
    work_t work;
    void *argument;
    int64_t chunks;
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) atomic_int workers, pending;
} job_t;

static void do_chunks(job_t *job, int worker)
{
    int64_t chunk;
    while ((chunk = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->chunks)
        job->work(job->argument, chunk, worker);
}

#if defined(_WIN32)

void for_each_chunk(work_t work, void *argument, int64_t chunks, int threads, bool wake)
{
    job_t job = {.work = work, .argument = argument, .chunks = chunks, .workers = 1};
    (void)threads, (void)wake;
    do_chunks(&job, 0);
}

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

enum { SPIN_NANOSECONDS = 200000, STACK = 1 << 19 };
enum { EMPTY, IDLE, BUSY }; /* or the address of the job that is offered */

typedef struct {
    _Alignas(64) atomic_uintptr_t state;
    atomic_bool asleep;
    pthread_mutex_t mutex;
    pthread_cond_t offered;
} helper_t;

static helper_t helpers[MOST_THREADS - 1];
static atomic_int started;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spin, then sleep, until a job is offered. */
static uintptr_t await_offer(helper_t *helper)
{
    int64_t end = now() + SPIN_NANOSECONDS;
    uintptr_t state;
    do
        for (int k = 0; k < 64; k++) {
            state = atomic_load_explicit(&helper->state, memory_order_acquire);
            if (state > BUSY)
                return state;
            PAUSE();
        }
    while (now() < end);
    pthread_mutex_lock(&helper->mutex);
    atomic_store(&helper->asleep, true);
    while ((state = atomic_load(&helper->state)) <= BUSY)
        pthread_cond_wait(&helper->offered, &helper->mutex);
    atomic_store(&helper->asleep, false);
    pthread_mutex_unlock(&helper->mutex);
    return state;
}

static void *help(void *argument)
{
    helper_t *helper = argument;
    for (;;) {
        uintptr_t offer = await_offer(helper);
        if (!atomic_compare_exchange_strong(&helper->state, &offer, BUSY))
            continue; /* withdrawn */
        job_t *job = (job_t *)offer;
        use_ieee_arithmetic(); /* the control register is that of the thread that started it */
        do_chunks(job, atomic_fetch_add_explicit(&job->workers, 1, memory_order_relaxed));
        atomic_fetch_sub_explicit(&job->pending, 1, memory_order_release);
        atomic_store_explicit(&helper->state, IDLE, memory_order_release);
    }
    return NULL;
}

static void lock_starting(void) { pthread_mutex_lock(&starting); }
static void unlock_starting(void) { pthread_mutex_unlock(&starting); }

/* A forked child has none of the threads of its parent. */
static void forget_helpers(void)
{
    for (int k = 0; k < MOST_THREADS - 1; k++)
        atomic_store(&helpers[k].state, EMPTY);
    atomic_store(&started, 0);
    pthread_mutex_unlock(&starting);
}

static void watch_forks(void) { pthread_atfork(lock_starting, unlock_starting, forget_helpers); }

static void start_helpers(int count)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&starting);
    sigset_t every, before;
    sigfillset(&every); /* signals are for the threads of Python, but not faults */
    sigdelset(&every, SIGSEGV);
    sigdelset(&every, SIGBUS);
    sigdelset(&every, SIGFPE);
    sigdelset(&every, SIGILL);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    for (int k = atomic_load(&started); k < count; k++) {
        pthread_t thread;
        helper_t *helper = &helpers[k];
        pthread_mutex_init(&helper->mutex, NULL);
        pthread_cond_init(&helper->offered, NULL);
        atomic_store(&helper->asleep, false);
        atomic_store(&helper->state, IDLE);
        if (pthread_create(&thread, &attributes, help, helper) != 0) {
            atomic_store(&helper->state, EMPTY);
            break; /* compute with those that there are */
        }
        atomic_store(&started, k + 1);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&starting);
}

/* Offer a job to an idle helper; without `wake`, only to one that is awake. */
static bool offer(helper_t *helper, job_t *job, bool wake)
{
    uintptr_t idle = IDLE;
    if (!wake && atomic_load(&helper->asleep))
        return false;
    atomic_fetch_add_explicit(&job->pending, 1, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&helper->state, &idle, (uintptr_t)job)) {
        atomic_fetch_sub_explicit(&job->pending, 1, memory_order_relaxed);
        return false;
    }
    if (atomic_load(&helper->asleep)) {
        pthread_mutex_lock(&helper->mutex);
        pthread_cond_signal(&helper->offered);
        pthread_mutex_unlock(&helper->mutex);
    }
    return true;
}

/* Call work(argument, chunk, worker) for every chunk, on up to `threads` threads with this one.
   Workers are numbered from 0, the caller. `wake` wakes helpers that sleep. */
void for_each_chunk(work_t work, void *argument, int64_t chunks, int threads, bool wake)
{
    job_t job = {.work = work, .argument = argument, .chunks = chunks, .workers = 1};
    helper_t *claimed[MOST_THREADS - 1];
    int count = 0, wanted = threads < MOST_THREADS ? threads : MOST_THREADS;
    wanted = (chunks < wanted ? (int)chunks : wanted) - 1;
    if (wanted > 0 && wake && atomic_load(&started) < wanted)
        start_helpers(wanted);
    for (int k = 0; k < atomic_load(&started) && count < wanted; k++)
        if (offer(&helpers[k], &job, wake))
            claimed[count++] = &helpers[k];
    do_chunks(&job, 0);
    for (int k = 0; k < count; k++) {
        uintptr_t offered = (uintptr_t)&job;
        if (atomic_compare_exchange_strong(&claimed[k]->state, &offered, IDLE))
            atomic_fetch_sub_explicit(&job.pending, 1, memory_order_relaxed);
    }
    for (int64_t k = 0; atomic_load_explicit(&job.pending, memory_order_acquire) > 0; k++)
        if (k < 4096)
            PAUSE();
        else
            sched_yield();
}

#endif

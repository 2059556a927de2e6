/* A pool of threads that all run the same task, each on its part of the work; `barrier` synchronises them.
 *
 * One step of decoding has hundreds of barriers. A waiting thread therefore spins instead of sleeping, but yields its
 * core after a while: on a busy machine, the thread that all others wait for may be queued for that core. Threads that
 * wait more than they work would be faster if they were fewer, so the next tasks have half of them for a while. What is
 * summed over the parts of all threads has a part for each thread of the caller's number nevertheless, so sums are the same.
 */
#include <stdint.h>

typedef struct { int id, count; } Worker; /* number `id` of `count` */
typedef void Task(Worker worker, void *arguments);

#ifdef __wasm__
/* A page's worker is one thread. */
static void barrier(Worker worker) { (void)worker; }

static void run_parallel(int threads, Task *task, void *arguments) {
    (void)threads;
    task((Worker){0, 1}, arguments);
}
#else
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#ifndef SPINS
#define SPINS 2000 /* checks before a waiting thread yields its core; tests set fewer */
#endif
#ifndef PENALTY
#define PENALTY 20 /* how many times the lost time passes before more threads are tried again; tests set 0 */
#endif
enum { MAX_THREADS = 256, YIELDS = 2 * SPINS }; /* checks with yields before it sleeps */

static struct {
    pthread_mutex_t caller;        /* held by the thread whose task runs */
    pthread_mutex_t mutex;         /* guards the fields below while a task is announced */
    pthread_cond_t announced;
    int threads, workers;          /* threads started; workers of the current task, the caller included */
    Task *task;
    void *arguments;
    atomic_int tasks;              /* announced so far */
    atomic_int arrived, barriers;  /* workers at the current barrier; barriers passed so far */
    int64_t waited;                /* nanoseconds that the caller has waited in the current task */
    atomic_int most;               /* workers that a task may have until `retry`, as the machine is busy; 0: any number */
    _Atomic int64_t retry;         /* by the clock of `nanoseconds` */
} pool = {
    .caller = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER, .announced = PTHREAD_COND_INITIALIZER,
};

static int64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * (int64_t)1000000000 + time.tv_nsec;
}

static void back_off(int checks) {
    if (checks > SPINS) sched_yield();
}

/* Wait until all workers of the task have called this. */
static void barrier(Worker worker) {
    if (worker.count == 1) return;
    int before = atomic_load(&pool.barriers);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 == worker.count) {
        atomic_store(&pool.arrived, 0);
        atomic_fetch_add(&pool.barriers, 1);
        return;
    }
    int64_t yielding = 0;
    for (int checks = 0; atomic_load(&pool.barriers) == before; checks++) {
        if (checks == SPINS && worker.id == 0) yielding = nanoseconds();
        back_off(checks);
    }
    if (yielding) pool.waited += nanoseconds() - yielding;
}

static void *run_worker(void *number) {
    int id = (int)(intptr_t)number, done = 0;
    for (;;) {
        for (int checks = 0; atomic_load(&pool.tasks) == done && checks < SPINS + YIELDS; checks++) back_off(checks);
        pthread_mutex_lock(&pool.mutex);
        while (atomic_load(&pool.tasks) == done) pthread_cond_wait(&pool.announced, &pool.mutex);
        done = atomic_load(&pool.tasks);
        Worker worker = {id, pool.workers};
        pthread_mutex_unlock(&pool.mutex);
        if (id < worker.count) {
            pool.task(worker, pool.arguments);
            barrier(worker);
        }
    }
    return NULL;
}

/* A forked process has no other thread than the one that called fork. */
static void reset_pool(void) {
    pthread_mutex_init(&pool.caller, NULL);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.announced, NULL);
    pool.threads = pool.workers = 0;
    atomic_store(&pool.arrived, 0);
}

__attribute__((constructor)) static void reset_pool_after_fork(void) { pthread_atfork(NULL, NULL, reset_pool); }

/* Start threads until there are `count`; returns how many of these there are, fewer if the system refuses more. */
static int start_threads(int count) {
    while (pool.threads < count) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_worker, (void *)(intptr_t)(pool.threads + 1))) break;
        pthread_detach(thread);
        pool.threads++;
    }
    return pool.threads < count ? pool.threads : count;
}

/* The number of threads, of these at most, that the next task should have. */
static int useful_threads(int threads) {
    int most = atomic_load(&pool.most);
    if (!most || threads <= most) return threads;
    if (nanoseconds() < atomic_load(&pool.retry)) return most;
    return 2 * most < threads ? 2 * most : threads;
}

/* Learn from a task that took this long how many threads the next one should have. */
static void adapt(Worker worker, int64_t start) {
    int64_t end = nanoseconds();
    if (2 * pool.waited > end - start) { /* with half of the threads, it takes twice the remaining time at most */
        atomic_store(&pool.most, worker.count / 2);
        atomic_store(&pool.retry, end + PENALTY * pool.waited);
    } else if (worker.count > atomic_load(&pool.most))
        atomic_store(&pool.most, worker.count);
}

/* Run the task on at most this many threads, the caller's included; returns when all have finished. */
static void run_parallel(int threads, Task *task, void *arguments) {
    threads = useful_threads(threads);
    if (threads <= 1) { /* does not use the pool, so several callers can do this at the same time */
        task((Worker){0, 1}, arguments);
        return;
    }
    pthread_mutex_lock(&pool.caller);
    Worker worker = {0, start_threads((threads < MAX_THREADS ? threads : MAX_THREADS) - 1) + 1};
    if (worker.count > 1) {
        pthread_mutex_lock(&pool.mutex);
        pool.workers = worker.count;
        pool.task = task;
        pool.arguments = arguments;
        atomic_fetch_add(&pool.tasks, 1);
        pthread_cond_broadcast(&pool.announced);
        pthread_mutex_unlock(&pool.mutex);
    }
    int64_t start = nanoseconds();
    pool.waited = 0;
    task(worker, arguments);
    barrier(worker);
    adapt(worker, start);
    pthread_mutex_unlock(&pool.caller);
}
#endif

/* The worker's part of n items: `first` up to `last`, which is not included. */
static void split_work(Worker worker, int n, int *first, int *last) {
    *first = (int)((int64_t)n * worker.id / worker.count);
    *last = (int)((int64_t)n * (worker.id + 1) / worker.count);
}

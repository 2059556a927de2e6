/* A team of threads that all run the same function, each doing its share; `meet` lets them wait for each other.
 *
 * They meet hundreds of times for every word. So they wait awake, but let others have the core after a moment: where a
 * machine is busy, the one that everybody waits for may be queueing behind the one that waits.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

enum { MOST_THREADS = 256, AWAKE = 2000, PATIENT = 4000 }; /* looks before giving the core away, and before going to sleep */

typedef struct { int id, size; } Team;
typedef void Work(Team team, void *arguments);

static struct {
    pthread_mutex_t used, door;
    pthread_cond_t called;
    int hired, size;            /* threads there are beside the caller's; those that work now, the caller's too */
    Work *work;
    void *arguments;
    atomic_int orders;          /* given so far */
    atomic_int arrived, met;    /* at the meeting under way; meetings so far */
} crew = {.used = PTHREAD_MUTEX_INITIALIZER, .door = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER};

static void look_again(int looks) {
    if (looks > AWAKE) sched_yield();
}

static void meet(Team team) {
    if (team.size == 1) return;
    int before = atomic_load(&crew.met);
    if (atomic_fetch_add(&crew.arrived, 1) + 1 == team.size) {
        atomic_store(&crew.arrived, 0);
        atomic_fetch_add(&crew.met, 1);
    } else
        for (int looks = 0; atomic_load(&crew.met) == before; looks++) look_again(looks);
}

static void *serve(void *number) {
    int id = (int)(intptr_t)number, done = 0;
    for (;;) {
        for (int looks = 0; atomic_load(&crew.orders) == done && looks < AWAKE + PATIENT; looks++) look_again(looks);
        pthread_mutex_lock(&crew.door);
        while (atomic_load(&crew.orders) == done) pthread_cond_wait(&crew.called, &crew.door);
        done = atomic_load(&crew.orders);
        Team team = {id, crew.size};
        pthread_mutex_unlock(&crew.door);
        if (id < team.size) {
            crew.work(team, crew.arguments);
            meet(team);
        }
    }
    return NULL;
}

/* A process that was forked has no threads but the one that forked it. */
static void begin_anew(void) {
    pthread_mutex_init(&crew.used, NULL);
    pthread_mutex_init(&crew.door, NULL);
    pthread_cond_init(&crew.called, NULL);
    crew.hired = crew.size = 0;
    atomic_store(&crew.arrived, 0);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_anew); }

/* Threads that serve beside the caller's, hired where there are too few. */
static int hire(int wanted) {
    while (crew.hired < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)(crew.hired + 1))) break;
        pthread_detach(thread);
        crew.hired++;
    }
    return crew.hired < wanted ? crew.hired : wanted;
}

/* Have so many threads do the work, the caller's among them; returns when all are done. */
static void together(int threads, Work *work, void *arguments) {
    if (threads <= 1) { /* such callers need not take turns */
        work((Team){0, 1}, arguments);
        return;
    }
    pthread_mutex_lock(&crew.used);
    int others = hire((threads < MOST_THREADS ? threads : MOST_THREADS) - 1);
    Team team = {0, others + 1};
    if (others) {
        pthread_mutex_lock(&crew.door);
        crew.size = team.size;
        crew.work = work;
        crew.arguments = arguments;
        atomic_fetch_add(&crew.orders, 1);
        pthread_cond_broadcast(&crew.called);
        pthread_mutex_unlock(&crew.door);
    }
    work(team, arguments);
    meet(team);
    pthread_mutex_unlock(&crew.used);
}

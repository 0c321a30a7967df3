//go:build ignore

/*
 * A wall clock for one process that can be stepped and sped up while the process runs; see WithClock. The monotonic
 * clock stays true.
 *
 *   cc -shared -fPIC -O2 -o clockshim.so clockshim.c
 *   REDLOCK_CLOCK=file LD_PRELOAD=clockshim.so redis-server ...
 *
 * The file holds four 64-bit integers of this machine: a version, odd while the others change; what to add to the true
 * time, in microseconds; how much faster it runs, in parts per million; and the true time from which it does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { VERSION, OFFSET, PPM, SINCE, FIELDS };
enum { PATIENCE = 1000000 }; /* a writer that died half way must not hang the server */

static const int64_t *control; /* NULL: the true time */

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("REDLOCK_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, FIELDS * sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) control = page;
}

/* shift is what the clock shows when the true time is us. */
static int64_t shift(int64_t us) {
    if (!control) return us;
    int64_t shown = us;
    for (int i = 0; i < PATIENCE; i++) {
        int64_t before = __atomic_load_n(&control[VERSION], __ATOMIC_ACQUIRE);
        int64_t offset = __atomic_load_n(&control[OFFSET], __ATOMIC_ACQUIRE);
        int64_t ppm = __atomic_load_n(&control[PPM], __ATOMIC_ACQUIRE);
        int64_t since = __atomic_load_n(&control[SINCE], __ATOMIC_ACQUIRE);
        shown = us + offset + (us - since) * ppm / 1000000;
        if (before % 2 == 0 && before == __atomic_load_n(&control[VERSION], __ATOMIC_ACQUIRE)) break;
    }
    return shown;
}

/* The system calls themselves, for libc's functions are the ones replaced here. */

int clock_gettime(clockid_t id, struct timespec *ts) {
    long failed = syscall(SYS_clock_gettime, id, ts);
    if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return (int)failed;
    int64_t us = shift((int64_t)ts->tv_sec * 1000000 + ts->tv_nsec / 1000);
    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000 + ts->tv_nsec % 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (tv) *tv = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

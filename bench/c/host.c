/* The physical limit: a host in C that starts the peer, writes frames and reads whole answers, without looking into them.
   host PEER BYTES CALLS IN_FLIGHT  ->  one JSON object: p50 and p99 in us, calls per second, CPU us per call. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *buffer;
static size_t buffered, room = 1 << 22;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static size_t frame(char *to, size_t bytes, long id) {
    size_t size = sprintf(to, "{\"type\":\"tool_call\",\"id\":\"%ld\",\"name\":\"echo\",\"args\":{\"text\":\"", id);
    size_t filler = bytes > size + 4 ? bytes - size - 4 : 0;
    memset(to + size, 'x', filler);
    memcpy(to + size + filler, "\"}}\n", 4);
    return size + filler + 4;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t wrote = write(fd, data, size);
        if (wrote <= 0) exit(1);
        data += wrote;
        size -= wrote;
    }
}

/* Reads at least one answer; how many came. */
static long receive(int fd) {
    for (;;) {
        ssize_t got = read(fd, buffer + buffered, room - buffered);
        if (got <= 0) exit(1);
        long lines = 0;
        for (char *at = buffer + buffered; (at = memchr(at, '\n', buffer + buffered + got - at)); at++) lines++;
        buffered = lines ? 0 : buffered + got; /* what follows the last newline is counted with its own */
        if (buffered == room) buffered = 0;
        if (lines) return lines;
    }
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    size_t bytes = atol(arguments[2]);
    long calls = atol(arguments[3]), in_flight = atol(arguments[4]), sent = 0, done = 0;
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return 1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    pid_t pid;
    if (posix_spawn(&pid, arguments[1], &actions, NULL, arguments + 1, environ)) return 1;
    close(to[0]);
    close(from[1]);
    buffer = malloc(room);
    char *batch = malloc((bytes + 128) * in_flight);
    double *times = malloc(sizeof(double) * calls), start = 0, cpu_start = 0;
    long warm = calls / 10, total = calls + warm;
    while (done < total) {
        if (done >= warm && !start) {
            start = now();
            cpu_start = cpu();
        }
        size_t size = 0;
        for (; sent < total && sent - done < in_flight; sent++) size += frame(batch + size, bytes, sent);
        double at = now();
        send_all(to[1], batch, size);
        long got = receive(from[0]);
        if (in_flight == 1 && done >= warm) times[done - warm] = now() - at;
        done += got;
    }
    double wall = now() - start, used = cpu() - cpu_start;
    close(to[1]);
    waitpid(pid, NULL, 0);
    if (in_flight == 1)
        qsort(times, calls, sizeof(double), compare);
    else
        times[calls / 2] = times[calls * 99 / 100] = 0;
    printf("{\"p50_us\":%.3f,\"p99_us\":%.3f,\"per_second\":%.0f,\"cpu_us\":%.3f}\n", times[calls / 2], times[calls * 99 / 100],
           calls / wall * 1e6, used / calls);
    return 0;
}

/* The physical limit of a crowd: starts many children with posix_spawn, each with three pipes, then writes one event to all of
   them and reads until all have answered, with epoll.
   crowd PEER CHILDREN BROADCASTS [piglet]  ->  one JSON object: spawning in ms, and until all have answered once, p50 and p95 and CPU
   of a broadcast in ms, KB of this process for each child. With `piglet` the event is one of that protocol. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "clock.h"

static int epoll, is_piglet;

static long private_kb(void) {
    char line[256];
    long total = 0, value;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Private_Dirty: %ld", &value) == 1 || sscanf(line, "Private_Clean: %ld", &value) == 1) total += value;
    if (file) fclose(file);
    return total;
}

static struct child watched(char **argv) {
    struct child child = start(argv);
    int descriptors[] = {child.out, child.err};
    for (int n = 0; n < 2; n++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptors[n]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptors[n], &event)) exit(1);
    }
    return child;
}

static size_t frame(char *to, size_t bytes, long id) {
    if (is_piglet)
        return sprintf(to, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"event/dispatch\",\"params\":{\"type\":\"EventTurnStart\",\"data\":{}}}\n", id);
    size_t size = sprintf(to, "{\"type\":\"tool_call\",\"id\":\"%ld\",\"name\":\"echo\",\"args\":{\"text\":\"", id);
    size_t filler = bytes > size + 4 ? bytes - size - 4 : 0;
    memset(to + size, 'x', filler);
    memcpy(to + size + filler, "\"}}\n", 4);
    return size + filler + 4;
}

static void broadcast(struct child *children, long count, long id) {
    char event[256], answer[65536];
    struct epoll_event ready[64];
    size_t size = frame(event, 100, id);
    for (long n = 0; n < count; n++)
        if (write(children[n].in, event, size) != (ssize_t)size) exit(1);
    for (long left = count; left;) {
        int found = epoll_wait(epoll, ready, 64, -1);
        for (int n = 0; n < found; n++) {
            ssize_t got = read(ready[n].data.fd, answer, sizeof answer);
            if (got <= 0) exit(1);
            left -= answer[got - 1] == '\n'; /* an answer is far shorter than a pipe: it comes in one piece */
        }
    }
}

int main(int count, char **arguments) {
    if (count != 4 && count != 5) return 2;
    is_piglet = count == 5;
    char *argv[] = {arguments[1], NULL};
    long many = atol(arguments[2]), times = atol(arguments[3]), warm = times / 10;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct child *children = malloc(sizeof *children * (many + 1));
    double *took = malloc(sizeof *took * times);
    children[0] = watched(argv);
    broadcast(children, 1, 0);
    long before = private_kb();
    double from = now(), used = cpu();
    for (long n = 1; n <= many; n++) children[n] = watched(argv);
    double spawn = now() - from, spawn_cpu = cpu() - used;
    broadcast(children + 1, many, 0);
    double ready = now() - from;
    for (long n = -warm; n < times; n++) {
        if (n == 0) used = cpu();
        from = now();
        broadcast(children + 1, many, n + warm + 1);
        if (n >= 0) took[n] = now() - from;
    }
    used = cpu() - used;
    long after = private_kb();
    for (long n = 0; n <= many; n++) close(children[n].in);
    for (long n = 0; n <= many; n++) waitpid(children[n].pid, NULL, 0);
    qsort(took, times, sizeof *took, compare);
    printf("{\"spawn_ms\":%.1f,\"ready_ms\":%.1f,\"spawn_cpu_ms\":%.1f,\"kb\":%.2f,\"p50_ms\":%.3f,\"p95_ms\":%.3f,\"cpu_ms\":%.3f}\n", spawn / 1e3, ready / 1e3, spawn_cpu / 1e3,
           (double)(after - before) / many, took[times / 2] / 1e3, took[times * 95 / 100] / 1e3, used / times / 1e3);
    return 0;
}

/* The physical limit: a host in C that starts the peer, writes frames and reads whole answers, without looking into them.
   host PEER BYTES CALLS IN_FLIGHT [PIPE]  ->  one JSON object: p50 and p99 in us (one by one), calls per second, CPU us per call.
   PIPE is the size of the pipes when it is not the kernel's usual one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

extern char **environ;
static int to_peer, from_peer;
static char *buffer, *lines;
static const size_t room = 1 << 22;
static const char LINE[] = "src/main.py:12: x is not used\\n"; /* the text is of such lines: what a tool prints has some escapes */
enum { LINE_SIZE = sizeof LINE - 1 };

static pid_t start(char **argv, int pipe_size) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) exit(1);
    if (pipe_size && (fcntl(to[0], F_SETPIPE_SZ, pipe_size) < 0 || fcntl(from[0], F_SETPIPE_SZ, pipe_size) < 0)) exit(1);
    fcntl(to[1], F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    pid_t pid;
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ)) exit(1);
    close(to[0]);
    close(from[1]);
    to_peer = to[1];
    from_peer = from[0];
    return pid;
}

static size_t frame(char *to, size_t bytes, long id) {
    size_t size = sprintf(to, "{\"type\":\"tool_call\",\"id\":\"%ld\",\"name\":\"echo\",\"args\":{\"text\":\"", id);
    size_t text = bytes > size + 4 ? bytes - size - 4 : 0, rest = text % LINE_SIZE;
    memcpy(to + size, lines, text - rest);
    memset(to + size + text - rest, 'x', rest);
    memcpy(to + size + text, "\"}}\n", 4);
    return size + text + 4;
}

/* Reads what is there; how many answers were completed by it. */
static long receive(void) {
    ssize_t got = read(from_peer, buffer, room);
    if (got <= 0) exit(1);
    long count = 0;
    for (char *at = buffer, *end = buffer + got; (at = memchr(at, '\n', end - at)); at++) count++;
    return count;
}

/* Writes all of it; how many answers came meanwhile. A peer that cannot write its answers does not read either, so we read. */
static long send_all(const char *data, size_t size) {
    long count = 0;
    for (;;) {
        ssize_t wrote = write(to_peer, data, size);
        if (wrote == (ssize_t)size) return count;
        if (wrote > 0) data += wrote, size -= wrote;
        struct pollfd ends[] = {{to_peer, POLLOUT, 0}, {from_peer, POLLIN, 0}};
        if (poll(ends, 2, -1) <= 0) exit(1);
        if (ends[1].revents) count += receive();
    }
}

int main(int count, char **arguments) {
    if (count != 5 && count != 6) return 2;
    size_t bytes = atol(arguments[2]);
    long calls = atol(arguments[3]), in_flight = atol(arguments[4]), sent = 0, done = 0;
    pid_t pid = start((char *[]){arguments[1], NULL}, count == 6 ? atoi(arguments[5]) : 0);
    buffer = malloc(room);
    lines = malloc(bytes + LINE_SIZE);
    for (size_t at = 0; at < bytes; at += LINE_SIZE) memcpy(lines + at, LINE, LINE_SIZE);
    char *batch = malloc((bytes + 128) * in_flight);
    double *times = malloc(sizeof(double) * calls), begin = 0, cpu_begin = 0;
    long warm = calls / 10, total = calls + warm;
    while (done < total) {
        if (done >= warm && !begin) {
            begin = now();
            cpu_begin = cpu();
            calls = total - done;
        }
        size_t size = 0;
        for (; sent < total && sent - done < in_flight; sent++) size += frame(batch + size, bytes, sent);
        double at = now();
        long got = size ? send_all(batch, size) : 0;
        while (!got) got = receive();
        if (in_flight == 1 && done >= warm) times[done - warm] = now() - at;
        done += got;
    }
    double wall = now() - begin, used = cpu() - cpu_begin;
    close(to_peer);
    waitpid(pid, NULL, 0);
    if (in_flight == 1) {
        qsort(times, calls, sizeof(double), compare);
        printf("{\"p50_us\":%.3f,\"p99_us\":%.3f,", times[calls / 2], times[calls * 99 / 100]);
    } else
        printf("{");
    printf("\"per_second\":%.0f,\"cpu_us\":%.3f}\n", calls / wall * 1e6, used / calls);
    return 0;
}

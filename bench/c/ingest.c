/* The physical limit of ingest: starts `cat FILE`, reads what it writes and counts the newlines, without looking at the rest.
   ingest FILE EVENTS  ->  one JSON object: events and MB per second, CPU us per event, peak memory in MB. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

extern char **environ;
static char buffer[1 << 16];

/* The peak of this program alone; getrusage would also tell that of whoever started it. */
static double peak(void) {
    char line[256];
    double kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %lf", &kb);
    return kb / 1e3;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int from[2];
    if (pipe2(from, O_CLOEXEC)) return 1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    char *cat[] = {"cat", arguments[1], NULL};
    pid_t pid;
    if (posix_spawnp(&pid, "cat", &actions, NULL, cat, environ)) return 1;
    close(from[1]);
    double start = 0, used = 0, bytes = 0;
    long events = 0, expected = atol(arguments[2]);
    for (ssize_t got; (got = read(from[0], buffer, sizeof buffer)) > 0; bytes += got) {
        if (!start) {
            start = now();
            used = cpu();
        }
        for (char *at = buffer; (at = memchr(at, '\n', buffer + got - at)); at++) events++;
    }
    double wall = now() - start;
    used = cpu() - used;
    waitpid(pid, NULL, 0);
    if (events != expected) {
        fprintf(stderr, "%ld events of %ld\n", events, expected);
        return 1;
    }
    printf("{\"per_second\":%.0f,\"mb_s\":%.3f,\"cpu_us\":%.4f,\"peak_mb\":%.1f}\n", events / wall * 1e6, bytes / wall, used / events, peak());
    return 0;
}

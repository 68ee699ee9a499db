/* The physical limit of running a one-shot child: its three pipes, posix_spawn into a session of its own, its input written and
   closed, its output and its stderr read to their ends, its exit status.
   spawn CHILD TIMES MEGABYTES  ->  one JSON object: p50 and p99 in us, CPU us of the parent for each child.
   MEGABYTES is memory of the parent that was touched before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

extern char **environ;
static const char INPUT[] = "{\"hook\":\"create\",\"box\":\"0123456789abcdef\",\"state\":{\"image\":\"debian\",\"owner\":\"somebody\"}}\n";

static long read_all(int fd) {
    char chunk[65536];
    long size = 0, got;
    while ((got = read(fd, chunk, sizeof chunk)) > 0) size += got;
    close(fd);
    return size;
}

static void once(char **argv) {
    int in[2], out[2], err[2], status;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) exit(1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid;
    if (posix_spawn(&pid, argv[0], &actions, &attributes, argv, environ)) exit(1);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    if (write(in[1], INPUT, sizeof INPUT - 1) != sizeof INPUT - 1) exit(1);
    close(in[1]);
    if (read_all(out[0]) == 0 || read_all(err[0]) != 0) exit(1);
    if (waitpid(pid, &status, 0) != pid || status) exit(1);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    char *argv[] = {arguments[1], NULL};
    long times = atol(arguments[2]), warm = times / 10;
    size_t ballast = atol(arguments[3]) << 20;
    if (ballast) {
        char *memory = mmap(NULL, ballast, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return 1;
        madvise(memory, ballast, MADV_NOHUGEPAGE); /* the pages of a grown heap, not a few huge ones */
        for (size_t at = 0; at < ballast; at += 4096) memory[at] = 1;
    }
    double *took = malloc(sizeof(double) * times), used = 0;
    for (long n = -warm; n < times; n++) {
        if (n == 0) used = cpu();
        double start = now();
        once(argv);
        if (n >= 0) took[n] = now() - start;
    }
    used = cpu() - used;
    qsort(took, times, sizeof(double), compare);
    printf("{\"p50_us\":%.1f,\"p99_us\":%.1f,\"cpu_us\":%.1f}\n", took[times / 2], took[times * 99 / 100], used / times);
    return 0;
}

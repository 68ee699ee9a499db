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

#include "child.h"
#include "clock.h"

static const char INPUT[] = "{\"hook\":\"create\",\"box\":\"0123456789abcdef\",\"state\":{\"image\":\"debian\",\"owner\":\"somebody\"}}\n";

static long read_all(int fd) {
    char chunk[65536];
    long size = 0, got;
    while ((got = read(fd, chunk, sizeof chunk)) > 0) size += got;
    close(fd);
    return size;
}

static void once(char **argv) {
    int status;
    struct child child = start(argv);
    if (write(child.in, INPUT, sizeof INPUT - 1) != sizeof INPUT - 1) exit(1);
    close(child.in);
    if (read_all(child.out) == 0 || read_all(child.err) != 0) exit(1);
    if (waitpid(child.pid, &status, 0) != child.pid || status) exit(1);
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

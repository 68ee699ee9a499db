/* What a guest in C is made of: lines in, answers out. All lines of one read are answered with one write. It looks for what it
   needs instead of parsing: the keys come before the text, and the text is the last string of its line. */
#pragma once
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *at;
    size_t size;
} piece;

#define LITERAL(text) ((piece){text, sizeof text - 1})

static char *in, *out;
static size_t have, put, in_size = 1 << 20, out_size = 1 << 20;

static void append(piece p) {
    while (put + p.size > out_size) out = realloc(out, out_size *= 2);
    memcpy(out + put, p.at, p.size);
    put += p.size;
}

static void answer_with(piece before_id, piece id, piece after_id, piece text, piece tail) {
    append(before_id);
    append(id);
    append(after_id);
    append(text);
    append(tail);
}

/* What follows `key` in the line, up to the first byte that is one of `ends`; nothing when there is no such key. */
static piece after(piece line, piece key, const char *ends) {
    char *at = memmem(line.at, line.size, key.at, key.size);
    if (!at) return (piece){NULL, 0};
    at += key.size;
    return (piece){at, strcspn(at, ends)}; /* a line has its newline: the search ends */
}

/* From behind `"text":"` to the last quote of the line. */
static piece text_of(piece line) {
    char *at = memmem(line.at, line.size, "\"text\":\"", 8);
    if (!at) return (piece){NULL, 0};
    at += 8;
    return (piece){at, (char *)memrchr(at, '"', line.at + line.size - at) - at};
}

/* Has each line answered until there are no more. */
static int serve(int from_host, int to_host, void (*answer)(piece line)) {
    in = malloc(in_size);
    out = malloc(out_size);
    for (;;) {
        if (have == in_size) in = realloc(in, in_size *= 2);
        ssize_t got = read(from_host, in + have, in_size - have);
        if (got <= 0) return 0;
        size_t from = have;
        have += got;
        char *start = in, *end;
        while ((end = memchr(in + from, '\n', have - from))) {
            answer((piece){start, end + 1 - start});
            start = end + 1;
            from = start - in;
        }
        memmove(in, start, have -= start - in);
        for (size_t done = 0; done < put;) {
            ssize_t wrote = write(to_host, out + done, put - done);
            if (wrote <= 0) return 1;
            done += wrote;
        }
        put = 0;
    }
}

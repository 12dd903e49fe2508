/* What the programs of the conformance test in C have in common that write messages and values. */
#ifndef CONFORMANCE_COMMON_H
#define CONFORMANCE_COMMON_H

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>

static void check(int status) {
    if (status == TORONI_OK) return;
    fprintf(stderr, "%s\n", toroni_error_message());
    exit(1);
}

static unsigned long long hash(const unsigned char *bytes, size_t length) {
    unsigned long long hash = 0xcbf29ce484222325;
    size_t i;
    for (i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

static void show_origin(const toroni_origin *origin) {
    printf("%lu.%lu.%u.%llu\t", (unsigned long)origin->source, (unsigned long)origin->series,
           (unsigned)origin->stream, (unsigned long long)origin->number);
}

/* Writes the end of the line of a message or value with these flags. */
static void show_from(uint32_t flags, const toroni_origin *origin, uint64_t number) {
    if (flags & TORONI_MESSAGE_HAS_ORIGIN) show_origin(origin);
    else printf("-\t");
    if (flags & TORONI_MESSAGE_HAS_NUMBER) printf("%llu\n", (unsigned long long)number);
    else puts("-");
}

static void show_missing(const char *topic, uint64_t sequence, uint64_t length) {
    printf("missing\t%llu\t%s\t%llu\n", (unsigned long long)sequence, topic, (unsigned long long)length);
}

#endif

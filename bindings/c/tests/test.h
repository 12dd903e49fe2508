/* Shared by the tests in C: assertions, and a directory of buses that is removed at the end. */
#ifndef TORONI_TEST_H
#define TORONI_TEST_H

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s fails; last error: %s\n", __FILE__, __LINE__, #condition,      \
                    toroni_error_message());                                                          \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* Checks the status that a call returns. */
#define RETURNS(status, call)                                                                         \
    do {                                                                                              \
        const int returned = (call);                                                                  \
        if (returned != (status)) {                                                                   \
            fprintf(stderr, "%s:%d: %s returned %d, not %s; last error: %s\n", __FILE__, __LINE__,    \
                    #call, returned, #status, toroni_error_message());                                \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

#define OK(call) RETURNS(TORONI_OK, call)

/* The directory of buses of this process. */
extern const char *directory;

/* Returns a directory of buses below /var/tmp, which is usually on a disk. */
const char *disk_directory(void);

/* Opens the bus of the running test, with `options` or, if they are NULL, the defaults. */
toroni_bus *open_bus(toroni_open_options *options);

/* Returns whether a message has this payload. */
int says(const toroni_message *message, const char *text);

#endif

/* What the tests in C share: assertions, and a directory of buses for each test, removed at the end. */
#ifndef TORONI_TEST_H
#define TORONI_TEST_H

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%s:%d: %s fails; last error: %s\n", __FILE__, __LINE__, #condition,     \
                    toroni_error_message());                                                         \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

/* That a call answers a status. */
#define ANSWERS(status, call)                                                                         \
    do {                                                                                              \
        const int answer = (call);                                                                    \
        if (answer != (status)) {                                                                     \
            fprintf(stderr, "%s:%d: %s answers %d, not %s; last error: %s\n", __FILE__, __LINE__,     \
                    #call, answer, #status, toroni_error_message());                                  \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

#define OK(call) ANSWERS(TORONI_OK, call)

/* The directory of buses of this process. */
extern const char *directory;

/* As `directory`, below /var/tmp, which is on a disk as a rule. */
const char *disk_directory(void);

/* A bus of the running test: the defaults, or what is changed in `options`. */
toroni_bus *open_bus(toroni_open_options *options);

/* Whether a message has this payload. */
int says(const toroni_message *message, const char *text);

#endif

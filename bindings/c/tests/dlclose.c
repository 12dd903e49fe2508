/* A program that loads the library, uses it, and closes it. The handlers that the library has registered, for fork and
 * SIGBUS, must still exist afterwards. */
#define _XOPEN_SOURCE 700

#include "toroni.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s fails\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* Returns a function of the library. ISO C can only convert the pointer through memory. */
static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

static void handled(int signal) {
    (void)signal;
    _exit(7);
}

static int end_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

int main(int count, char **arguments) {
    int (*open)(const char *, const toroni_open_options *, toroni_bus **);
    int (*publisher)(const toroni_bus *, const char *, const toroni_publisher_options *, toroni_publisher **);
    void (*close_publisher)(toroni_publisher *);
    void (*close)(toroni_bus *);
    char directory[] = "/dev/shm/toroni-test-dl-XXXXXX", command[100];
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *made;
    struct sigaction action;
    void *library;
    pid_t child;
    int status;

    CHECK(count == 2 && mkdtemp(directory) != NULL);
    /* The handler of the program. The handler of the library calls it for faults that are not its own. */
    memset(&action, 0, sizeof action);
    action.sa_handler = handled;
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    library = dlopen(arguments[1], RTLD_NOW);
    CHECK(library != NULL);
    find(library, "toroni_bus_open", &open);
    find(library, "toroni_bus_publisher", &publisher);
    find(library, "toroni_publisher_close", &close_publisher);
    find(library, "toroni_bus_close", &close);
    options.directory = directory;
    status = open("b", &options, &bus);
    if (status == TORONI_OK) status = publisher(bus, "t", NULL, &made);
    if (status == TORONI_OK) close_publisher(made), close(bus);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    CHECK(system(command) == 0 && status == TORONI_OK);
    CHECK(dlclose(library) == 0);

    child = fork();
    if (child == 0) _exit(0);
    status = end_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    child = fork();
    if (child == 0) {
        /* A page after the end of a file. */
        FILE *file = tmpfile();
        volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
        _exit(page[0]);
    }
    status = end_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    puts("test result: ok. 1 passed; 0 failed");
    return 0;
}

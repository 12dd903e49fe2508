/* A small exchange that is the same on all hosts: each applies the orders as events, in their one order, and comes to the same
 * trades. Each line of the standard input is sent as a command: "buy PRICE AMOUNT", "sell PRICE AMOUNT" or "cancel ORDER". An
 * order's number is that of its event. Trades are printed, and after each event the digest of the book, which is equal on all
 * hosts. The feed is TORONI_FEED (default: orders); the host's node brings commands to the leader and events to the bus. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <toroni.h>

enum { BUY, SELL };

/* Orders that wait: those that buy and those that sell, each with the best first, and of equal ones the oldest. */
typedef struct order {
    struct order *next;
    uint64_t number, price, amount;
} order;
static order *book[2];

/* What is between two spaces. */
typedef struct word {
    const char *text;
    size_t length;
} word;

/* Returns the next word, whose text is NULL after the last one. */
static word next_word(word *rest) {
    word found = *rest;
    const char *space;
    if (found.text == NULL) return found;
    space = found.length > 0 ? memchr(found.text, ' ', found.length) : NULL;
    if (space == NULL) {
        rest->text = NULL;
    } else {
        found.length = (size_t)(space - found.text);
        rest->text = space + 1, rest->length -= found.length + 1;
    }
    return found;
}

static int is(word one, const char *text) {
    return one.length == strlen(text) && memcmp(one.text, text, one.length) == 0;
}

/* Reads a number without a sign, or with one that `signs` has. All hosts must agree on what is a number. */
static int parse(word one, const char *signs, uint64_t *number) {
    size_t i = one.text != NULL && one.length > 0 && *one.text != 0 && strchr(signs, *one.text) != NULL;
    *number = 0;
    if (one.text == NULL || i == one.length) return 0;
    for (; i < one.length; i++) {
        const uint64_t digit = (uint64_t)(unsigned char)one.text[i] - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10) return 0;
        *number = *number * 10 + digit;
    }
    return *number == 0 || *one.text != '-';
}

static void cancel(uint64_t number) {
    int side;
    for (side = BUY; side <= SELL; side++) {
        order **at = &book[side];
        while (*at != NULL && (*at)->number != number) at = &(*at)->next;
        if (*at != NULL) {
            order *const gone = *at;
            *at = gone->next;
            free(gone);
        }
    }
}

static int is_better(int side, uint64_t price, uint64_t than) { return side == BUY ? price > than : price < than; }

/* Applies an order, and prints trades. It depends on the book and the order alone: neither on a clock, nor on anything random,
 * nor on who asks. Returns 0 if it is no order. */
static int apply(uint64_t number, word text) {
    const word what = next_word(&text), first = next_word(&text);
    const int side = is(what, "buy") ? BUY : SELL;
    uint64_t price, amount;
    order **at, *waits;
    if (first.text == NULL) return 0;
    if (is(what, "cancel")) {
        if (!parse(first, "+", &price)) return 0;
        return cancel(price), 1;
    }
    if (side == SELL && !is(what, "sell")) return 0;
    if (!parse(first, "+-", &price) || price >= UINT64_C(1) << 40 || !parse(next_word(&text), "+", &amount)) return 0;
    while (amount > 0 && (waits = book[!side]) != NULL && !is_better(side, waits->price, price)) {
        const uint64_t taken = amount < waits->amount ? amount : waits->amount;
        printf("%" PRIu64 " trade %" PRIu64 " at %" PRIu64 " with %" PRIu64 "\n", number, taken, waits->price, waits->number);
        amount -= taken, waits->amount -= taken;
        if (waits->amount == 0) book[!side] = waits->next, free(waits);
    }
    if (amount == 0) return 1;
    waits = malloc(sizeof *waits);
    if (waits == NULL) abort();
    waits->number = number, waits->price = price, waits->amount = amount;
    for (at = &book[side]; *at != NULL && !is_better(side, price, (*at)->price); at = &(*at)->next) continue;
    waits->next = *at, *at = waits;
    return 1;
}

/* FNV-1a: a few lines in each language. */
static uint64_t add(uint64_t digest, uint64_t number, int bytes) {
    int i;
    for (i = 0; i < bytes; i++) digest = (digest ^ (number >> 8 * i & 255)) * UINT64_C(0x100000001b3);
    return digest;
}

static uint64_t digest_of_book(void) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const order *one;
    int side;
    for (side = BUY; side <= SELL; side++)
        for (one = book[side]; one != NULL; one = one->next) {
            digest = add(digest, (uint64_t)side, 1);
            digest = add(add(add(digest, one->number, 8), one->price, 8), one->amount, 8);
        }
    return digest;
}

static void *send_lines(void *commands) {
    char *line = NULL;
    size_t space = 0;
    ssize_t length;
    toroni_sent sent;
    while ((length = getline(&line, &space, stdin)) > 0) {
        if (line[length - 1] == '\n') length--;
        if (toroni_commands_send(commands, "order", line, (size_t)length, TORONI_FOREVER, &sent)) {
            fprintf(stderr, "order_book: %s\n", toroni_error_message());
            break;
        }
    }
    free(line);
    return NULL;
}

int main(void) {
    const char *feed = getenv("TORONI_FEED");
    const char *const pattern = "order";
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_bus *bus = NULL;
    toroni_subscriber *events = NULL;
    toroni_commands *commands = NULL;
    toroni_message event;
    pthread_t thread;
    int failed;
    if (feed == NULL) feed = "orders";
    /* From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound. */
    options.patterns = &pattern, options.pattern_count = 1, options.start = TORONI_START_OLDEST;
    failed = toroni_bus_open(feed, NULL, &bus) || toroni_bus_subscribe_with(bus, &options, &events) ||
             toroni_commands_open(feed, NULL, &commands);
    if (!failed && pthread_create(&thread, NULL, send_lines, commands) != 0) return fputs("no thread\n", stderr), 1;
    /* After a loss the book would be wrong, so the program ends. */
    while (!failed && !(failed = toroni_receive(events, &event))) {
        const word text = {event.payload, event.payload_length};
        const int applied = apply(event.number, text);
        printf("%" PRIu64 " %sdigest %016" PRIx64 "\n", event.number, applied ? "" : "no order, ", digest_of_book());
        fflush(stdout);
    }
    fprintf(stderr, "order_book: %s\n", toroni_error_message());
    /* The process ends with its thread, which may still use the commands. */
    return 1;
}

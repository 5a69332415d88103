/* Keeps connections to ports of the loopback busy with one streamed request, at as little cost as can be.
 *
 *     saturate SECONDS CONNECTIONS_EACH PORT... < REQUEST
 *
 * Each connection sends the request again when its answer is complete, until the time is over; what runs then is
 * read to its end. Prints the seconds that took, and for each port the answers and the seconds it was busy for.
 * An answer other than 200, chunked and whole, ends the program with exit code 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 1 << 16, READ = 1 << 18, EVENTS = 256, LAST = 7 };

struct connection {
    int socket, port, begun;
    char tail[LAST]; /* of the answer, as far as it has come */
};

static char request[REQUEST], data[READ + LAST];
static size_t length;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    fprintf(stderr, "saturate: %s: %s\n", what, errno ? strerror(errno) : "not what it should be");
    exit(1);
}

static void ask(struct connection *each) {
    each->begun = 0;
    memset(each->tail, 0, LAST);
    if (write(each->socket, request, length) != (ssize_t)length) fail("cannot send");
}

/* Whether the answer is complete now. */
static int take(struct connection *each) {
    memcpy(data, each->tail, LAST);
    ssize_t size = read(each->socket, data + LAST, READ);
    errno = size < 0 ? errno : 0;
    if (size <= 0) fail("the connection ended");
    if (!each->begun) {
        if (size < 12 || memcmp(data + LAST, "HTTP/1.1 200", 12)) fail("the answer");
        each->begun = 1;
    }
    memcpy(each->tail, data + size, LAST);
    return !memcmp(each->tail, "\r\n0\r\n\r\n", LAST);
}

int main(int count, char **words) {
    if (count < 4) fail("usage: saturate SECONDS CONNECTIONS_EACH PORT...");
    double seconds = atof(words[1]);
    int each = atoi(words[2]), ports = count - 3, open = 0, poll = epoll_create1(0);
    struct connection *all = calloc((size_t)(each * ports), sizeof *all);
    long *answers = calloc((size_t)ports, sizeof *answers);
    double *until = calloc((size_t)ports, sizeof *until);
    for (ssize_t size; (size = read(0, request + length, REQUEST - length)) > 0;) length += (size_t)size;
    for (int number = 0; number < each * ports; number++) {
        struct connection *one = &all[number];
        struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
        int on = 1;
        one->port = number % ports;
        where.sin_port = htons((unsigned short)atoi(words[3 + one->port]));
        one->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(one->socket, (struct sockaddr *)&where, sizeof where)) fail("cannot connect");
        setsockopt(one->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        epoll_ctl(poll, EPOLL_CTL_ADD, one->socket, &event);
        open++;
    }
    double start = now(), time = start;
    for (int number = 0; number < open; number++) ask(&all[number]);
    while (open) {
        struct epoll_event events[EVENTS];
        /* Woken by every answer, it would be the server's cores that pay for it. */
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        int ready = epoll_wait(poll, events, EVENTS, 10000);
        if (ready <= 0) fail("nothing came for ten seconds");
        for (int number = 0; number < ready; number++) {
            struct connection *one = events[number].data.ptr;
            if (!take(one)) continue;
            time = now();
            answers[one->port]++;
            until[one->port] = time - start;
            if (time - start < seconds) {
                ask(one);
            } else {
                close(one->socket);
                open--;
            }
        }
    }
    printf("%.6f\n", time - start);
    for (int port = 0; port < ports; port++) printf("%ld %.6f\n", answers[port], until[port]);
    return 0;
}

/* The limit of what a server on loopback can do: frames requests, answers each with the same bytes.
 *
 *   null_server PORT RESPONSE_FILE [DATA_FILE]
 *
 * A request is a 4-byte big-endian length and its body; the answer is RESPONSE_FILE with the
 * request's correlation id (bytes 8-12 of the frame) copied to bytes 4-8. One thread, epoll.
 * What it spends per request is the yardstick for what a broker spends. With DATA_FILE a large
 * answer is read from there first, one place after another: the limit of a server that can't know
 * beforehand what it will send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT = 4 << 20, CONNECTIONS_MAX = 4096 };

struct connection {
  uint8_t *in;
  size_t filled;
  uint32_t *ids;      /* correlation ids still to answer */
  size_t ids_count, ids_room;
  size_t sent;        /* bytes of the current answer already written */
};

static struct connection *by_fd[CONNECTIONS_MAX];
static uint8_t *answer;
static size_t answer_size;

enum { HEAD = 64 };   /* bytes of an answer that stay as they are where it is read from a file */
static int data = -1;
static off_t data_at, data_size;

static void fail(const char *what) { perror(what); exit(1); }

static void load_answer(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  fseek(file, 0, SEEK_END);
  answer_size = (size_t)ftell(file);
  rewind(file);
  answer = malloc(answer_size);
  if (fread(answer, 1, answer_size, file) != answer_size) fail("read");
  fclose(file);
}

static void open_data(const char *path) {
  data = open(path, O_RDONLY);
  if (data < 0 || (data_size = lseek(data, 0, SEEK_END)) < (off_t)answer_size) fail(path);
}

static void read_answer(void) {
  if (data_at + (off_t)answer_size > data_size) data_at = 0;
  ssize_t n = pread(data, answer + HEAD, answer_size - HEAD, data_at);
  if (n != (ssize_t)(answer_size - HEAD)) fail("read an answer");
  data_at += n;
}

static void drop(int fd) {
  free(by_fd[fd]->in);
  free(by_fd[fd]->ids);
  free(by_fd[fd]);
  by_fd[fd] = NULL;
  close(fd);
}

/* Writes waiting answers; small ones are gathered into one write. 0 when all is written. */
static int flush_answers(int fd, struct connection *c) {
  static uint8_t gathered[1 << 16];
  size_t done = 0;
  while (done < c->ids_count) {
    if (answer_size * 2 <= sizeof gathered && c->sent == 0) {
      size_t fit = sizeof gathered / answer_size, count = c->ids_count - done;
      if (count > fit) count = fit;
      for (size_t i = 0; i < count; i++) {
        memcpy(gathered + i * answer_size, answer, answer_size);
        memcpy(gathered + i * answer_size + 4, &c->ids[done + i], 4);
      }
      ssize_t n = write(fd, gathered, count * answer_size);
      if (n < 0) { if (errno == EAGAIN) break; return -1; }
      done += (size_t)n / answer_size;
      c->sent = (size_t)n % answer_size;
      if ((size_t)n < count * answer_size) break;
    } else {
      if (data >= 0 && c->sent == 0) read_answer();
      memcpy(answer + 4, &c->ids[done], 4);
      ssize_t n = write(fd, answer + c->sent, answer_size - c->sent);
      if (n < 0) { if (errno == EAGAIN) break; return -1; }
      c->sent += (size_t)n;
      if (c->sent < answer_size) break;
      c->sent = 0;
      done++;
    }
  }
  memmove(c->ids, c->ids + done, (c->ids_count - done) * 4);
  c->ids_count -= done;
  return c->ids_count ? 1 : 0;
}

static void take_frames(struct connection *c) {
  size_t at = 0;
  while (c->filled - at >= 12) {
    uint32_t length;
    memcpy(&length, c->in + at, 4);
    length = ntohl(length) + 4;
    if (c->filled - at < length) break;
    if (c->ids_count == c->ids_room) c->ids = realloc(c->ids, (c->ids_room *= 2) * 4);
    memcpy(&c->ids[c->ids_count++], c->in + at + 8, 4);
    at += length;
  }
  memmove(c->in, c->in + at, c->filled - at);
  c->filled -= at;
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: null_server PORT RESPONSE_FILE [DATA_FILE]\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN); /* a client may leave with answers under way */
  load_answer(argv[2]);
  if (argc == 4) open_data(argv[3]);
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) fail("bind");
  int loop = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[256];
  epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    int count = epoll_wait(loop, ready, 256, -1);
    for (int i = 0; i < count; i++) {
      int fd = ready[i].data.fd;
      if (fd == listener) {
        int made = accept(listener, NULL, NULL);
        if (made < 0 || made >= CONNECTIONS_MAX) { if (made >= 0) close(made); continue; }
        fcntl(made, F_SETFL, O_NONBLOCK);
        setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        c->in = malloc(INPUT);
        c->ids = malloc((c->ids_room = 64) * 4);
        by_fd[made] = c;
        struct epoll_event added = {.events = EPOLLIN, .data.fd = made};
        epoll_ctl(loop, EPOLL_CTL_ADD, made, &added);
        continue;
      }
      struct connection *c = by_fd[fd];
      if (ready[i].events & (EPOLLIN | EPOLLHUP)) {
        ssize_t n = read(fd, c->in + c->filled, INPUT - c->filled);
        if (n <= 0) { if (n < 0 && errno == EAGAIN) continue; drop(fd); continue; }
        c->filled += (size_t)n;
        take_frames(c);
      }
      int left = flush_answers(fd, c);
      if (left < 0) { drop(fd); continue; }
      struct epoll_event wanted = {.events = EPOLLIN | (left ? EPOLLOUT : 0), .data.fd = fd};
      epoll_ctl(loop, EPOLL_CTL_MOD, fd, &wanted);
    }
  }
}

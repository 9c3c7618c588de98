/* Sends the same request again and again over several connections and counts the answers.
 *
 *   load PORT REQUEST_FILE CONNECTIONS IN_FLIGHT SECONDS
 *
 * REQUEST_FILE holds whole frames (length and body); each connection sends them in turn, always
 * IN_FLIGHT unanswered. Prints one line of JSON: requests, seconds, bytes each way, and p50 and p99
 * of the time from sending to the answer in microseconds (a sample of up to a million).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES_MAX = 1000000, FRAMES_MAX = 65536, READ_SIZE = 1 << 20, IN_FLIGHT_MAX = 4096 };

struct connection {
  int fd;
  size_t frame, frame_sent;   /* which frame is being sent, and how much of it is */
  int unanswered;
  uint8_t head[4];
  size_t head_filled;
  size_t body_left;
  double sent_at[IN_FLIGHT_MAX];
  size_t oldest, newest;
};

static uint8_t *frames;
static size_t starts[FRAMES_MAX + 1], frames_count;
static double samples[SAMPLES_MAX];
static size_t samples_count, requests, bytes_out, bytes_in;
static int in_flight;

static void fail(const char *what) { perror(what); exit(1); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void load_frames(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file), at = 0;
  rewind(file);
  frames = malloc(size);
  if (fread(frames, 1, size, file) != size) fail("read");
  fclose(file);
  while (at + 4 <= size && frames_count < FRAMES_MAX) {
    uint32_t length;
    memcpy(&length, frames + at, 4);
    starts[frames_count++] = at;
    at += ntohl(length) + 4;
  }
  starts[frames_count] = at;
}

static void send_some(struct connection *c) {
  static uint8_t gathered[1 << 16];
  while (c->unanswered < in_flight || c->frame_sent) {
    /* Gather small frames: a client that pipelines writes them together. */
    size_t filled = 0, frame = c->frame, sent = c->frame_sent;
    int count = 0;
    size_t length = starts[frame + 1] - starts[frame];
    if (length * 2 > sizeof gathered) {
      ssize_t n = write(c->fd, frames + starts[frame] + sent, length - sent);
      if (n < 0) { if (errno == EAGAIN) return; fail("write"); }
      bytes_out += (size_t)n;
      if (sent == 0) { c->sent_at[c->newest++ % IN_FLIGHT_MAX] = now(); c->unanswered++; }
      c->frame_sent = sent + (size_t)n;
      if (c->frame_sent < length) return;
      c->frame_sent = 0;
      c->frame = (frame + 1) % frames_count;
      continue;
    }
    while ((c->unanswered + count < in_flight || sent) && filled + length - sent <= sizeof gathered) {
      memcpy(gathered + filled, frames + starts[frame] + sent, length - sent);
      filled += length - sent;
      if (sent == 0) count++;
      sent = 0;
      frame = (frame + 1) % frames_count;
      length = starts[frame + 1] - starts[frame];
    }
    double at = now();
    ssize_t n = write(c->fd, gathered, filled);
    if (n < 0) { if (errno == EAGAIN) return; fail("write"); }
    bytes_out += (size_t)n;
    size_t left = (size_t)n;
    while (left) {
      size_t rest = starts[c->frame + 1] - starts[c->frame] - c->frame_sent;
      if (c->frame_sent == 0) { c->sent_at[c->newest++ % IN_FLIGHT_MAX] = at; c->unanswered++; }
      if (left < rest) { c->frame_sent += left; return; }
      left -= rest;
      c->frame_sent = 0;
      c->frame = (c->frame + 1) % frames_count;
    }
  }
}

static void answered(struct connection *c, double at) {
  if (samples_count < SAMPLES_MAX)
    samples[samples_count++] = at - c->sent_at[c->oldest % IN_FLIGHT_MAX];
  c->oldest++;
  c->unanswered--;
  requests++;
}

static void receive_some(struct connection *c) {
  static uint8_t buffer[READ_SIZE];
  ssize_t n = read(c->fd, buffer, sizeof buffer);
  if (n <= 0) { if (n < 0 && errno == EAGAIN) return; fprintf(stderr, "the server closed a connection\n"); exit(1); }
  bytes_in += (size_t)n;
  double at = now();
  size_t place = 0, size = (size_t)n;
  while (place < size) {
    if (c->body_left) {
      size_t part = size - place < c->body_left ? size - place : c->body_left;
      c->body_left -= part;
      place += part;
      if (!c->body_left) answered(c, at);
      continue;
    }
    c->head[c->head_filled++] = buffer[place++];
    if (c->head_filled == 4) {
      uint32_t length;
      memcpy(&length, c->head, 4);
      c->body_left = ntohl(length);
      c->head_filled = 0;
    }
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
  if (argc != 6) { fprintf(stderr, "usage: load PORT REQUEST_FILE CONNECTIONS IN_FLIGHT SECONDS\n"); return 2; }
  load_frames(argv[2]);
  int count = atoi(argv[3]), loop = epoll_create1(0), one = 1;
  in_flight = atoi(argv[4]);
  if (in_flight > IN_FLIGHT_MAX) in_flight = IN_FLIGHT_MAX;
  double seconds = atof(argv[5]);
  struct connection *all = calloc((size_t)count, sizeof *all);
  for (int i = 0; i < count; i++) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(all[i].fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &all[i]};
    epoll_ctl(loop, EPOLL_CTL_ADD, all[i].fd, &event);
  }
  double start = now(), end = start + seconds;
  struct epoll_event ready[256];
  for (int i = 0; i < count; i++) send_some(&all[i]);
  while (now() < end) {
    int n = epoll_wait(loop, ready, 256, 100);
    for (int i = 0; i < n; i++) {
      struct connection *c = ready[i].data.ptr;
      size_t before;
      if (ready[i].events & EPOLLIN)
        do { before = bytes_in; receive_some(c); } while (bytes_in - before == READ_SIZE);
      send_some(c);
      /* Edge-triggered: read again what came while sending. */
      do { before = bytes_in; receive_some(c); } while (bytes_in != before);
      send_some(c);
    }
  }
  double took = now() - start;
  qsort(samples, samples_count, sizeof *samples, ascending);
  double p50 = samples_count ? samples[samples_count / 2] * 1e6 : 0;
  double p99 = samples_count ? samples[samples_count * 99 / 100] * 1e6 : 0;
  printf("{\"requests\": %zu, \"seconds\": %.6f, \"bytes_out\": %zu, \"bytes_in\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
         requests, took, bytes_out, bytes_in, p50, p99);
  return requests ? 0 : 1;
}

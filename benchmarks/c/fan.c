/* Consumers that fetch all partitions of a topic as fast as a broker sends them.
 *
 *   fan PORT TOPIC PARTITIONS CONSUMERS BATCH_BYTES BATCH_RECORDS WARM_UP_SECONDS SECONDS
 *
 * Each consumer is a thread with one connection and one fetch session (Fetch v12), from offset 0 on.
 * All batches of the topic must be alike. Records are discarded by the kernel (MSG_TRUNC), so that
 * the consumers cost little of the cores that they share with the broker. A consumer that is too
 * slow for the topic's retention continues at the first offset that is left. Prints one line of
 * JSON: records' bytes and fetches after the warm-up, and the CPU seconds of all threads.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PARTITIONS_MAX = 1024, BUFFER = 1 << 16, OUT_OF_RANGE = 1, NOT_LEADER = 6,
       RESPONSE_MAX = 8 << 20,
       PARTITION_MAX = 1 << 20 };

struct consumer {
  int fd;
  uint8_t in[BUFFER];
  size_t at, end;             /* of what is buffered */
  size_t left;                /* of the response, buffered or not */
  uint8_t out[64 * PARTITIONS_MAX];
  size_t filled;
  int64_t offsets[PARTITIONS_MAX];
  uint8_t moved[PARTITIONS_MAX];
  int32_t session, epoch;
  volatile uint64_t bytes, fetches;
};

static int port, partitions, batch_bytes, batch_records;
static const char *topic;
static volatile int over;

static void fail(const char *what) { perror(what); exit(1); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the request */

static void put(struct consumer *c, uint64_t value, int size) {
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) c->out[c->filled++] = (uint8_t)(value >> shift);
}

static void put_count(struct consumer *c, uint32_t count) {
  for (count++; count >= 128; count >>= 7) c->out[c->filled++] = (uint8_t)(count | 128);
  c->out[c->filled++] = (uint8_t)count;
}

static void put_text(struct consumer *c, const char *text) {
  put_count(c, (uint32_t)strlen(text));
  memcpy(c->out + c->filled, text, strlen(text));
  c->filled += strlen(text);
}

static void ask(struct consumer *c) {
  uint32_t count = 0;
  for (int i = 0; i < partitions; i++) count += c->moved[i];
  c->filled = 4;
  put(c, 1, 2), put(c, 12, 2), put(c, (uint32_t)c->epoch, 4), put(c, 3, 2);
  memcpy(c->out + c->filled, "fan", 3);
  c->filled += 3;
  put(c, 0, 1);                                          /* tagged fields of the header */
  put(c, 0xffffffff, 4), put(c, 500, 4), put(c, 1, 4);   /* replica, max_wait_ms, min_bytes */
  put(c, RESPONSE_MAX, 4), put(c, 0, 1);
  put(c, (uint32_t)c->session, 4), put(c, (uint32_t)c->epoch, 4);
  put_count(c, count ? 1 : 0);
  if (count) {
    put_text(c, topic);
    put_count(c, count);
    for (int i = 0; i < partitions; i++) {
      if (!c->moved[i]) continue;
      c->moved[i] = 0;
      put(c, (uint32_t)i, 4), put(c, 0xffffffff, 4), put(c, (uint64_t)c->offsets[i], 8);
      put(c, 0xffffffff, 4), put(c, ~0ull, 8), put(c, PARTITION_MAX, 4), put(c, 0, 1);
    }
    put(c, 0, 1);
  }
  put_count(c, 0), put_text(c, ""), put(c, 0, 1);        /* forgotten topics, rack */
  uint32_t size = htonl((uint32_t)c->filled - 4);
  memcpy(c->out, &size, 4);
  for (size_t sent = 0; sent < c->filled;) {
    ssize_t n = send(c->fd, c->out + sent, c->filled - sent, MSG_NOSIGNAL);
    if (n <= 0) { if (over) return; fail("send"); }
    sent += (size_t)n;
  }
  c->epoch++;
}

/* ---- the response */

static int fill(struct consumer *c, size_t wanted) {
  if (c->end - c->at >= wanted) return 1;
  memmove(c->in, c->in + c->at, c->end - c->at);
  c->end -= c->at;
  c->at = 0;
  while (c->end < wanted) {
    /* Read no more than about a head: what is read here is copied. */
    ssize_t n = recv(c->fd, c->in + c->end, 256 > wanted - c->end ? 256 : wanted - c->end, 0);
    if (n <= 0) { if (over) return 0; fprintf(stderr, "the server closed a connection\n"); exit(1); }
    c->end += (size_t)n;
  }
  return 1;
}

static uint64_t get(struct consumer *c, int size) {
  uint64_t value = 0;
  if (!fill(c, (size_t)size)) pthread_exit(NULL);
  for (int i = 0; i < size; i++) value = value << 8 | c->in[c->at++];
  return value;
}

static uint32_t get_varint(struct consumer *c) {
  uint32_t value = 0;
  for (int shift = 0;; shift += 7) {
    uint32_t byte = (uint32_t)get(c, 1);
    value |= (byte & 127) << shift;
    if (byte < 128) return value;
  }
}

static void skip(struct consumer *c, size_t size) {
  size_t here = c->end - c->at < size ? c->end - c->at : size;
  c->at += here;
  for (size -= here; size;) {
    ssize_t n = recv(c->fd, NULL, size, MSG_TRUNC | MSG_WAITALL);
    if (n <= 0) { if (over) pthread_exit(NULL); fail("recv"); }
    size -= (size_t)n;
  }
}

static void skip_tags(struct consumer *c) {
  for (uint32_t count = get_varint(c); count; count--) {
    get_varint(c);
    skip(c, get_varint(c));
  }
}

static void take_partition(struct consumer *c) {
  uint32_t index = (uint32_t)get(c, 4);
  int error = (int16_t)get(c, 2);
  get(c, 8), get(c, 8);                                  /* high watermark, last stable offset */
  int64_t start = (int64_t)get(c, 8);
  for (uint32_t aborted = get_varint(c); aborted > 1; aborted--) skip(c, 16), skip_tags(c);
  get(c, 4);                                             /* preferred read replica */
  uint32_t size = get_varint(c);
  size = size ? size - 1 : 0;
  skip(c, size);
  skip_tags(c);
  if (index >= (uint32_t)partitions) { fprintf(stderr, "partition %u\n", index); exit(1); }
  if (error == OUT_OF_RANGE) {
    c->offsets[index] = start > c->offsets[index] ? start : c->offsets[index] + batch_records;
    c->moved[index] = 1;
  } else if (error == NOT_LEADER) {                      /* its folder is being created */
    usleep(10000);
    c->moved[index] = 1;
  } else if (error) {
    fprintf(stderr, "error %d of partition %u\n", error, index), exit(1);
  } else if (size) {
    c->offsets[index] += (int64_t)(size / (uint32_t)batch_bytes) * batch_records;
    c->moved[index] = 1;
    c->bytes += size;
  }
}

static void take(struct consumer *c) {
  get(c, 4), get(c, 4), skip_tags(c), get(c, 4);         /* size, correlation id, throttle */
  int error = (int16_t)get(c, 2);
  if (error) { fprintf(stderr, "error %d\n", error); exit(1); }
  c->session = (int32_t)get(c, 4);
  for (uint32_t topics = get_varint(c); topics > 1; topics--) {
    skip(c, get_varint(c) - 1);
    for (uint32_t count = get_varint(c); count > 1; count--) take_partition(c);
    skip_tags(c);
  }
  skip_tags(c);
  c->fetches++;
}

static void *run(void *argument) {
  struct consumer *c = argument;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  memset(c->moved, 1, sizeof c->moved);
  while (!over) ask(c), take(c);
  return NULL;
}

static void sum(struct consumer *all, int count, uint64_t *bytes, uint64_t *fetches) {
  *bytes = *fetches = 0;
  for (int i = 0; i < count; i++) *bytes += all[i].bytes, *fetches += all[i].fetches;
}

int main(int argc, char **argv) {
  if (argc != 9) {
    fprintf(stderr, "usage: fan PORT TOPIC PARTITIONS CONSUMERS BATCH_BYTES BATCH_RECORDS "
                    "WARM_UP_SECONDS SECONDS\n");
    return 2;
  }
  port = atoi(argv[1]), topic = argv[2], partitions = atoi(argv[3]);
  int count = atoi(argv[4]);
  batch_bytes = atoi(argv[5]), batch_records = atoi(argv[6]);
  if (partitions > PARTITIONS_MAX) { fprintf(stderr, "at most %d partitions\n", PARTITIONS_MAX); return 2; }
  struct consumer *all = calloc((size_t)count, sizeof *all);
  uint64_t bytes, fetches, bytes_before, fetches_before;
  for (int i = 0; i < count; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, &all[i])) fail("pthread_create");
  }
  usleep((useconds_t)(atof(argv[7]) * 1e6));
  double begun = now();
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  sum(all, count, &bytes_before, &fetches_before);
  usleep((useconds_t)(atof(argv[8]) * 1e6));
  sum(all, count, &bytes, &fetches);
  getrusage(RUSAGE_SELF, &after);
  double took = now() - begun;
  over = 1;
  double cpu = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec)
             + (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
  printf("{\"bytes\": %llu, \"fetches\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.3f}\n",
         (unsigned long long)(bytes - bytes_before), (unsigned long long)(fetches - fetches_before), took, cpu);
  fflush(stdout);
  _exit(0);
}

/* Preloaded into a node: writes and syncs fail where the file named by FAILING_DISK says so.
 *
 * Its one line is "OPERATION ERRNO PART": OPERATION is write or sync; calls on files whose path
 * contains PART fail with ERRNO. No file, no failures.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Not inlined: its buffers are larger than the stack on which CPython handles signals, where it
 * writes to a socket. Only calls on regular files come here. */
__attribute__((noinline)) static int faulted(const char *operation, int fd) {
  const char *control = getenv("FAILING_DISK");
  int control_fd = control ? syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC) : -1;
  if (control_fd < 0) return 0;
  char line[4096], name[64], path[4096], wanted[16], part[4000];
  ssize_t size = syscall(SYS_read, control_fd, line, sizeof line - 1);
  syscall(SYS_close, control_fd);
  if (size <= 0) return 0;
  line[size] = 0;
  int number = 0;
  if (sscanf(line, "%15s %d %3999s", wanted, &number, part) != 3) return 0;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return !strcmp(wanted, operation) && strstr(path, part) ? number : 0;
}

static int is_regular(int fd) {
  struct stat found;
  return !fstat(fd, &found) && S_ISREG(found.st_mode);
}

#define FAIL_IF_FAULTED(operation, fd)                           \
  do {                                                           \
    int saved = errno;                                           \
    int number = is_regular(fd) ? faulted(operation, fd) : 0;    \
    errno = number ? number : saved;                             \
    if (number) return -1;                                       \
  } while (0)

#define REAL(type, name, ...)                                   \
  static type (*real)(__VA_ARGS__);                             \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  FAIL_IF_FAULTED("write", fd);
  return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
  REAL(ssize_t, "writev", int, const struct iovec *, int);
  FAIL_IF_FAULTED("write", fd);
  return real(fd, pieces, count);
}

int fsync(int fd) {
  REAL(int, "fsync", int);
  FAIL_IF_FAULTED("sync", fd);
  return real(fd);
}

int fdatasync(int fd) {
  REAL(int, "fdatasync", int);
  FAIL_IF_FAULTED("sync", fd);
  return real(fd);
}

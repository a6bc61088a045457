/* A machine with a fault, for whoever is started with this library preloaded: a disk that is full, a wall clock that is set.
 *
 * FAULT_DISK=FILE   FILE has two numbers of 64 bits: how many writes have been counted, and from which on each of them fails
 *                   with ENOSPC. All processes count together.
 * FAULT_UNDER=PATH  Only what is written below it counts.
 * FAULT_CLOCK_IN=F  Once the file F is there, the wall clock is ahead by the nanoseconds that it says.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long *counts(void) {
  static long *found;
  const char *file = getenv("FAULT_DISK");
  if (!found && file) {
    int fd = REAL(open)(file, O_RDWR | O_CLOEXEC);
    void *place = fd < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (place == MAP_FAILED) abort();
    found = place;
  }
  return found;
}

static int is_full(void) {
  long *both = counts();
  if (both && __atomic_fetch_add(&both[0], 1, __ATOMIC_SEQ_CST) >= both[1]) {
    errno = ENOSPC;
    return 1;
  }
  return 0;
}

static int is_below(const char *path) {
  const char *under = getenv("FAULT_UNDER");
  return under && strncmp(path, under, strlen(under)) == 0;
}

static int counts_file(int fd) {
  char link[64], path[PATH_MAX];
  int known = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  errno = known;
  if (length < 0) return 0;
  path[length] = 0;
  return is_below(path);
}

static int counts_path(int folder, const char *path) {
  char whole[PATH_MAX];
  if (path[0] == '/') return is_below(path);
  if (folder != AT_FDCWD) return counts_file(folder);
  return getcwd(whole, sizeof whole) && is_below(whole);
}

ssize_t write(int fd, const void *from, size_t size) {
  return counts_file(fd) && is_full() ? -1 : REAL(write)(fd, from, size);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
  return counts_file(fd) && is_full() ? -1 : REAL(writev)(fd, parts, number);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
  return counts_file(fd) && is_full() ? -1 : REAL(pwrite64)(fd, from, size, at);
}

int fsync(int fd) { return counts_file(fd) && is_full() ? -1 : REAL(fsync)(fd); }

int mkdir(const char *path, mode_t mode) { return counts_path(AT_FDCWD, path) && is_full() ? -1 : REAL(mkdir)(path, mode); }

int rename(const char *from, const char *to) {
  return counts_path(AT_FDCWD, to) && is_full() ? -1 : REAL(rename)(from, to);
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
  if (flags & O_CREAT && counts_path(folder, path) && is_full()) return -1;
  return REAL(openat)(folder, path, flags, mode);
}

#define OPEN(name, folder, ...)                          \
  int name(__VA_ARGS__, const char *path, int flags, ...) { \
    va_list more;                                        \
    va_start(more, flags);                               \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                        \
    return opened(folder, path, flags, mode);            \
  }
OPEN(openat, folder, int folder)
OPEN(openat64, folder, int folder)
#undef OPEN
#define OPEN(name)                                       \
  int name(const char *path, int flags, ...) {           \
    va_list more;                                        \
    va_start(more, flags);                               \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                        \
    return opened(AT_FDCWD, path, flags, mode);          \
  }
OPEN(open)
OPEN(open64)

static long ahead_ns(void) {
  const char *set = getenv("FAULT_CLOCK_IN");
  char text[32] = "";
  int fd = set ? REAL(open)(set, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *into) {
  int result = REAL(clock_gettime)(clock, into);
  if (result == 0 && clock == CLOCK_REALTIME) {
    long ns = into->tv_sec * 1000000000L + into->tv_nsec + ahead_ns();
    into->tv_sec = ns / 1000000000L;
    into->tv_nsec = ns % 1000000000L;
  }
  return result;
}

int gettimeofday(struct timeval *restrict into, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  into->tv_sec = now.tv_sec;
  into->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}

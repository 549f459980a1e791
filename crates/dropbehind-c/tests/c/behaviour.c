/* What the functions do, checked by a C program: behaviour PART FILE. */
#define _GNU_SOURCE
#include <dropbehind.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)
#define FAILS(what, number)                      \
    do {                                         \
        errno = 0;                               \
        CHECK((what) && errno == (number));      \
    } while (0)

enum { PIECE = 256 << 10, PIECES = 64 };

static char piece[PIECE];

static char *filled(int number)
{
    memset(piece, number + 1, PIECE);
    return piece;
}

/* Each call, its return value and its errors. */
static void calls(const char *path)
{
    dropbehind_options *options = dropbehind_options_new();
    dropbehind_stats stats;
    struct iovec parts[2];
    dropbehind_file *file;
    struct stat status;
    char text[8] = "";
    char half[sizeof(uint64_t)];
    int fd;

    CHECK(strcmp(dropbehind_version(), "0.1.0") == 0);
    FAILS(dropbehind_options_set_mode(options, "nonsense") == -1, EINVAL);
    FAILS(dropbehind_open("/nowhere/at/all", O_RDONLY, 0, NULL) == NULL, ENOENT);
    FAILS(dropbehind_options_set_window(options, 1) == -1, EINVAL);
    CHECK(dropbehind_options_set_window(options, UINT64_MAX) == 0);
    CHECK(dropbehind_options_set_request(options, UINT64_MAX) == 0);
    file = dropbehind_open(path, O_RDWR | O_CREAT, 0640, options);
    CHECK(file && dropbehind_write(file, filled(1), PIECE) == PIECE);
    CHECK(dropbehind_settle(file, -1) == 0 && dropbehind_ftruncate(file, 0) == 0);
    CHECK(dropbehind_close(file) == 0 && unlink(path) == 0);
    FAILS(dropbehind_options_set_request(options, 1) == -1, EINVAL);
    CHECK(dropbehind_options_set_window(options, 1 << 20) == 0);
    CHECK(dropbehind_options_set_request(options, 1 << 16) == 0);
    CHECK(dropbehind_options_set_mode(options, "dontcache") == 0);

    umask(0);
    file = dropbehind_open(path, O_RDWR | O_CREAT | O_EXCL, 0640, options);
    CHECK(file);
    dropbehind_options_free(options);
    CHECK(fstat(dropbehind_fileno(file), &status) == 0 && (status.st_mode & 07777) == 0640);
    CHECK((fcntl(dropbehind_fileno(file), F_GETFD) & FD_CLOEXEC) == 0);
    CHECK(dropbehind_write(file, "abcdef", 6) == 6);
    CHECK(dropbehind_write(file, NULL, 0) == 0);
    CHECK(dropbehind_pwrite(file, "XY", 2, 1) == 2);
    parts[0] = (struct iovec){ "gh", 2 };
    parts[1] = (struct iovec){ "ij", 2 };
    CHECK(dropbehind_writev(file, parts, 2) == 4);
    CHECK(dropbehind_pwritev(file, parts, 2, 10) == 4);
    CHECK(dropbehind_writev(file, NULL, 0) == 0);
    FAILS(dropbehind_writev(file, parts, -1) == -1, EINVAL);
    FAILS(dropbehind_writev(file, parts, 100000) == -1, EINVAL);
    FAILS(dropbehind_read(file, text, (size_t)-1) == -1, EINVAL);
    FAILS(dropbehind_pwrite(file, text, (size_t)-1, 0) == -1, EINVAL);
    CHECK(dropbehind_lseek(file, 0, SEEK_CUR) == 10);
    CHECK(dropbehind_lseek(file, -4, SEEK_END) == 10);
    FAILS(dropbehind_lseek(file, -1, SEEK_SET) == -1, EINVAL);
    FAILS(dropbehind_lseek(file, 0, 77) == -1, EINVAL);
    CHECK(dropbehind_read(file, text, 8) == 4 && memcmp(text, "ghij", 4) == 0);
    CHECK(dropbehind_pread(file, text, 6, 0) == 6 && memcmp(text, "aXYdef", 6) == 0);
    FAILS(dropbehind_pread(file, text, 6, -1) == -1, EINVAL);
    parts[0] = (struct iovec){ text, 2 };
    parts[1] = (struct iovec){ text + 2, 2 };
    CHECK(dropbehind_preadv(file, parts, 2, 6) == 4 && memcmp(text, "ghij", 4) == 0);
    CHECK(dropbehind_lseek(file, 12, SEEK_SET) == 12);
    CHECK(dropbehind_readv(file, parts, 2) == 2);
    CHECK(dropbehind_ftruncate(file, 3) == 0);
    CHECK(fstat(dropbehind_fileno(file), &status) == 0 && status.st_size == 3);
    FAILS(dropbehind_ftruncate(file, -1) == -1, EINVAL);
    CHECK(dropbehind_fdatasync(file) == 0 && dropbehind_fsync(file) == 0);
    CHECK(dropbehind_settle(file, -1) == 0);
    CHECK(dropbehind_without_effect(file) == NULL);
    dropbehind_get_stats(file, &stats, sizeof stats);
    CHECK(stats.bytes_written == 16 && stats.bytes_read == 4 + 6 + 4 + 2);
    /* A program built with an older, shorter struct. */
    dropbehind_get_stats(file, (dropbehind_stats *)half, sizeof half);
    CHECK(memcmp(half, &stats, sizeof half) == 0);
    CHECK(dropbehind_close(file) == 0);
    CHECK(dropbehind_close(NULL) == 0);

    FAILS(dropbehind_adopt(-1, NULL) == NULL, EBADF);
    FAILS(dropbehind_adopt(1000, NULL) == NULL, EBADF);
    fd = open(path, O_RDONLY);
    file = dropbehind_adopt(fd, NULL);
    CHECK(file && dropbehind_fileno(file) == fd);
    FAILS(dropbehind_write(file, "a", 1) == -1, EBADF);
    CHECK(dropbehind_close(file) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1);
    fd = open(path, O_RDONLY);
    file = dropbehind_adopt(fd, NULL);
    CHECK(file && dropbehind_release(file) == fd);
    CHECK(read(fd, text, 3) == 3 && memcmp(text, "aXY", 3) == 0 && close(fd) == 0);
    /* What cannot be advised is refused, and stays the caller's. */
    options = dropbehind_options_new();
    dropbehind_options_set_random(options, 1);
    fd = open(path, O_PATH);
    CHECK(fd >= 0);
    FAILS(dropbehind_adopt(fd, options) == NULL, EBADF);
    CHECK(close(fd) == 0);
    dropbehind_options_free(options);

    FAILS(dropbehind_attach(-1, NULL) == NULL, EBADF);
    FAILS(dropbehind_attach(1000, NULL) == NULL, EBADF);
    dropbehind_detach(NULL);
    dropbehind_options_free(NULL);

    file = dropbehind_open("/dev/null", O_WRONLY, 0, NULL);
    CHECK(file && strstr(dropbehind_without_effect(file), "regular file"));
    CHECK(dropbehind_close(file) == 0);
}

/* What is cached, by cachestat(2), which valgrind does not know. */
static void cache(const char *path)
{
    dropbehind_file *file = dropbehind_open(path, O_RDWR | O_CREAT, 0600, NULL);
    dropbehind_cache_state state;
    dropbehind_options *options;

    CHECK(file);
    CHECK(pwrite(dropbehind_fileno(file), "buffered", 8, 0) == 8);
    CHECK(dropbehind_residency(file, 0, 0, &state) == 0);
    /* Others may sync the machine at any time. */
    CHECK(state.cached_bytes == 4096 && state.dirty_bytes + state.writeback_bytes <= 4096);
    FAILS(dropbehind_residency(file, -1, 0, &state) == -1, EINVAL);
    FAILS(dropbehind_drop(file, 0, -1) == -1, EINVAL);
    CHECK(dropbehind_close(file) == 0);

    options = dropbehind_options_new();
    CHECK(dropbehind_options_set_mode(options, "buffered") == 0);
    file = dropbehind_open(path, O_RDWR, 0, options);
    dropbehind_options_free(options);
    CHECK(dropbehind_fsync(file) == 0);
    CHECK(dropbehind_drop(file, 0, 4096) == 4096);
    CHECK(dropbehind_residency(file, 0, 4096, &state) == 0 && state.cached_bytes == 0);
    CHECK(dropbehind_close(file) == 0);
}

static dropbehind_file *together;

static void *writer(void *number)
{
    char *mine = malloc(PIECE);
    long i;

    for (i = (long)number; i < PIECES; i += 4) {
        memset(mine, (int)i + 1, PIECE);
        CHECK(dropbehind_pwrite(together, mine, PIECE, i * PIECE) == PIECE);
    }
    free(mine);
    return NULL;
}

static void check_pieces(const char *path)
{
    dropbehind_file *file = dropbehind_open(path, O_RDONLY, 0, NULL);
    char *read = malloc(PIECE);
    int i;

    CHECK(file);
    for (i = 0; i < PIECES; i++) {
        CHECK(dropbehind_read(file, read, PIECE) == PIECE);
        CHECK(memcmp(read, filled(i), PIECE) == 0);
    }
    free(read);
    CHECK(dropbehind_settle(file, 60000) == 0);
    CHECK(dropbehind_close(file) == 0);
}

/* Four threads write one file. */
static void threads(const char *path)
{
    pthread_t all[4];
    long i;

    together = dropbehind_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600, NULL);
    CHECK(together);
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, writer, (void *)i) == 0);
    for (i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    CHECK(dropbehind_fsync(together) == 0);
    CHECK(dropbehind_settle(together, 60000) == 0);
    CHECK(dropbehind_close(together) == 0);
    check_pieces(path);
}

/* The first half was cached before, and stays. */
static void attached(const char *path)
{
    dropbehind_attached *attached;
    dropbehind_stats stats;
    int fd = open(path, O_RDWR);
    int i;

    CHECK(fd >= 0);
    attached = dropbehind_attach(fd, NULL);
    CHECK(attached);
    CHECK(dropbehind_attached_without_effect(attached) == NULL);
    for (i = 0; i < PIECES; i++) {
        CHECK(pwrite(fd, filled(i), PIECE, (off_t)i * PIECE) == PIECE);
        if (dropbehind_wrote(attached, (uint64_t)i * PIECE, PIECE))
            dropbehind_wait_for_room(attached);
    }
    CHECK(dropbehind_synced(attached, fsync(fd) < 0 ? errno : 0) == 0);
    CHECK(dropbehind_attached_settle(attached, 60000) == 0);
    CHECK(dropbehind_attached_drop(attached, 0, 0) == 0);
    FAILS(dropbehind_attached_drop(attached, -1, 0) == -1, EINVAL);
    dropbehind_attached_get_stats(attached, &stats, sizeof stats);
    CHECK(stats.left_bytes == 0);
    FAILS(dropbehind_synced(attached, ENOSPC) == -1, ENOSPC);
    dropbehind_detach(attached);
    CHECK(fcntl(fd, F_GETFD) >= 0);
    CHECK(close(fd) == 0);
}

/* A forked child writes on through its parent's file. */
static void forks(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dropbehind_attached *attached = dropbehind_attach(fd, NULL);
    dropbehind_file *file = dropbehind_open(path, O_WRONLY, 0, NULL);
    int i, status;
    pid_t child;

    CHECK(file && attached);
    for (i = 0; i < PIECES / 2; i++)
        CHECK(dropbehind_write(file, filled(i), PIECE) == PIECE);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dropbehind_wrote(attached, 0, PIECE);
        for (; i < PIECES; i++)
            CHECK(dropbehind_write(file, filled(i), PIECE) == PIECE);
        CHECK(dropbehind_fsync(file) == 0);
        CHECK(dropbehind_settle(file, 60000) == 0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(dropbehind_fsync(file) == 0);
    CHECK(dropbehind_settle(file, 60000) == 0);
    CHECK(dropbehind_close(file) == 0);
    dropbehind_detach(attached);
    close(fd);
    check_pieces(path);
}

/* The disk fails: who writes learns of it, once. */
static void failing(const char *path)
{
    dropbehind_file *file = dropbehind_open(path, O_WRONLY | O_CREAT, 0600, NULL);
    int i;

    CHECK(file);
    /* More than the disk takes. */
    for (i = 0; i < 1024; i++)
        CHECK(dropbehind_write(file, filled(i), PIECE) == PIECE);
    CHECK(dropbehind_fsync(file) == -1 && (errno == ENOSPC || errno == EIO));
    CHECK(dropbehind_fsync(file) == 0);
    CHECK(dropbehind_close(file) == 0);
}

/* The time of a report, in nanoseconds. */
static double thread_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void speed(const char *path)
{
    enum { TIMES = 1 << 20 };
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    dropbehind_attached *attached = dropbehind_attach(fd, NULL);
    int scattered;

    CHECK(attached);
    for (scattered = 0; scattered < 2; scattered++) {
        /* Neither what waits for room nor other programs take this thread's time. */
        double from = thread_ns(), waiting = 0;
        long i;
        for (i = 0; i < TIMES; i++)
            if (dropbehind_wrote(attached, (scattered ? i * 389 % TIMES : i) * 4096, 4096)) {
                double since = thread_ns();
                dropbehind_wait_for_room(attached);
                waiting += thread_ns() - since;
            }
        printf("%s: %.1f ns a report\n", scattered ? "scattered" : "sequential",
               (thread_ns() - from - waiting) / TIMES);
    }
    dropbehind_detach(attached);
    close(fd);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *path);
    } parts[] = {
        { "calls", calls },       { "cache", cache },     { "threads", threads }, { "attached", attached },
        { "forks", forks },       { "failing", failing }, { "speed", speed },
    };
    size_t i;

    for (i = 0; argc == 3 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].run(argv[2]);
            return 0;
        }
    fprintf(stderr, "usage: behaviour PART FILE\n");
    return 2;
}

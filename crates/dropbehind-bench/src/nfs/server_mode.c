/* The server modes of the kernel's NFS server (io_cache_write, Linux 6.18), for a server that writes
 * with pwritev(2): compiled with MODE, and preloaded. Reads stay as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* include/uapi/linux/fs.h */
#endif
enum { PLAIN, NATIVE, DIRECT };
enum { ALIGNMENT = 4096 };

static ssize_t write_with(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    return syscall(SYS_pwritev2, fd, parts, count, (long)offset, 0L, flags);
}

/* Requests lie in memory as they came, so they are copied to where O_DIRECT can take them.
 * What is not aligned in the file is written as plainly as the kernel's server writes it. */
static ssize_t write_direct(int fd, const struct iovec *parts, int count, off64_t offset)
{
    static __thread char *buffer;
    static __thread size_t room;
    size_t bytes = 0, at = 0;
    for (int part = 0; part < count; part++)
        bytes += parts[part].iov_len;
    if (!bytes || bytes % ALIGNMENT || offset % ALIGNMENT)
        return write_with(fd, parts, count, offset, 0);
    if (room < bytes) {
        free(buffer);
        buffer = aligned_alloc(ALIGNMENT, bytes);
        room = buffer ? bytes : 0;
        if (!buffer)
            return -1;
    }
    for (int part = 0; part < count; at += parts[part++].iov_len)
        memcpy(buffer + at, parts[part].iov_base, parts[part].iov_len);
    /* Its own description: the server's other threads read through the same descriptor. */
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int direct = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0)
        return -1;
    struct iovec whole = {buffer, bytes};
    ssize_t written = write_with(direct, &whole, 1, offset, 0);
    int error = errno;
    close(direct);
    errno = error;
    return written;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    if (MODE == DIRECT)
        return write_direct(fd, parts, count, offset);
    return write_with(fd, parts, count, offset, MODE == NATIVE ? RWF_DONTCACHE : 0);
}

/* NFS-Ganesha has its modules look for symbols in their own libraries first, where ours is not. */
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    return next(name, flags & ~RTLD_DEEPBIND);
}

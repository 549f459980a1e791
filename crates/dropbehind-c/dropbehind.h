/*
 * dropbehind: uncached buffered I/O and write-behind in user space.
 *
 * Link with -ldropbehind. All functions can be called by several threads at once, on the same
 * file too, except those that end a file or free something: after them nobody may use it.
 * After a fork, parent and child go on independently; the child's dropbehind_attached do nothing.
 *
 * Functions that return int return 0, those that return ssize_t or int64_t a count or a
 * position, and those that return a pointer one that is not NULL. On failure they return -1
 * or NULL and set errno.
 *
 * Pointers must be valid for what the function does with them; a pointer to a file, options
 * or a reading must come from this library, and not have been ended or freed. Where NULL is
 * allowed, it is said.
 */

#ifndef DROPBEHIND_H
#define DROPBEHIND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

// A descriptor of the caller's, whose I/O the caller does by itself and reports.
typedef struct dropbehind_attached dropbehind_attached;

// An open file, read and written through the page cache under its mode.
typedef struct dropbehind_file dropbehind_file;

// The settings of a file: its mode, window, request size and access pattern.
typedef struct dropbehind_options dropbehind_options;

// A read that was announced.
typedef struct dropbehind_reading dropbehind_reading;

// What was done for a file, in bytes of whole pages unless said otherwise. Later versions of
// the library add fields at the end.
typedef struct {
  // Bytes that the calls read; 0 for attached files.
  uint64_t bytes_read;
  // Bytes that the calls wrote, or that were reported.
  uint64_t bytes_written;
  // Most bytes at any time that were written and not yet seen clean.
  uint64_t peak_dirty_bytes;
  // Most bytes at any time that were brought into the cache and not yet dropped.
  uint64_t peak_cached_bytes;
  // Bytes that this I/O brought into the cache.
  uint64_t brought_bytes;
  // Those of them that have left the cache again. A closed file without a name counts as gone
  // at once, though its pages stay for as long as somebody else has it open.
  uint64_t dropped_bytes;
  // Bytes that had been cached before, and were kept. What was only read of an open file counts once
  // the file is settled. Of more than 1024 separate ranges at once, some do not count.
  uint64_t kept_bytes;
  // Bytes that should have been dropped and could not be.
  uint64_t left_bytes;
  // Times a writer waited or paused for writeback.
  uint64_t waits;
  // Nanoseconds that writers waited or paused.
  uint64_t wait_ns;
} dropbehind_stats;

// The cached pages of a range, in bytes of whole pages.
typedef struct {
  // Bytes that are cached, clean or not.
  uint64_t cached_bytes;
  // Bytes that are dirty and not under writeback.
  uint64_t dirty_bytes;
  // Bytes under writeback.
  uint64_t writeback_bytes;
} dropbehind_cache_state;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version, such as "0.1.0".
const char *dropbehind_version(void);

// Attaches an open descriptor, with which the caller goes on reading and writing: with
// pwrite(2), io_uring or another library. It must stay open until dropbehind_detach. What is
// not reported stays cached, and the kernel writes it. In a mode that drops, this finds out
// what of the file is cached, so that it stays. `options` may be NULL.
//
// EBADF: it is not open.
dropbehind_attached *dropbehind_attach(int fd, const dropbehind_options *options);

// Reports that a write of `length` bytes at `offset` has completed. With O_APPEND the offset
// doesn't matter: all that the file has grown by counts as appended here. A few atomic operations; it never waits.
//
// Returns 1 if so much is unwritten that the caller should submit no more before
// dropbehind_wait_for_room, and 0 otherwise.
int dropbehind_wrote(dropbehind_attached *attached,
                     uint64_t offset,
                     uint64_t length);

// Waits until dropbehind_wrote would return 0.
void dropbehind_wait_for_room(dropbehind_attached *attached);

// Announces a read of `length` bytes at `offset`, and finds out what of it is cached: the rest
// is what the read brings in. The kernel may read ahead of it, which nobody reports, so those
// pages stay; dropbehind_options_set_random prevents that.
//
// The result, never NULL, goes to dropbehind_read_done. Until then no page of the range is
// dropped.
dropbehind_reading *dropbehind_will_read(dropbehind_attached *attached,
                                         uint64_t offset,
                                         uint64_t length);

// Reports that the read has completed, or failed, or was not submitted after all, and frees the
// reading. What it brought in is dropped.
void dropbehind_read_done(dropbehind_attached *attached, dropbehind_reading *reading);

// Drops the clean pages of a range that were not cached before the file was attached, and
// returns how many bytes left the cache. A length of 0 means to the end of the file.
//
// Errors: those of `dropbehind_drop`.
int64_t dropbehind_attached_drop(dropbehind_attached *attached, int64_t offset, int64_t length);

// Reports what an fsync(2) or fdatasync(2) of the caller's has returned: 0, or an error's number
// as in errno. Call it for each one, since after a failed one nothing of the file is dropped.
//
// Returns 0, or -1 with that errno.
int dropbehind_synced(dropbehind_attached *attached, int error);

// Waits until all that was reported is clean and dropped. Syncs nothing. A negative timeout
// waits for as long as it takes.
//
// ETIMEDOUT: the milliseconds have passed, or the file is left to the kernel.
int dropbehind_attached_settle(dropbehind_attached *attached, int timeout_ms);

// Returns why the mode has no effect on this file, or NULL if it has one. The text is valid
// until the next call by the same thread.
const char *dropbehind_attached_without_effect(const dropbehind_attached *attached);

// Says what was done for the file. `size` is sizeof(dropbehind_stats).
void dropbehind_attached_get_stats(const dropbehind_attached *attached,
                                   dropbehind_stats *stats,
                                   size_t size);

// Ends it. The descriptor stays open, and the library finishes what was reported. NULL is allowed.
void dropbehind_detach(dropbehind_attached *attached);

// Opens a file as open(2) does; `mode` counts if the flags make a file. `options` may be NULL.
//
// Errors: those of open(2).
dropbehind_file *dropbehind_open(const char *path,
                                 int flags,
                                 mode_t mode,
                                 const dropbehind_options *options);

// Takes over an open descriptor, which dropbehind_close will close. After a failure it is still
// the caller's, and open. Pages that are cached or dirty already are left alone. `options` may be
// NULL.
//
// EBADF: it is not open. Other errors: those of fstat(2), fcntl(2) and posix_fadvise(2).
dropbehind_file *dropbehind_adopt(int fd, const dropbehind_options *options);

// The descriptor, for calls that the library doesn't have. What is written through it directly
// stays in the page cache.
int dropbehind_fileno(const dropbehind_file *file);

// As read(2).
ssize_t dropbehind_read(dropbehind_file *file, void *buf, size_t count);

// As write(2).
ssize_t dropbehind_write(dropbehind_file *file, const void *buf, size_t count);

// As pread(2).
ssize_t dropbehind_pread(dropbehind_file *file, void *buf, size_t count, int64_t offset);

// As pwrite(2).
ssize_t dropbehind_pwrite(dropbehind_file *file, const void *buf, size_t count, int64_t offset);

// As readv(2).
ssize_t dropbehind_readv(dropbehind_file *file, const struct iovec *iov, int iovcnt);

// As writev(2).
ssize_t dropbehind_writev(dropbehind_file *file, const struct iovec *iov, int iovcnt);

// As preadv(2).
ssize_t dropbehind_preadv(dropbehind_file *file,
                          const struct iovec *iov,
                          int iovcnt,
                          int64_t offset);

// As pwritev(2).
ssize_t dropbehind_pwritev(dropbehind_file *file,
                           const struct iovec *iov,
                           int iovcnt,
                           int64_t offset);

// As lseek(2), with SEEK_SET, SEEK_CUR and SEEK_END.
int64_t dropbehind_lseek(dropbehind_file *file, int64_t offset, int whence);

// As ftruncate(2).
int dropbehind_ftruncate(dropbehind_file *file, int64_t length);

// As fsync(2). Use this one rather than fsync(2) on the descriptor: after a failed one, the
// library keeps the pages that the disk never got.
int dropbehind_fsync(dropbehind_file *file);

// As fdatasync(2).
int dropbehind_fdatasync(dropbehind_file *file);

// Waits until everything this file brought into the cache is clean and dropped, but for what has
// to stay (left_bytes), such as all of a file whose writeback failed. Syncs nothing.
// A negative timeout waits for as long as it takes.
//
// ETIMEDOUT: the milliseconds have passed, or the file is left to the kernel.
int dropbehind_settle(dropbehind_file *file, int timeout_ms);

// Drops the clean pages of a range, and returns how many bytes left the cache. A length of 0
// means to the end of the file. In a mode that drops, pages that were cached before this
// file's I/O are kept; in the others all clean pages go.
//
// Errors: those of posix_fadvise(2) and cachestat(2); EIO or ENOSPC if writing back the file
// failed, so that the cache may have the only copy: nothing goes then. EAGAIN if the mode
// keeps pages and no thread can be started to ask about that.
int64_t dropbehind_drop(dropbehind_file *file, int64_t offset, int64_t length);

// Counts the cached pages of a range in bytes. A length of 0 means to the end of the file.
//
// Errors: those of cachestat(2): ENOSYS before Linux 6.5, EPERM for files that the caller
// neither owns nor may write.
int dropbehind_residency(const dropbehind_file *file,
                         int64_t offset,
                         int64_t length,
                         dropbehind_cache_state *state);

// Returns why the mode has no effect on this file, such as that it is on a tmpfs, or NULL if it
// has one. The text is valid until the next call by the same thread.
const char *dropbehind_without_effect(const dropbehind_file *file);

// Says what was done for the file. `size` is sizeof(dropbehind_stats).
void dropbehind_get_stats(const dropbehind_file *file, dropbehind_stats *stats, size_t size);

// Closes the file as close(2) does, whose error it returns. The library still finishes what was
// written, while the process lives. It syncs nothing: call dropbehind_fsync first. NULL is allowed.
int dropbehind_close(dropbehind_file *file);

// Ends the file as dropbehind_close does, but returns its descriptor, open. So the process keeps
// its record locks on the file, which closing any of its descriptors releases.
int dropbehind_release(dropbehind_file *file);

// New options, all with their defaults.
dropbehind_options *dropbehind_options_new(void);

// Frees options. Files that were opened with them keep their settings. NULL is allowed.
void dropbehind_options_free(dropbehind_options *options);

// Sets the mode by its name: "buffered", "dontcache", "write-behind", "write-behind-any",
// "write-through", "noreuse", "auto", which does the same as "dontcache" here, or a pair such as
// "behind+drop". The default is that of the file's disk in the configuration file, or else
// "dontcache".
//
// EINVAL: there is no such mode.
int dropbehind_options_set_mode(dropbehind_options *options, const char *name);

// Sets the window in bytes, at least 64 KiB: up to twice as much may be dirty or under
// writeback before a writer waits.
//
// EINVAL: it is too small. The options stay as they were.
int dropbehind_options_set_window(dropbehind_options *options, uint64_t bytes);

// Sets the size of one write request to the disk in bytes, at least a page.
//
// EINVAL: it is too small. The options stay as they were.
int dropbehind_options_set_request(dropbehind_options *options, uint64_t bytes);

// Expects random access if `random` is not 0: no readahead and no write-behind.
void dropbehind_options_set_random(dropbehind_options *options, int random);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DROPBEHIND_H */

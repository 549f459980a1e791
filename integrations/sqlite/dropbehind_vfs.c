/* A loadable extension for SQLite: databases opened with vfs=dropbehind go through the page cache
 * without staying there.
 *
 *     .load ./dropbehind_vfs
 *     .open file:data.db?vfs=dropbehind
 *
 * All I/O stays SQLite's own: this VFS calls its "unix" one, and reports to libdropbehind what
 * that read and wrote of databases. SQLite has a cache of its own (PRAGMA cache_size), so what the
 * kernel caches is there twice. Journals and temporary files stay as they are: most of them are
 * deleted before they would have been written. So do pages that are read through mmap_size.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include <dropbehind.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* How long a process that closes a database waits for a slow disk. */
    SETTLE_MS = 60000,
    /* So much is read ahead at first, and at most. */
    SMALL_CHUNK = 64 << 10,
    LARGE_CHUNK = 1 << 20,
    /* A scan skips pages of other tables and of the tree. */
    GAP = 64 << 10,
};

struct file {
    sqlite3_file base;
    /* NULL if it is left as it is. */
    dropbehind_attached *attached;
    int fd;
    /* What was read ahead, until the next time. */
    dropbehind_reading *chunk;
    sqlite3_int64 chunk_start, chunk_end, chunk_wanted;
    /* Where the last read ended. */
    sqlite3_int64 read_end;
    /* SQLite's own file follows in memory. */
};

static sqlite3_vfs *unix_vfs;
static int (*unix_open)(const char *, int, int);
/* What the "unix" VFS has opened last in this thread, since it tells nobody its descriptors. */
static __thread int opened;

static sqlite3_file *own(sqlite3_file *file)
{
    return (sqlite3_file *)((struct file *)file + 1);
}

static dropbehind_attached *attached(sqlite3_file *file)
{
    return ((struct file *)file)->attached;
}

static int open_noted(const char *path, int flags, int mode)
{
    return opened = unix_open(path, flags, mode);
}

static void chunk_done(struct file *file)
{
    if (file->chunk)
        dropbehind_read_done(file->attached, file->chunk);
    file->chunk = NULL;
}

static int file_close(sqlite3_file *file)
{
    if (attached(file)) {
        chunk_done((struct file *)file);
        dropbehind_attached_settle(attached(file), SETTLE_MS);
        dropbehind_detach(attached(file));
    }
    return own(file)->pMethods->xClose(own(file));
}

/* The kernel's readahead would stay in the cache, since nobody reports it. So a scan reads ahead
 * itself. */
static void read_ahead(struct file *file, sqlite3_int64 offset)
{
    sqlite3_int64 size;

    chunk_done(file);
    if (offset < file->chunk_end || offset > file->chunk_end + GAP)
        file->chunk_wanted = SMALL_CHUNK;
    else if (file->chunk_wanted < LARGE_CHUNK)
        file->chunk_wanted *= 2;
    file->chunk_start = file->chunk_end = offset;
    if (own(&file->base)->pMethods->xFileSize(own(&file->base), &size) != SQLITE_OK || size <= offset)
        return;
    file->chunk_end = size - offset < file->chunk_wanted ? size : offset + file->chunk_wanted;
    file->chunk = dropbehind_will_read(file->attached, offset, file->chunk_end - offset);
    posix_fadvise(file->fd, offset, file->chunk_end - offset, POSIX_FADV_WILLNEED);
}

static int file_read(sqlite3_file *base, void *buffer, int length, sqlite3_int64 offset)
{
    struct file *file = (struct file *)base;
    dropbehind_reading *reading = NULL;
    sqlite3_int64 skipped = offset - file->read_end, end = offset + length;
    int result;

    if (!file->attached)
        return own(base)->pMethods->xRead(own(base), buffer, length, offset);
    if ((offset < file->chunk_start || end > file->chunk_end) && skipped >= 0 && skipped <= GAP)
        read_ahead(file, offset);
    if (offset < file->chunk_start || end > file->chunk_end)
        reading = dropbehind_will_read(file->attached, offset, length);
    file->read_end = end;
    result = own(base)->pMethods->xRead(own(base), buffer, length, offset);
    if (reading)
        dropbehind_read_done(file->attached, reading);
    return result;
}

static int file_write(sqlite3_file *file, const void *buffer, int length, sqlite3_int64 offset)
{
    int result = own(file)->pMethods->xWrite(own(file), buffer, length, offset);

    if (result == SQLITE_OK && attached(file) && dropbehind_wrote(attached(file), offset, length))
        dropbehind_wait_for_room(attached(file));
    return result;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return own(file)->pMethods->xTruncate(own(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    int result = own(file)->pMethods->xSync(own(file), flags);

    if (attached(file))
        dropbehind_synced(attached(file), result == SQLITE_OK ? 0 : EIO);
    return result;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return own(file)->pMethods->xFileSize(own(file), size);
}

static int file_lock(sqlite3_file *file, int lock)
{
    return own(file)->pMethods->xLock(own(file), lock);
}

static int file_unlock(sqlite3_file *file, int lock)
{
    return own(file)->pMethods->xUnlock(own(file), lock);
}

static int file_check_reserved_lock(sqlite3_file *file, int *result)
{
    return own(file)->pMethods->xCheckReservedLock(own(file), result);
}

static int file_control(sqlite3_file *file, int what, void *argument)
{
    return own(file)->pMethods->xFileControl(own(file), what, argument);
}

static int file_sector_size(sqlite3_file *file)
{
    return own(file)->pMethods->xSectorSize(own(file));
}

static int file_device_characteristics(sqlite3_file *file)
{
    return own(file)->pMethods->xDeviceCharacteristics(own(file));
}

static int file_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **at)
{
    return own(file)->pMethods->xShmMap(own(file), page, size, extend, at);
}

static int file_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    return own(file)->pMethods->xShmLock(own(file), offset, count, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    own(file)->pMethods->xShmBarrier(own(file));
}

static int file_shm_unmap(sqlite3_file *file, int remove)
{
    return own(file)->pMethods->xShmUnmap(own(file), remove);
}

static int file_fetch(sqlite3_file *file, sqlite3_int64 offset, int length, void **at)
{
    return own(file)->pMethods->xFetch(own(file), offset, length, at);
}

static int file_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *at)
{
    return own(file)->pMethods->xUnfetch(own(file), offset, at);
}

static const sqlite3_io_methods methods = {
    3,
    file_close,
    file_read,
    file_write,
    file_truncate,
    file_sync,
    file_size,
    file_lock,
    file_unlock,
    file_check_reserved_lock,
    file_control,
    file_sector_size,
    file_device_characteristics,
    file_shm_map,
    file_shm_lock,
    file_shm_barrier,
    file_shm_unmap,
    file_fetch,
    file_unfetch,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *got)
{
    struct file *outer = (struct file *)file;
    struct stat stat;
    int result;

    (void)vfs;
    memset(outer, 0, sizeof *outer);
    opened = -1;
    result = unix_vfs->xOpen(unix_vfs, name, own(file), flags, got);
    /* SQLite may still close it then. */
    if (own(file)->pMethods)
        file->pMethods = &methods;
    /* If the VFS had a descriptor from before, it opened none. */
    if (result == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB && fstat(opened, &stat) == 0 &&
        S_ISREG(stat.st_mode)) {
        dropbehind_options *options = dropbehind_options_new();
        dropbehind_options_set_random(options, 1);
        outer->fd = opened;
        /* The first read is no scan. */
        outer->read_end = -GAP - 1;
        outer->chunk_wanted = SMALL_CHUNK;
        outer->attached = dropbehind_attach(opened, options);
        dropbehind_options_free(options);
    }
    return result;
}

int sqlite3_dropbehindvfs_init(sqlite3 *db, char **message, const sqlite3_api_routines *api)
{
    static sqlite3_vfs vfs;

    (void)db;
    SQLITE_EXTENSION_INIT2(api);
    if (sqlite3_vfs_find("dropbehind"))
        return SQLITE_OK_LOAD_PERMANENTLY;
    unix_vfs = sqlite3_vfs_find("unix");
    if (!unix_vfs || unix_vfs->iVersion < 3) {
        *message = sqlite3_mprintf("SQLite has no VFS \"unix\" of version 3");
        return SQLITE_ERROR;
    }
    unix_open = (int (*)(const char *, int, int))unix_vfs->xGetSystemCall(unix_vfs, "open");
    unix_vfs->xSetSystemCall(unix_vfs, "open", (sqlite3_syscall_ptr)open_noted);
    /* All else is its own: these calls take their VFS as an argument, but look only at data that
     * is the same here. */
    vfs = *unix_vfs;
    vfs.zName = "dropbehind";
    vfs.pNext = NULL;
    vfs.szOsFile += sizeof(struct file);
    vfs.xOpen = vfs_open;
    if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
        return SQLITE_ERROR;
    return SQLITE_OK_LOAD_PERMANENTLY;
}

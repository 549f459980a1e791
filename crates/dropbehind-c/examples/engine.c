/* A storage engine that keeps its own I/O, and only reports it:
 *
 *     engine FILE
 *
 * It writes 4,096 blocks of 16 KiB in a scattered order, syncs, and reads each back.
 */
#include <dropbehind.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 16 << 10, BLOCKS = 4096 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    static char block[BLOCK];
    dropbehind_attached *attached;
    dropbehind_options *options;
    long i;
    int fd;

    if (argc != 2) {
        fprintf(stderr, "usage: engine FILE\n");
        return 2;
    }
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        fail(argv[1]);
    options = dropbehind_options_new();
    dropbehind_options_set_random(options, 1);
    attached = dropbehind_attach(fd, options);
    dropbehind_options_free(options);
    if (!attached)
        fail("dropbehind_attach");
    for (i = 0; i < BLOCKS; i++) {
        off_t offset = i * 389 % BLOCKS * BLOCK;
        memset(block, (char)(offset / BLOCK), BLOCK);
        if (pwrite(fd, block, BLOCK, offset) != BLOCK)
            fail(argv[1]);
        if (dropbehind_wrote(attached, offset, BLOCK))
            dropbehind_wait_for_room(attached);
    }
    /* Report what it returned, whatever that was. */
    if (dropbehind_synced(attached, fdatasync(fd) < 0 ? errno : 0) < 0)
        fail(argv[1]);
    for (i = 0; i < BLOCKS; i++) {
        off_t offset = i * 1789 % BLOCKS * BLOCK;
        dropbehind_reading *reading = dropbehind_will_read(attached, offset, BLOCK);
        ssize_t got = pread(fd, block, BLOCK, offset);
        dropbehind_read_done(attached, reading);
        if (got != BLOCK || block[0] != (char)(offset / BLOCK)) {
            fprintf(stderr, "block %ld is wrong\n", i);
            return 1;
        }
    }
    if (dropbehind_attached_settle(attached, 60000) < 0)
        fail("waiting for pages to be dropped");
    dropbehind_detach(attached);
    return close(fd) < 0;
}

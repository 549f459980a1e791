/* Writes standard input to a file, durably, and leaves nothing of it in the page cache:
 *
 *     stream FILE <backup.tar
 */
#include <dropbehind.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    static char buffer[1 << 20];
    dropbehind_stats stats;
    dropbehind_file *file;
    ssize_t got;

    if (argc != 2) {
        fprintf(stderr, "usage: stream FILE\n");
        return 2;
    }
    file = dropbehind_open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, NULL);
    if (!file)
        fail(argv[1]);
    while ((got = read(0, buffer, sizeof buffer)) > 0) {
        ssize_t done = 0;
        while (done < got) {
            ssize_t put = dropbehind_write(file, buffer + done, got - done);
            if (put < 0)
                fail(argv[1]);
            done += put;
        }
    }
    if (got < 0)
        fail("standard input");
    if (dropbehind_fsync(file) < 0)
        fail(argv[1]);
    if (dropbehind_settle(file, 60000) < 0)
        fail("waiting for pages to be dropped");
    dropbehind_get_stats(file, &stats, sizeof stats);
    if (dropbehind_close(file) < 0)
        fail(argv[1]);
    printf("%llu bytes written, %llu left in the page cache\n",
           (unsigned long long)stats.bytes_written, (unsigned long long)stats.left_bytes);
    return 0;
}

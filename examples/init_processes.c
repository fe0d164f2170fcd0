/*
 * init_processes.c - do the processes of a job find one another? Follows seeds/002: init_proc.py.
 *
 * yoke run -n 2 -- init_processes
 * yoke run --nnodes 2 -n 2 --node-rank 0 --master-addr 1.2.3.4 -- init_processes     (and on the other, --node-rank 1)
 */
#include <unistd.h>

#include <yoke/yoke.h>

int main(void)
{
    setlinebuf(stdout); /* the first line is seen while it waits for the others */
    printf("[ %d ] Initializing process group\n", getpid());
    if (yk_init_process_group(NULL))
        return yk_report_error(stderr);
    printf("[ %d ] world_size = %d, rank = %d, backend=%s\n", getpid(), yk_world_size(NULL), yk_rank(NULL),
           yk_process_group_backend(yk_default_process_group()));
    yk_destroy_process_group();
    return 0;
}

/* buckets_check_test.c - the check of DistributedDataParallel's buckets: what is damaged is named with its values. */
#include "tests/parallel/trainer.h"

#include "parallel/reducer.h"
#include "tests/support/broken.h"

#define BROKEN(facts)                                                                                                  \
    do {                                                                                                               \
        const char *wrong = yk__buckets_check(r);                                                                      \
        CHECK(wrong &&expect_says(wrong, facts), "\"%s\", expected \"%s\"", wrong ? wrong : "nothing", facts);         \
    } while (0)

static void damage_rank(rank_context *c)
{
    yk_module *net = lenet_of(YK_F32, 1);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .first_bucket_mb = 0.02, .bucket_cap_mb = 0.1));
    yk__reducer *r = NULL;
    CHECK_OK(yk__reducer_of("test", ddp, &r));
    CHECK(r && r->n_buckets > 1 && !yk__buckets_check(r), "%s", r ? yk__buckets_check(r) : "no reducer");
    int kept = r->order[0];
    r->order[0] = r->order[1];
    BROKEN("times in the order");
    r->order[0] = kept;
    yk__ddp_parameter *p = &r->parameters[r->order[r->count - 1]];
    kept = p->bucket;
    p->bucket = r->n_buckets;
    BROKEN("is in bucket");
    p->bucket = kept ? 0 : 1;
    BROKEN("is not member");
    p->bucket = kept;
    yk__ddp_bucket *b = &r->buckets[1];
    b->missing = 99;
    BROKEN("bucket 1 waits for 99 of its");
    b->missing = b->bucket.n_parameters;
    b->bucket.index = 5;
    BROKEN("bucket 1, with the number 5, has");
    b->bucket.index = 1;
    r->next = -1;
    BROKEN("bucket -1 of");
    r->next = 0;
    void *data = p->grad_buffer->data;
    p->grad_buffer->data = (char *)data + 4;
    BROKEN("lies at byte");
    p->grad_buffer->data = data;
    CHECK(!yk__buckets_check(r), "%s", yk__buckets_check(r));
}

static void test_damage(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, damage_rank, NULL, patience(60), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests_name("buckets_check", tests, NULL, NULL);
}

/* layout_check_test.c - the check of a layout of tensors in parts: what is damaged is named with its values. */
#include "checkpoint/shards/shards.h"
#include "tests/support/broken.h"

static void test_damage(void **state)
{
    (void)state;
    yk__layout layout = {0};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        yk__whole t = {.name = name, .dtype = YK_F32, .ndim = 2, .shape = {4, 6}};
        for (int holder = 0; holder < 2; holder++) {
            const yk__part part = {holder, {{2 * holder, 0}, {2, 6}}};
            expect_ok(yk__layout_add(&layout, "here", &t, &part));
        }
    }
    expect_sound(yk__layout_table_check(&layout));
    expect_ok(yk__layout_spread(&layout, 2));
    expect_ok(yk__layout_check(&layout, "here"));
    yk__whole *t = &layout.tensors[7];
    t->parts[1].box.offset[0] = 3;
    expect_broken(yk__layout_table_check(&layout),
                  "tensor 't7': part 1, of holder 1, has 2 elements from 3 on in dimension 0 of size 4");
    t->parts[1].box.offset[0] = 2;
    t->parts[0].holder = -1;
    expect_broken(yk__layout_table_check(&layout), "tensor 't7': part 0 has the holder -1");
    t->parts[0].holder = 0;
    t->name[1] = '9';
    expect_broken(yk__layout_table_check(&layout), "tensor 7, 't9', is not found by its name");
    t->name[1] = '7';
    size_t room = t->room;
    t->room = 1;
    expect_broken(yk__layout_table_check(&layout), "tensor 't7' has 2 dimensions, and 2 parts in memory for 1");
    t->room = room;
    room = layout.room;
    layout.room = 3;
    expect_broken(yk__layout_table_check(&layout), "20 tensors in memory for 3");
    layout.room = room;
    expect_sound(yk__layout_table_check(&layout));
    yk__layout_clear(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests_name("layout_check", tests, NULL, NULL);
}

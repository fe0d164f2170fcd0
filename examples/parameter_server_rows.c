/*
 * parameter_server_rows.c - a recommender: the vectors of users and films are rows of tables that two servers keep, and
 * so is the small network on top; the trainers look up what their batch needs. No trainer waits for another.
 *
 * cc -O2 parameter_server_rows.c $(pkg-config --cflags --libs yoke)
 * yoke run -n 2 --role ps ./a.out : -n 3 --role trainer ./a.out
 */
#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

enum { USERS = 200, FILMS = 100, DIM = 8, BATCH = 256, STEPS = 300 };

/* A number of user or film i that the ratings are made of. */
static double hidden(int64_t i, int64_t k)
{
    return (double)((i * 7919 + k * 104729) % 1000) / 500 - 1;
}

/* A batch of ratings: users, films, and what they gave. */
static void batch_make(int64_t *users, int64_t *films, float *ratings, unsigned *seed)
{
    for (int i = 0; i < BATCH; i++) {
        users[i] = rand_r(seed) % USERS;
        films[i] = rand_r(seed) % FILMS;
        ratings[i] = 3;
        for (int k = 0; k < 2; k++)
            ratings[i] += (float)(hidden(users[i], k) * hidden(films[i], k));
    }
}

static yk_status train(void)
{
    static const char *const servers[] = {"ps0", "ps1"};
    static const yk_server_table tables[] = {{.name = "users", .rows = USERS, .dim = DIM, .std = 0.3},
                                             {.name = "films", .rows = FILMS, .dim = DIM, .std = 0.3},
                                             {.name = NULL}};
    yk_module *net = yk_linear_create(DIM, 1, NULL);
    yk_parameter_server *ps =
        yk_parameter_server_join(servers, 2, yk_module_parameters(net),
                                 YK_OPTIONS(yk_parameter_server_options, .tables = tables,
                                            .adagrad = YK_OPTIONS(yk_adagrad_options, .lr = 0.1)));
    unsigned seed = (unsigned)atoi(getenv("ROLE_RANK")) + 1;
    double mean = 0;
    for (int step = 1; step <= STEPS; step++) {
        yk_scope scope = yk_scope_begin();
        int64_t users[BATCH], films[BATCH];
        float ratings[BATCH];
        batch_make(users, films, ratings, &seed);
        const yk_tensor_options *whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
        yk_tensor *u = yk_parameter_server_lookup(ps, "users", yk_from_data(users, YK_SHAPE(BATCH), whole));
        yk_tensor *f = yk_parameter_server_lookup(ps, "films", yk_from_data(films, YK_SHAPE(BATCH), whole));
        yk_tensor *guess = yk_forward(net, yk_mul(u, f));
        yk_tensor *loss = yk_mean(yk_square(yk_sub(guess, yk_from_data(ratings, YK_SHAPE(BATCH, 1), NULL))));
        yk_module_zero_grad(net);
        if (yk_backward(loss) || yk_parameter_server_step(ps))
            return yk_last_error()->code;
        mean += yk_item(loss) / 100;
        if (step % 100 == 0) {
            printf("%s: step %d, mean squared error %.3f, %lld updates of all\n", yk_rpc_name(), step, mean,
                   (long long)yk_parameter_server_updates(ps));
            mean = 0;
        }
        yk_scope_end(scope);
    }
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(void)
{
    const char *role = getenv("ROLE_NAME");
    if (!role || (strcmp(role, "ps") != 0 && strcmp(role, "trainer") != 0)) {
        fprintf(stderr, "start it with: yoke run -n 2 --role ps ./parameter_server_rows : -n 3 --role trainer "
                        "./parameter_server_rows\n");
        return 2;
    }
    yk_scope program = yk_scope_begin();
    if (yk_rpc_init(NULL, NULL) || (strcmp(role, "trainer") == 0 && train()))
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* the servers answer until all have come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}

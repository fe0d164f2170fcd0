/*
 * rl_cartpole.c - reinforcement learning: an agent learns to balance a pole on a cart that observers simulate, each a
 * process of its own. The observers ask the agent for actions while their episodes run; the agent answers them when all
 * have asked, with one pass of its policy for all, and improves it after each round of episodes (REINFORCE). Follows
 * PyTorch's tutorials rpc_tutorial and rpc_async_execution.
 *
 * Random numbers belong to an episode and a step, and every pass has the same rows, so the weights do not depend on the
 * number of observers, to the last bit.
 *
 * cc -O2 rl_cartpole.c $(pkg-config --cflags --libs yoke) -lm
 * yoke run -n 4 ./a.out          worker0 is the agent, the others observe; ends when the mean reward of the last 100
 *                                episodes is above 475 of 500, or after the given number of rounds: ./a.out 10
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

enum { EPISODES = 12 /* of a round, shared out among the observers */, STEPS_MOST = 500, STATE = 4, ROUNDS_MOST = 600 };
static const double SOLVED = 475, DISCOUNT = 0.99;

/* ---- the cart: CartPole-v1 of Gymnasium (Barto, Sutton and Anderson, 1983) --------------------------------------- */

typedef struct cart {
    double x, speed, angle, turn; /* metres, metres a second, radians, radians a second */
} cart;

/* A number in [0, 1) that belongs to an episode and a position in it. Source: Steele, Lea and Flood, 2014 (splitmix).
 */
static double uniform(int64_t episode, int64_t position)
{
    uint64_t z = ((uint64_t)episode << 20) + (uint64_t)position * 0x9E3779B97F4A7C15u + 1;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static cart cart_begin(int64_t episode)
{
    double v[STATE];
    for (int i = 0; i < STATE; i++)
        v[i] = 0.1 * uniform(episode, STEPS_MOST + i) - 0.05;
    return (cart){v[0], v[1], v[2], v[3]};
}

/* Pushes the cart for a step of 0.02 s; false when it has left the track or the pole has fallen. */
static bool cart_push(cart *c, bool right)
{
    static const double gravity = 9.8, cart_mass = 1, pole_mass = 0.1, half_length = 0.5, force = 10, seconds = 0.02;
    double mass = cart_mass + pole_mass, moment = pole_mass * half_length;
    double cosine = cos(c->angle), sine = sin(c->angle);
    double push = ((right ? force : -force) + moment * c->turn * c->turn * sine) / mass;
    double turning = (gravity * sine - cosine * push) / (half_length * (4.0 / 3 - pole_mass * cosine * cosine / mass));
    double speeding = push - moment * turning * cosine / mass;
    c->x += seconds * c->speed;
    c->speed += seconds * speeding;
    c->angle += seconds * c->turn;
    c->turn += seconds * turning;
    return fabs(c->x) <= 2.4 && fabs(c->angle) <= 12 * 2 * acos(-1) / 360;
}

/* ---- the agent: an object of worker0 ----------------------------------------------------------------------------- */

typedef struct agent {
    yk_module *policy;
    yk_optimizer *adam;
    int64_t round;
    /* The round so far: by step and episode. */
    int steps;
    float states[STEPS_MOST][EPISODES][STATE];
    int64_t actions[STEPS_MOST][EPISODES];
    bool alive[STEPS_MOST][EPISODES];
    /* Observers that have asked for this step's actions, and the episodes that are still asked for. */
    yk_call *waiting[EPISODES];
    int first[EPISODES], count[EPISODES], n_waiting, asked, running;
} agent;

static yk_status agent_create(yk_call *call)
{
    yk_manual_seed((uint64_t)yk_call_int(call, 0));
    yk_module *policy =
        yk_sequential(yk_linear_create(STATE, 64, NULL), yk_tanh_create(), yk_linear_create(64, 2, NULL));
    yk_optimizer *adam = yk_adam(yk_module_parameters(policy), YK_OPTIONS(yk_adam_options, .lr = 0.01));
    agent *a = adam ? calloc(1, sizeof(*a)) : NULL;
    if (!a)
        return yk_last_error() ? yk_last_error()->code : YK_ERR_MEMORY;
    a->policy = yk_module_retain(policy);
    a->adam = yk_optimizer_retain(adam);
    yk_call_set_object(call, a);
    return YK_OK;
}

static void agent_destroy(void *object)
{
    agent *a = object;
    yk_optimizer_release(a->adam);
    yk_module_release(a->policy);
    free(a);
}

/* If all observers that still run have asked: chooses the actions of this step, and answers them. */
static yk_status agent_choose(agent *a)
{
    if (a->asked < a->running || !a->n_waiting)
        return YK_OK;
    int64_t *actions = a->actions[a->steps];
    bool recording = yk_no_grad_begin();
    yk_tensor *states = yk_from_data(a->states[a->steps], YK_SHAPE(EPISODES, STATE), NULL);
    yk_tensor *chances = yk_softmax(yk_forward(a->policy, states), 1);
    yk_no_grad_end(recording);
    for (int e = 0; e < EPISODES && chances; e++)
        actions[e] = uniform(a->round * EPISODES + e, a->steps) >= yk_get(chances, (int64_t[]){e, 0});
    if (!chances)
        return yk_last_error()->code;
    a->steps++;
    a->asked = 0;
    while (a->n_waiting > 0) {
        int i = --a->n_waiting;
        yk_value *list = yk_value_list();
        for (int e = a->first[i]; e < a->first[i] + a->count[i]; e++)
            if (yk_value_append(list, yk_value_int(actions[e])))
                return yk_last_error()->code;
        yk_call_answer(a->waiting[i], list);
    }
    return YK_OK;
}

/* Arguments: the observer's first episode, the states of its episodes, and which of them are still alive. Gives their
 * actions, when all observers have asked. */
static yk_status agent_act(yk_call *call)
{
    agent *a = yk_call_object(call);
    int first = (int)yk_call_int(call, 0), i = a->n_waiting;
    yk_tensor *states = yk_call_tensor(call, 1);
    yk_value *alive = yk_call_argument(call, 2);
    if (!states || !alive || a->steps == STEPS_MOST)
        return yk_set_error(YK_ERR_ARGUMENT, "no states of episodes, or more than %d steps", STEPS_MOST);
    a->first[i] = first;
    a->count[i] = (int)yk_value_count(alive);
    for (int e = 0; e < a->count[i]; e++) {
        a->alive[a->steps][first + e] = yk_value_as_bool(yk_value_at(alive, e));
        for (int k = 0; k < STATE; k++)
            a->states[a->steps][first + e][k] = (float)yk_get(states, (int64_t[]){e, k});
    }
    a->asked += a->count[i];
    yk_call_later(call);
    a->waiting[a->n_waiting++] = call;
    return agent_choose(a);
}

/* Argument: the number of an observer's episodes, which are over. */
static yk_status agent_leave(yk_call *call)
{
    agent *a = yk_call_object(call);
    a->running -= (int)yk_call_int(call, 0);
    return agent_choose(a);
}

static const yk_rpc_class agent_class = {
    .name = "agent",
    .create = agent_create,
    .destroy = agent_destroy,
    .methods = (const yk_rpc_method[]){{"act", agent_act}, {"leave", agent_leave}, {NULL, NULL}},
};

/* The number of steps that each episode of the round took, which is its reward. */
static void agent_rewards(const agent *a, int rewards[EPISODES])
{
    for (int e = 0; e < EPISODES; e++)
        for (rewards[e] = 0; rewards[e] < a->steps && a->alive[rewards[e]][e];)
            rewards[e]++;
}

/* One step of Adam: makes actions likelier by how much more reward than usual followed them. */
static yk_status agent_improve(agent *a, const int rewards[EPISODES])
{
    int64_t rows = (int64_t)a->steps * EPISODES, count = 0;
    float *weights = calloc((size_t)rows, sizeof(*weights));
    double sum = 0, squares = 0;
    for (int e = 0; e < EPISODES; e++) {
        double later = 0;
        for (int t = rewards[e] - 1; t >= 0; t--, count++) {
            later = 1 + DISCOUNT * later;
            weights[t * EPISODES + e] = (float)later;
            sum += later;
            squares += later * later;
        }
    }
    double mean = sum / (double)count, deviation = sqrt(squares / (double)count - mean * mean) + 1e-6;
    for (int e = 0; e < EPISODES; e++)
        for (int t = 0; t < rewards[e]; t++)
            weights[t * EPISODES + e] = (float)((weights[t * EPISODES + e] - mean) / deviation / (double)count);
    yk_tensor *states = yk_from_data(a->states, YK_SHAPE(rows, STATE), NULL);
    yk_tensor *actions = yk_from_data(a->actions, YK_SHAPE(rows, 1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *advantage = yk_from_data(weights, YK_SHAPE(rows, 1), NULL);
    free(weights);
    yk_tensor *logarithms = yk_gather_dim(yk_log_softmax(yk_forward(a->policy, states), 1), 1, actions);
    yk_tensor *loss = yk_neg(yk_sum(yk_mul(logarithms, advantage)));
    yk_optimizer_zero_grad(a->adam);
    return yk_backward(loss) || yk_optimizer_step(a->adam) ? yk_last_error()->code : YK_OK;
}

/* ---- an observer ------------------------------------------------------------------------------------------------- */

/* Arguments: the agent, the number of the round's first episode, this observer's first one in the round, and how many
 * it has. Runs them all side by side to their ends. */
static yk_status observe(yk_call *call)
{
    yk_ref *there = yk_call_ref(call, 0);
    int64_t base = yk_call_int(call, 1), first = yk_call_int(call, 2), count = yk_call_int(call, 3), left = count;
    cart carts[EPISODES];
    bool alive[EPISODES];
    if (yk_last_error() || count < 1 || count > EPISODES)
        return yk_set_error(YK_ERR_ARGUMENT, "%lld episodes", (long long)count);
    for (int64_t e = 0; e < count; e++) {
        carts[e] = cart_begin(base + first + e);
        alive[e] = true;
    }
    for (int step = 0; step < STEPS_MOST && left > 0; step++) {
        yk_scope scope = yk_scope_begin();
        float states[EPISODES][STATE];
        yk_value *living = yk_value_list();
        for (int64_t e = 0; e < count; e++) {
            cart c = alive[e] ? carts[e] : (cart){0, 0, 0, 0};
            memcpy(states[e], (float[STATE]){(float)c.x, (float)c.speed, (float)c.angle, (float)c.turn},
                   sizeof(*states));
            if (yk_value_append(living, yk_value_bool(alive[e])))
                return yk_last_error()->code;
        }
        yk_value *all = yk_value_tensor(yk_from_data(states, YK_SHAPE(count, STATE), NULL));
        yk_value *actions = yk_ref_call(there, "act", yk_args(yk_value_int(first), all, living), NULL);
        if (!actions)
            return yk_last_error()->code;
        for (int64_t e = 0; e < count; e++)
            if (alive[e] && !cart_push(&carts[e], yk_value_as_int(yk_value_at(actions, e)) == 1)) {
                alive[e] = false;
                left--;
            }
        yk_scope_end(scope);
    }
    return yk_ref_call(there, "leave", yk_args(yk_value_int(count)), NULL) ? YK_OK : yk_last_error()->code;
}

/* ---- the agent's program ----------------------------------------------------------------------------------------- */

/* Has all observers run a round of episodes. */
static yk_status round_run(yk_ref *ref, agent *a, int observers)
{
    a->steps = 0;
    a->running = EPISODES;
    memset(a->states, 0, sizeof(a->states));
    memset(a->alive, 0, sizeof(a->alive));
    yk_future *runs[EPISODES];
    for (int o = 0; o < observers; o++) {
        char worker[20];
        int first = o * EPISODES / observers, count = (o + 1) * EPISODES / observers - first;
        snprintf(worker, sizeof(worker), "worker%d", o + 1);
        runs[o] = yk_rpc_async(
            worker, "observe",
            yk_args(yk_value_ref(ref), yk_value_int(a->round * EPISODES), yk_value_int(first), yk_value_int(count)),
            NULL);
    }
    for (int o = 0; o < observers; o++)
        if (!yk_future_wait(runs[o], YK_NOT_GIVEN))
            return yk_last_error()->code;
    return YK_OK;
}

static yk_status learn(int observers, int64_t rounds)
{
    enum { LAST = 100 };
    yk_ref *ref = yk_rpc_remote("worker0", "agent", yk_args(yk_value_int(1)), NULL);
    agent *a = yk_ref_local(ref);
    int last[LAST] = {0}, seen = 0;
    double mean = 0;
    for (; a && a->round < rounds && mean <= SOLVED; a->round++) {
        yk_scope scope = yk_scope_begin();
        int rewards[EPISODES];
        if (round_run(ref, a, observers))
            return yk_last_error()->code;
        agent_rewards(a, rewards);
        for (int e = 0; e < EPISODES; e++)
            last[seen++ % LAST] = rewards[e];
        int total = 0;
        for (int i = 0; i < LAST; i++)
            total += last[i];
        mean = seen < LAST ? 0 : (double)total / LAST;
        if (a->round % 10 == 0 || a->round + 1 == rounds || mean > SOLVED)
            printf("round %lld: mean reward of the last %d episodes %.2f\n", (long long)a->round,
                   seen < LAST ? seen : LAST, (double)total / (seen < LAST ? seen : LAST));
        if (mean <= SOLVED && agent_improve(a, rewards))
            return yk_last_error()->code;
        yk_scope_end(scope);
    }
    if (!a)
        return yk_last_error()->code;
    double sum = 0;
    yk_parameters *all = yk_module_parameters(a->policy);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        sum += yk_item(yk_sum(yk_cast(yk_parameters_at(all, i), YK_F64)));
    printf("the weights' sum is %.17g\n", sum);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int observers = size ? atoi(size) - 1 : 0;
    int64_t rounds = argc > 1 ? atoll(argv[1]) : ROUNDS_MOST;
    yk_scope program = yk_scope_begin();
    if (observers < 1 || observers > EPISODES || rounds < 1) {
        fprintf(stderr, "start it with: yoke run -n 4 ./rl_cartpole [ROUNDS]; there are 1 to %d observers\n", EPISODES);
        return 2;
    }
    if (yk_rpc_register_class(&agent_class) || yk_rpc_register("observe", observe) || yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    if (rank && atoi(rank) == 0 && learn(observers, rounds))
        return yk_report_error(stderr);
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN)) /* the observers answer until the agent has come here */
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}

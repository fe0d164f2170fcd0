/*
 * references.pml - a model of how references are passed on and counted (Note [Passing references] in
 * src/rpc/rpc_ref.h), for Spin: three workers and an object of worker 0, every order of messages, and a crash of any
 * worker at any moment. tests/cli/rpc_model.sh searches all of it.
 *
 * A reference is a number. Its holder uses it (`used`), pins it for messages that carry it (`pins`), and lets go when
 * neither is left; the owner has an entry for it. Checked:
 *   - what a living worker uses has an entry, so the object is there;
 *   - a reference is refused only where the worker that passed it on, or who asks, has crashed;
 *   - in the end, when nobody uses anything any more, no entry is left.
 *
 * Each of these puts a fault in, which the search must find:
 *   -DTAKEN_TOO_EARLY      the receiver says TAKEN before the owner has answered
 *   -DDROP_WHILE_PINNED    a holder drops its reference though a message carries it
 *   -DPINS_STAY            a sender keeps its pins when their receiver has crashed
 *   -DENTRIES_STAY         the owner keeps the entries of a worker that has crashed
 */
#define WORKERS 3
#define OWNER 0
#define REFS 4   /* references made in all: the first, and three that come of passing it on */
#define PASSES 3 /* messages that carry one */

mtype = {CALL, TAKEN, ADD, ADDED, REFUSED, DROP};
mtype = {UNUSED, ADDING, THERE, BROKEN, GONE};

/* Connections: messages from w to v arrive in order. `ended` is what v knows of w. */
chan wire[9] = [8] of {mtype, byte, byte};
#define FROM_TO(w, v) wire[(w) * WORKERS + (v)]
bool ended[9];
#define ENDED(w, v) ended[(w) * WORKERS + (v)]

bool alive[WORKERS] = {true, true, true};
byte made = 1, passed = 0;

mtype is[REFS];
byte holder[REFS], origin[REFS], parent[REFS];
bool used[REFS], entry[REFS];
byte pins[12]; /* by reference and receiver */
#define PINS(r, v) pins[(r) * WORKERS + (v)]
#define PINNED(r) (PINS(r, 0) + PINS(r, 1) + PINS(r, 2) > 0)

/* The holder lets go of a reference where nothing needs it any more. */
inline let_go(n)
{
    if
#ifdef DROP_WHILE_PINNED
    :: is[n] == THERE && !used[n] ->
#else
    :: is[n] == THERE && !used[n] && !PINNED(n) ->
#endif
        is[n] = GONE;
        if
        :: holder[n] == OWNER -> entry[n] = false
        :: holder[n] != OWNER && alive[OWNER] -> FROM_TO(holder[n], OWNER)!DROP, n, 0
        :: else -> skip
        fi
    :: else -> skip
    fi
}

inline send(from, to, kind, ref, more)
{
    if
    :: alive[to] -> FROM_TO(from, to)!kind, ref, more
    :: else -> skip
    fi
}

inline pass(n, to)
{
    passed++;
    PINS(n, to)++;
    send(me, to, CALL, 0, n);
    w = 0
}

/* The receiver `me` is done with the message that carried the parent of reference r. */
inline say_taken(n)
{
    send(me, origin[n], TAKEN, parent[n], 0)
}

/* The reference p came from w: `me` makes one of its own of it, or nobody looks at the message. */
inline take(given, giver)
{
    if
    :: made < REFS ->
        r = made;
        made++;
        holder[r] = me;
        origin[r] = giver;
        parent[r] = given;
        is[r] = ADDING;
        if
        :: me == OWNER && entry[given] ->
            entry[r] = true;
            is[r] = THERE;
            used[r] = true;
            say_taken(r)
        :: me == OWNER && !entry[given] ->
            assert(!alive[giver]);
            is[r] = BROKEN;
            say_taken(r)
        :: me != OWNER && alive[OWNER] ->
            FROM_TO(me, OWNER)!ADD, r, given;
#ifdef TAKEN_TOO_EARLY
            say_taken(r)
#endif
        :: else ->
            is[r] = BROKEN;
            say_taken(r)
        fi
    :: true -> send(me, giver, TAKEN, given, 0)
    fi
}

/* A message of this type, which is in r and p, came from w. */
inline receive()
{
    if
    :: type == CALL -> take(p, w)
    :: type == TAKEN ->
        PINS(r, w)--;
        let_go(r)
    :: type == ADD ->
        if
        :: entry[p] -> entry[r] = true; send(me, w, ADDED, r, 0)
        :: else ->
            assert(!alive[holder[p]] || !alive[w]);
            send(me, w, REFUSED, r, 0)
        fi
    :: type == DROP -> entry[r] = false
    :: type == ADDED ->
        is[r] = THERE;
        used[r] = true;
#ifndef TAKEN_TOO_EARLY
        say_taken(r)
#endif
    :: type == REFUSED ->
        is[r] = BROKEN;
#ifndef TAKEN_TOO_EARLY
        say_taken(r)
#endif
    fi
}

/* The connection with w has ended; what is left of it is lost. */
inline see_end()
{
    ENDED(w, me) = true;
    do
    :: nempty(FROM_TO(w, me)) -> FROM_TO(w, me)?_, _, _
    :: empty(FROM_TO(w, me)) -> break
    od;
    r = 0;
    do
    :: r < made ->
        if
#ifndef ENTRIES_STAY
        :: me == OWNER && holder[r] == w -> entry[r] = false
#endif
#ifndef PINS_STAY
        :: holder[r] == me && PINS(r, w) > 0 ->
            PINS(r, w) = 0;
            let_go(r)
#endif
        :: holder[r] == me && w == OWNER && is[r] == ADDING ->
            is[r] = BROKEN;
            say_taken(r)
        :: else -> skip
        fi;
        r++
    :: r == made -> break
    od
}

#define USES(r) (alive[me] && holder[r] == me && is[r] == THERE && used[r])
/* Passing reference number n on, to either of the others, also to one that has crashed a moment ago. */
#define MAY_PASS(n)                                                                                                    \
    :: atomic { USES(n) && passed < PASSES && !ENDED((me + 1) % WORKERS, me) -> w = (me + 1) % WORKERS; pass(n, w) }   \
    :: atomic { USES(n) && passed < PASSES && !ENDED((me + 2) % WORKERS, me) -> w = (me + 2) % WORKERS; pass(n, w) }
#define MAY_END_USE(n) :: atomic { USES(n) -> used[n] = false; let_go(n) }

proctype worker(byte me)
{
    byte r, p, w;
    mtype type = CALL;
end:
    do
    :: atomic { /* a message, from either of the others */
        alive[me] && !ENDED((me + 1) % WORKERS, me) && nempty(FROM_TO((me + 1) % WORKERS, me)) ->
        w = (me + 1) % WORKERS;
        FROM_TO(w, me)?type, r, p;
        receive();
        r = 0; p = 0; w = 0; type = CALL
    }
    :: atomic {
        alive[me] && !ENDED((me + 2) % WORKERS, me) && nempty(FROM_TO((me + 2) % WORKERS, me)) ->
        w = (me + 2) % WORKERS;
        FROM_TO(w, me)?type, r, p;
        receive();
        r = 0; p = 0; w = 0; type = CALL
    }
    MAY_PASS(0) MAY_PASS(1) MAY_PASS(2) MAY_PASS(3)
    MAY_END_USE(0) MAY_END_USE(1) MAY_END_USE(2) MAY_END_USE(3)
    :: atomic {
        alive[me] && !alive[(me + 1) % WORKERS] && !ENDED((me + 1) % WORKERS, me) ->
        w = (me + 1) % WORKERS;
        see_end();
        r = 0; w = 0
    }
    :: atomic {
        alive[me] && !alive[(me + 2) % WORKERS] && !ENDED((me + 2) % WORKERS, me) ->
        w = (me + 2) % WORKERS;
        see_end();
        r = 0; w = 0
    }
    od
}

/* One worker crashes at some moment, or none does. */
active proctype fate()
{
    if
    :: alive[0] = false
    :: alive[1] = false
    :: alive[2] = false
    :: true
    fi
}

#define LOST(r)                                                                                                        \
    (is[r] == THERE && used[r] && alive[holder[r]] && alive[OWNER] && !ENDED(holder[r], OWNER) && !entry[r])
active proctype monitor()
{
end:
    atomic { LOST(0) || LOST(1) || LOST(2) || LOST(3) -> assert(false) }
}

#define PIN_LEFT(r) (alive[holder[r]] && PINNED(r))
active proctype last()
{
    timeout ->
    assert(!alive[OWNER] || !(entry[0] || entry[1] || entry[2] || entry[3]));
    assert(!(PIN_LEFT(0) || PIN_LEFT(1) || PIN_LEFT(2) || PIN_LEFT(3)))
}

init
{
    atomic {
        /* Worker 1 has made the object. */
        holder[0] = 1;
        is[0] = THERE;
        used[0] = true;
        entry[0] = true;
        run worker(0);
        run worker(1);
        run worker(2)
    }
}

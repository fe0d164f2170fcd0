/*
 * views.pml - a model of how the members of a run change (Note [Views] in src/elastic/members.h, Note [The side that
 * goes on] in src/launch/survivors.c), for Spin: three members, of which any may crash at any moment, the last one on a
 * node whose network may be cut, or slow. tests/cli/views_model.sh searches all of it.
 *
 * A run is a step and the action at its end, both collectives that all members of a view enter, and that each completes
 * by itself. Node 0's store holds the register of views and is always there; its launcher says who is gone. Checked:
 *   - two views of one number are equal;
 *   - members differ by one collective at most;
 *   - when a collective is completed in a view without it a process is dead, and so never writes again;
 *   - when the faults are over, whoever lives comes to the end of the run: no state is stuck, and nothing goes on for
 *     ever (a search for cycles, of which there is none at all).
 *
 * -DCRASHES=N and -DCUTS=N are the numbers of each; without cuts there is no lease. Each of these puts a fault in, which
 * the search must find:
 *   -DNO_COMPARE   a view is put into the register without a look at what it holds then
 *   -DNO_FENCE     a node that is cut off does not kill its process
 *   -DFROM_ANSWER  it counts its lease from when the answer to a renewal came, not from when the renewal was sent
 *   -DGONE_EARLY   a process that is sent SIGKILL is said to be gone before it is dead
 *   -DNO_OVER      who comes to the end does not say so to those who were with it in the last action
 */
#define MEMBERS 3
#define FAR 2 /* the member whose network is at fault */
#define END 2 /* collectives of the run */
#define VIEWS 4
#define RENEWALS 1 /* of the lease, before it is renewed for ever, or never again */
#define FENCE 2    /* its ages: the process is killed; the node is lost */
#define LOST 3

mtype = {INSIDE, STANDING, MEETING, DONE, OUT}; /* of INSIDE: a collective */
mtype phase[MEMBERS] = INSIDE;
bool alive[MEMBERS] = true, gone[MEMBERS]; /* gone: the launcher's word */
byte view[MEMBERS] = 1, done[MEMBERS], entered[MEMBERS] = 1; /* entered: in this view */
bool stood[15]; /* by view and member */
byte stands_at[15];
#define AT(v, i) ((v) * MEMBERS + (i))

byte number = 1, members = 7, seen[5]; /* the register; what members have found in it */
bool over, cut, steady;
byte crashes, cuts, renewals, since_sent, since_received, since_confirmed;
bool renewing, arrived;

#define IN(set, i) (((set) >> (i)) & 1)
#define REACHES(i) (!(cut && (i) == FAR))
#define TOGETHER(i, j) (REACHES(i) == REACHES(j) || (i) == (j))
#define MASK(i) seen[view[i]]
/* Of member j what member i needs: that it has come to the collective; that it stands or is gone; that it is there. */
#define CAME(i, j) (!IN(MASK(i), j) || (view[j] == view[i] && entered[j] > done[i] && TOGETHER(i, j)))
#define KNOWN(i, j) (!IN(MASK(i), j) || stood[AT(view[i], j)] || gone[j])
#define MET(i, j) (!IN(MASK(i), j) || (view[j] == view[i] && TOGETHER(i, j)))
#define ALL(WHAT, i) (WHAT(i, 0) && WHAT(i, 1) && WHAT(i, 2))
/* It has crashed, has given up, is lost, or has ended. */
#define FAILS(i, j)                                                                                                    \
    (IN(MASK(i), j) && (((!alive[j] || stood[AT(view[i], j)] || phase[j] == DONE) && TOGETHER(i, j)) || gone[j]))
#define ANY_FAILS(i) (FAILS(i, 0) || FAILS(i, 1) || FAILS(i, 2))
#define STAYS(i, j) ((IN(MASK(i), j) && stood[AT(view[i], j)] && !gone[j]) << (j))
#define PROPOSED(i) (STAYS(i, 0) | STAYS(i, 1) | STAYS(i, 2))
#define DEAD_OUTSIDE(i, j) (IN(MASK(i), j) || !alive[j])
#define FURTHER(i, j, most) ((IN(MASK(i), j) && stands_at[AT(view[i], j)] > most) -> stands_at[AT(view[i], j)] : most)

/* Who has found another view there does not propose its own in vain for ever. */
#ifdef NO_COMPARE
#define MAY_PROPOSE(i) true
#else
#define MAY_PROPOSE(i) (number == view[i])
#endif

proctype member(byte i)
{
    byte next, most;
    do
    :: atomic { !alive[i] || phase[i] == DONE || phase[i] == OUT -> break }
    :: atomic { alive[i] && phase[i] == INSIDE && ALL(CAME, i) ->
        assert(ALL(DEAD_OUTSIDE, i));
        done[i]++;
        entered[i] = done[i] + 1;
        phase[i] = (done[i] == END -> DONE : INSIDE);
#ifndef NO_OVER
        over = over || done[i] == END
#endif
       }
    :: atomic { alive[i] && (phase[i] == INSIDE || phase[i] == MEETING) && REACHES(i) && ANY_FAILS(i) ->
        phase[i] = STANDING;
        stood[AT(view[i], i)] = true }
    :: atomic { alive[i] && phase[i] == STANDING && REACHES(i) && over ->
        assert(done[i] == END - 1);
        phase[i] = DONE }
    :: atomic { alive[i] && phase[i] == STANDING && REACHES(i) && MAY_PROPOSE(i) && ALL(KNOWN, i) &&
        PROPOSED(i) != MASK(i) ->
        next = PROPOSED(i) }
#ifdef NO_COMPARE
       atomic { number = view[i] + 1; members = next; next = 0 }
#else
       atomic {
        if
        :: number == view[i] -> number++; members = next
        :: else -> skip
        fi;
        next = 0 }
#endif
    :: atomic { alive[i] && phase[i] == STANDING && REACHES(i) && number != view[i] ->
        assert(seen[number] == 0 || seen[number] == members);
        seen[number] = members;
        if
        :: IN(members, i) && number == view[i] + 1 ->
            view[i] = number;
            stands_at[AT(number, i)] = done[i] + 1;
            entered[i] = 0;
            phase[i] = MEETING
        :: else -> phase[i] = OUT
        fi }
    :: atomic { alive[i] && phase[i] == MEETING && ALL(MET, i) ->
        most = 0;
        most = FURTHER(i, 0, most);
        most = FURTHER(i, 1, most);
        most = FURTHER(i, 2, most);
        assert(most - 1 <= done[i] + 1);
        done[i] = most - 1;
        entered[i] = most;
        most = 0;
        phase[i] = INSIDE }
    od
}

/* Processes crash, and their launcher says so when they are dead. */
proctype launchers()
{
    byte one;
end:
    do
    :: atomic { crashes < CRASHES ->
        crashes++;
        select(one : 0 .. 2);
        if
        :: one == 1 && alive[0] -> goto end /* it is as if 0 had */
        :: alive[one] && phase[one] != DONE && phase[one] != OUT && !gone[one] -> skip
        :: else -> goto end
        fi }
#ifdef GONE_EARLY
       gone[one] = true;
       alive[one] = false
#else
       alive[one] = false;
       atomic { one != FAR || !cut || gone[FAR] -> gone[one] = true; one = 0 } /* else the lease says it */
#endif
    od
}

#define OLDER(age, most) age = (age < most -> age + 1 : age)
#define FENCE_IS_DUE (alive[FAR] && phase[FAR] != DONE && since_confirmed >= FENCE)
/* Time and renewals do not matter any more: states that differ in nothing else become one. */
#define FORGET_TIME since_sent = 0; since_received = 0; since_confirmed = 0; renewing = false; arrived = false
/* The network of the last node, its lease, and time, which goes on while nothing has to be done. */
proctype network()
{
end:
    do
    :: atomic { !steady && !cut && cuts < CUTS -> cuts++; cut = true }
    :: atomic { !steady && cut -> cut = false }
    :: atomic { !steady && !cut && !FENCE_IS_DUE && alive[FAR] && !gone[FAR] && since_received < LOST ->
        steady = true; /* it is renewed for ever */
        FORGET_TIME }
    :: atomic { !steady && !renewing && renewals < RENEWALS && alive[FAR] ->
        renewals++;
        renewing = true }
    :: atomic { !steady && renewing && !arrived && !cut -> arrived = true; since_received = 0 }
    :: atomic { !steady && arrived && !cut && alive[FAR] ->
        renewing = false;
        arrived = false;
#ifdef FROM_ANSWER
        since_confirmed = 0;
#else
        since_confirmed = since_sent;
#endif
        since_sent = 0 }
#ifdef NO_FENCE
    :: atomic { !steady && since_received < LOST ->
#else
    :: atomic { !steady && FENCE_IS_DUE -> alive[FAR] = false; since_sent = 0; since_confirmed = 0 }
    :: atomic { !steady && !FENCE_IS_DUE && since_received < LOST ->
#endif
        since_received++;
        if
        :: renewing && alive[FAR] -> OLDER(since_sent, FENCE)
        :: else -> skip
        fi;
        if
        :: alive[FAR] -> OLDER(since_confirmed, FENCE)
        :: else -> skip
        fi }
    :: atomic { !steady && since_received >= LOST && phase[FAR] != DONE ->
        gone[FAR] = true;
        steady = true;
        FORGET_TIME }
    od
}

init
{
    atomic {
        seen[1] = 7;
        run member(0);
        run member(1);
        run member(2);
        run launchers()
#if CUTS
        ; run network()
#endif
    }
}

/*
 * keeper.pml - a model of a register of views that outlives the launcher which keeps it (docs/elastic.md, *Node 0*), for
 * Spin: three launchers, each with a replica, of which any may crash, and the first keeper may be cut off from the
 * others. tests/cli/views_model.sh searches all of it. The code is src/net/keeper.c; the value is all of the store. Any
 * launcher may ask for a term, also two for the same.
 *
 * A keeper has a *term*. It answers a compare-and-swap when a majority has taken the new view into its replicas, and any
 * other question from its own memory; neither when its lease is over. Who hears nothing of it for longer promises
 * another launcher a later term; with the promises of a majority that one takes the newest of their replicas, has a
 * majority take it in its term, and is the keeper. Checked:
 *   - two views of one number are equal, as far as a member has had an answer with them;
 *   - a keeper answers nothing when one of a later term has answered.
 *
 * -DCRASHES=N and -DCUTS=N are the numbers of each, -DVIEWS=N and -DBEATS=N those of views, and of beats in time, -DTERMS=N the last term that is asked for. Each of these puts a fault in, which the search must find:
 *   -DNO_COMPARE   a launcher takes a view without a look at the term that it has promised to another
 *   -DNO_NEWEST    a new keeper begins with the view that itself knows
 *   -DNO_FENCE     a keeper answers when its lease is over
 *   -DFROM_ANSWER  it counts its lease from when the answer to its beat came, not from when the beat was sent
 *   -DPROMISE_FED  a launcher promises a keeper at once that lifts its term, although another one has given it something
 *   -DYIELD_KEPT   a launcher gives its own promise of a term away although it has a majority of that, and so does the
 *                  other that asks for it
 *
 * A keeper that learns of a promise of a later term lays its own down, and asks for one above (net/keeper.c, Note [A later
 * term for a keeper that lives]). Who has the promise of a launcher may ask it for a later one at any time.
 */
#define NODES 3
#ifndef VIEWS
#define VIEWS 2
#endif
#ifndef BEATS /* of the first keeper to each other, before there is none any more */
#define BEATS 1
#endif
#ifndef TERMS /* the last that is asked for */
#define TERMS 3
#endif
#define FENCE 2 /* ages of a beat: the keeper answers nothing any more; another is looked for */
#define LOST 3

bool alive[NODES] = true, cut;
byte whom[NODES]; /* the launcher that has the promise */
byte promised[NODES] = 1, held_term[NODES] = 1, held[NODES] = 1, held_value[NODES] = 1; /* replicas; held: the number */
byte keeps[NODES];                                        /* the term of which it is the keeper; 0: of none */
byte term[NODES], votes[NODES], acks[NODES];              /* of a candidate, or a view that is being written */
byte best_term[NODES], number[NODES], value[NODES]; /* that it writes, or has written */
bool writes[NODES], lifts[NODES]; /* lifts: it has kept an earlier term, which it has laid down */
byte answered = 1, answered_by, view[5]; /* the latest term of an answer; the views that members have seen */
byte crashes, cuts, beats[NODES], since_sent[NODES], since_answer[NODES], since_heard[NODES];
mtype = {NONE, SENT, HEARD};
mtype beat[NODES] = NONE;

#define REACHES(i, j) (!cut || ((i) == 0) == ((j) == 0))
#define MAJORITY(set) ((set) == 3 || (set) == 5 || (set) == 6 || (set) == 7)
#define IN(set, i) (((set) >> (i)) & 1)
/* The first keeper has had no answer to a beat for too long; the terms of others end with them. */
#define OVER(i) ((i) == 0 && keeps[0] == 1 && since_answer[1] >= FENCE && since_answer[2] >= FENCE)
#ifdef NO_FENCE
#define ANSWERS(i) true
#else
#define ANSWERS(i) (!OVER(i) && promised[i] == keeps[i] && whom[i] == i)
#endif
/* It may promise itself to another keeper. */
#define FREE(j)                                                                                                        \
    ((whom[j] == j && (j != 0 || keeps[0] == 0 || OVER(0))) || (promised[j] == 1 && j != 0 && since_heard[j] >= LOST) || \
     (whom[j] != j && promised[j] != 1 && !alive[whom[j]]))

#ifdef PROMISE_FED
#define UNFED(j) true
#else
#define UNFED(j) (held_term[j] != promised[j])
#endif
/* j promises i a later term: where it has taken nothing of who has its promise, time alone keeps it from that. */
#define PROMISES(j, i) (FREE(j) || (whom[j] == i && !keeps[j]) || (!keeps[j] && UNFED(j)))
/* j, which asks for the same term, gives its own promise to i: net/keeper.c, Note [Two that ask for one term]. */
#ifdef YIELD_KEPT
#define YIELDS(j, i) (term[j] == term[i] && promised[j] == term[i] && whom[j] == j)
#else
#define YIELDS(j, i) (votes[j] && !writes[j] && !keeps[j] && term[j] == term[i] && promised[j] == term[i] && whom[j] == j)
#endif
#define OWN(i) (promised[i] == term[i] && whom[i] == i)

inline ask(who, other)
{
    promised[other] = term[who];
    whom[other] = who;
    votes[who] = votes[who] | (1 << other);
#ifndef NO_NEWEST
    if
    :: held_term[other] > best_term[who] || (held_term[other] == best_term[who] && held[other] > number[who]) ->
        best_term[who] = held_term[other];
        number[who] = held[other];
        value[who] = held_value[other]
    :: else -> skip
    fi
#endif
}

inline take(who, other)
{
    if
    :: promised[other] <= term[who] -> promised[other] = term[who]; whom[other] = who
    :: else -> skip
    fi;
    held_term[other] = term[who];
    held[other] = number[who];
    held_value[other] = value[who];
    acks[who] = acks[who] | (1 << other)
}

#ifdef NO_COMPARE
#define TAKES(i, j) true
#else
#define TAKES(i, j) (promised[j] < term[i] || (promised[j] == term[i] && whom[j] == i))
#endif

proctype launcher(byte i)
{
    byte j;
end:
    do
    :: atomic { !alive[i] -> break }
    /* a candidate */
    :: atomic { alive[i] && !keeps[i] && !votes[i] && !writes[i] && (FREE(i) || UNFED(i)) && promised[i] < TERMS ->
        term[i] = promised[i] + 1;
        best_term[i] = held_term[i];
        number[i] = held[i];
        value[i] = held_value[i];
        ask(i, i) }
    /* a keeper that lifts its term */
    :: atomic { alive[i] && keeps[i] && OWN(i) && term[i] < TERMS ->
        select(j : 0 .. 2);
        if
        :: j != i && alive[j] && REACHES(i, j) && promised[j] > term[i] ->
            term[i] = promised[j] + 1;
            keeps[i] = 0;
            lifts[i] = true;
            writes[i] = false;
            acks[i] = 0;
            best_term[i] = held_term[i];
            number[i] = held[i];
            value[i] = held_value[i];
            ask(i, i)
        :: else -> skip
        fi;
        j = 0 }
    :: atomic { alive[i] && votes[i] && !writes[i] ->
        select(j : 0 .. 2);
        if
        :: alive[j] && REACHES(i, j) && !IN(votes[i], j) && promised[j] < term[i] && PROMISES(j, i) -> ask(i, j)
        :: alive[j] && REACHES(i, j) && !IN(votes[i], j) && YIELDS(j, i) ->
            votes[j] = 0;
            ask(i, j)
        :: else -> skip
        fi;
        j = 0 }
    :: atomic { alive[i] && !writes[i] && MAJORITY(votes[i]) && OWN(i) ->
        votes[i] = 0;
        best_term[i] = 0;
        writes[i] = true }
    :: atomic { alive[i] && (votes[i] || writes[i] || keeps[i] || term[i]) && term[i] && !OWN(i) -> /* it is late */
        votes[i] = 0;
        acks[i] = 0;
        writes[i] = false;
        term[i] = 0;
        best_term[i] = 0;
        number[i] = 0;
        value[i] = 0;
        lifts[i] = false;
        keeps[i] = 0 }
    /* a view is written, and answered */
    :: atomic { alive[i] && writes[i] ->
        select(j : 0 .. 2);
        if
        :: alive[j] && REACHES(i, j) && !IN(acks[i], j) && TAKES(i, j) -> take(i, j)
        :: else -> skip
        fi;
        j = 0 }
    :: atomic { alive[i] && writes[i] && MAJORITY(acks[i]) && OWN(i) && (!keeps[i] || ANSWERS(i)) ->
        assert(term[i] > answered || (term[i] == answered && answered_by == i));
        assert(view[number[i]] == 0 || view[number[i]] == value[i]);
        view[number[i]] = value[i];
        answered = term[i];
        answered_by = i;
        keeps[i] = term[i];
        lifts[i] = false;
        writes[i] = false;
        acks[i] = 0 }
    /* a keeper */
    :: atomic { alive[i] && keeps[i] && !writes[i] && ANSWERS(i) && number[i] < VIEWS ->
        number[i]++;
        value[i] = term[i];
        writes[i] = true }
    :: atomic { alive[i] && keeps[i] && ANSWERS(i) && answered > keeps[i] -> assert(false) }
    od
}

#define OLDER(age, most) age = (age < most -> age + 1 : age)
#define FORGET_TIME                                                                                                    \
    since_heard[1] = LOST; since_heard[2] = LOST; since_answer[1] = FENCE; since_answer[2] = FENCE; since_sent[1] = 0; \
    since_sent[2] = 0; beat[1] = NONE; beat[2] = NONE; beats[1] = BEATS; beats[2] = BEATS
/* Crashes, the network, and time; beats between the first keeper and the others. */
proctype world()
{
    byte j;
end:
    do
    :: atomic { crashes < CRASHES ->
        select(j : 0 .. 2);
        if
        :: alive[j] ->
            alive[j] = false;
            crashes++;
            if
            :: j == 0 -> keeps[0] = 0
            :: else -> skip
            fi
        :: else -> skip
        fi;
        j = 0 }
    :: atomic { cuts < CUTS && !cut -> cut = true; cuts++ }
    :: atomic { cut -> cut = false }
    :: atomic { alive[0] && keeps[0] == 1 ->
        select(j : 1 .. 2);
        if
        :: beat[j] == NONE && beats[j] < BEATS -> beat[j] = SENT; beats[j]++; since_sent[j] = 0
        :: beat[j] == SENT && !cut && alive[j] && promised[j] == 1 -> beat[j] = HEARD; since_heard[j] = 0
        :: beat[j] == HEARD && !cut ->
            beat[j] = NONE;
#ifdef FROM_ANSWER
            since_answer[j] = 0;
#else
            since_answer[j] = since_sent[j];
#endif
            since_sent[j] = 0
        :: else -> skip
        fi;
        j = 0 }
    :: atomic { keeps[0] != 1 && (since_heard[1] + since_heard[2] < 2 * LOST || beats[1] + beats[2] < 2 * BEATS) ->
        FORGET_TIME } /* it does not matter any more: states that differ in nothing else become one */
    :: atomic { keeps[0] == 1 && (since_heard[1] < LOST || since_heard[2] < LOST) ->
        OLDER(since_heard[1], LOST);
        OLDER(since_heard[2], LOST);
        OLDER(since_answer[1], FENCE);
        OLDER(since_answer[2], FENCE);
        since_sent[1] = (beat[1] != NONE && since_sent[1] < FENCE -> since_sent[1] + 1 : since_sent[1]);
        since_sent[2] = (beat[2] != NONE && since_sent[2] < FENCE -> since_sent[2] + 1 : since_sent[2]) }
    od
}

init
{
    atomic {
        view[1] = 1;
        keeps[0] = 1;
        term[0] = 1;
        number[0] = 1;
        value[0] = 1;
        run launcher(0);
        run launcher(1);
        run launcher(2);
        run world()
    }
}

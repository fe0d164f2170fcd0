/*
 * module_graph.c - a network as TensorBoard's graph. Layer: observe.
 *
 * The model is called once while operations are recorded. A module without children is one node, whose sources are the
 * tensors that its forward was given. What the tape has between the outputs of a module with children and its inputs,
 * and no child has claimed, are operations of that module: each is a node below it. Children end before their parents,
 * so each operation is claimed by the innermost module. A source is known by the operation that made it, since who that
 * belongs to may turn out later, or by the tensor itself, where a module has given back what it was given.
 */
#include <stdlib.h>
#include <string.h>

#include <yoke/ops.h>

#include "autograd/node.h"
#include "nn/module.h"
#include "nn/state_dict.h"
#include "observe/module_graph.h"
#include "tensor/tensor.h"

/* The origin of one input of a node of the graph. */
typedef struct graph_source {
    const yk__node *node; /* of the tape; NULL: it is `from` */
    int from;             /* index of a node of the graph */
} graph_source;

typedef struct graph_node {
    char *name;
    const char *op;
    yk_module *module; /* NULL: an operation, or an input */
    graph_source *sources;
    int n_sources;
} graph_node;

typedef struct graph_trace graph_trace;
/* A module of the tree, under its first path. */
typedef struct traced_module {
    graph_trace *trace;
    yk_module *module;
    char *path;
    uint64_t hook;
    bool training;
} traced_module;

struct graph_trace {
    graph_node *nodes;
    int n_nodes, node_room;
    traced_module *modules;
    int n_modules, module_room;
    struct claimed {
        const yk__node *node;
        int owner;
    } * claimed;
    int n_claimed, claimed_room;
    struct given {
        yk_tensor *tensor; /* retained, with the tape behind it */
        int owner;
    } * given;
    int n_given, given_room;
};

/* Room for one more element of a list; false without memory. */
static bool list_grow(void *list, int count, int *room, size_t size)
{
    if (count < *room)
        return true;
    int more = *room ? 2 * *room : 32;
    void *grown = yk__realloc(*(void **)list, (size_t)more * size);
    if (!grown)
        return false;
    *(void **)list = grown;
    *room = more;
    return true;
}

/* A node of this name, or with "_1" where there is one already; -1 without memory. */
static int node_add(graph_trace *t, const char *path, const char *name, const char *op, yk_module *module)
{
    const char *slash = *path && *name ? "/" : "";
    char *text = yk__format("%s%s%s", path, slash, name);
    for (int number = 1, i = 0; text && i < t->n_nodes; i++) {
        if (strcmp(t->nodes[i].name, text) != 0)
            continue;
        free(text);
        text = yk__format("%s%s%s_%d", path, slash, name, number++);
        i = -1;
    }
    if (!text || !list_grow(&t->nodes, t->n_nodes, &t->node_room, sizeof(*t->nodes))) {
        free(text);
        return -1;
    }
    t->nodes[t->n_nodes] = (graph_node){.name = text, .op = op, .module = module};
    return t->n_nodes++;
}

static bool source_add(graph_node *n, graph_source source)
{
    graph_source *sources = yk__realloc(n->sources, (size_t)(n->n_sources + 1) * sizeof(*sources));
    if (!sources)
        return false;
    n->sources = sources;
    n->sources[n->n_sources++] = source;
    return true;
}

static int claimed_by(const graph_trace *t, const yk__node *node)
{
    for (int i = t->n_claimed - 1; i >= 0; i--) {
        if (t->claimed[i].node == node)
            return t->claimed[i].owner;
    }
    return -1;
}

static bool claim(graph_trace *t, const yk__node *node, int owner)
{
    if (!list_grow(&t->claimed, t->n_claimed, &t->claimed_room, sizeof(*t->claimed)))
        return false;
    t->claimed[t->n_claimed++] = (struct claimed){node, owner};
    return true;
}

static bool tensor_given(graph_trace *t, yk_tensor *x, int owner)
{
    if (!list_grow(&t->given, t->n_given, &t->given_room, sizeof(*t->given)))
        return false;
    t->given[t->n_given++] = (struct given){yk_tensor_retain(x), owner};
    return true;
}

/* Adds what made a tensor to the sources of a node; nothing where that is not known, as of a constant. */
static bool tensor_source(const graph_trace *t, graph_node *n, const yk_tensor *x)
{
    for (int i = t->n_given - 1; x && i >= 0; i--) {
        if (t->given[i].tensor == x)
            return source_add(n, (graph_source){.from = t->given[i].owner});
    }
    return !x || !x->node || source_add(n, (graph_source){.node = x->node});
}

/* ---- one forward of a module ------------------------------------------------------------------------------------- */
typedef struct tape_walk {
    const yk__node **list; /* those that were found, each once; a node is looked at when its turn comes */
    int count, room;
    bool through; /* what others have claimed is passed through, to what is behind it */
} tape_walk;

static bool walk_add(graph_trace *t, tape_walk *w, const yk__node *node, yk_tensor *const *inputs, int n_inputs)
{
    if (!node || !node->op || (!w->through && claimed_by(t, node) >= 0))
        return true;
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] && inputs[i]->node == node)
            return true;
    }
    for (int i = 0; i < w->count; i++) {
        if (w->list[i] == node)
            return true;
    }
    if (!list_grow(&w->list, w->count, &w->room, sizeof(*w->list)))
        return false;
    w->list[w->count++] = node;
    return true;
}

/* Finds what the tape has between inputs and outputs and nobody has claimed. */
static bool tape_find(graph_trace *t, tape_walk *w, yk_tensor *const *inputs, int n_inputs, yk_tensor *const *outputs,
                      int n_outputs)
{
    bool fine = true;
    for (int i = 0; i < n_outputs && fine; i++)
        fine = !outputs[i] || walk_add(t, w, outputs[i]->node, inputs, n_inputs);
    for (int at = 0; at < w->count && fine; at++) {
        for (int i = 0; i < w->list[at]->n_inputs && fine; i++)
            fine = walk_add(t, w, w->list[at]->edges[i].node, inputs, n_inputs);
    }
    return fine;
}

/* The operations of a module with children. The walk began at the end, and names are given from the begin on. */
static bool operations_claim(graph_trace *t, const char *path, const tape_walk *w)
{
    bool fine = true;
    for (int at = w->count - 1; at >= 0 && fine; at--) {
        if (claimed_by(t, w->list[at]) >= 0)
            continue;
        int owner = node_add(t, path, w->list[at]->head.name, w->list[at]->head.name, NULL);
        fine = owner >= 0 && claim(t, w->list[at], owner);
        for (int i = 0; i < w->list[at]->n_inputs && fine; i++) {
            const yk__node *from = w->list[at]->edges[i].node;
            if (from && !from->op) { /* a leaf: an input of the model, or a parameter */
                fine = tensor_source(t, &t->nodes[owner], from->leaf);
            } else if (from) {
                fine = source_add(&t->nodes[owner], (graph_source){.node = from});
            }
        }
    }
    return fine;
}

static yk_status after_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs,
                               void *user)
{
    const traced_module *traced = user;
    graph_trace *t = traced->trace;
    tape_walk w = {.through = yk_module_child_count(m) > 0};
    bool fine = tape_find(t, &w, inputs, n_inputs, outputs, n_outputs);
    if (fine && yk_module_child_count(m) > 0) {
        fine = operations_claim(t, traced->path, &w);
    } else if (fine) {
        int owner = node_add(t, traced->path, "", m->shown_name, m);
        fine = owner >= 0;
        for (int i = 0; i < n_inputs && fine; i++)
            fine = tensor_source(t, &t->nodes[owner], inputs[i]);
        for (int i = 0; i < w.count && fine; i++)
            fine = claim(t, w.list[i], owner);
        for (int i = 0; i < n_outputs && fine; i++) {
            fine = !outputs[i] || tensor_given(t, outputs[i], owner);
            if (fine && !w.count && outputs[i] && outputs[i]->node) /* as it was given: from here on it is this one's */
                fine = claim(t, outputs[i]->node, owner);
        }
    }
    free(w.list);
    return fine ? YK_OK : yk__error_code();
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */
static bool modules_list(graph_trace *t, yk_module *m, const char *path)
{
    for (int i = 0; i < t->n_modules; i++) {
        if (t->modules[i].module == m)
            return true;
    }
    char *own = yk__strdup(path);
    bool fine = own && list_grow(&t->modules, t->n_modules, &t->module_room, sizeof(*t->modules));
    if (!fine) {
        free(own);
        return false;
    }
    t->modules[t->n_modules++] =
        (traced_module){.trace = t, .module = m, .path = own, .training = yk_module_is_training(m)};
    for (int64_t i = 0; i < yk_module_child_count(m) && fine; i++) {
        char *child = yk__format("%s/%s", path, yk_module_child_name(m, i));
        fine = child && modules_list(t, yk_module_child(m, i), child);
        free(child);
    }
    return fine;
}

/* Calls the model with hooks on all modules. */
static yk_status model_trace(graph_trace *t, yk_module *model, yk_tensor *const *inputs, int n_inputs)
{
    yk_tensor *taken[YK__GRAPH_INPUTS], *output = NULL;
    yk_status status = YK_OK;
    bool before = yk_set_grad_enabled(true);
    yk_module_eval(model);
    for (int i = 0; i < n_inputs && !status; i++) {
        char name[24] = "input";
        if (i)
            snprintf(name, sizeof(name), "input_%d", i);
        taken[i] = inputs[i] ? yk_detach(inputs[i]) : NULL;
        if (inputs[i] &&
            (!taken[i] || (yk_dtype_is_floating(yk_tensor_dtype(taken[i])) && yk_set_requires_grad(taken[i], true))))
            status = yk__error_code();
        int owner = status ? -1 : node_add(t, "", name, "Placeholder", NULL);
        if (!status && (owner < 0 || (taken[i] && !tensor_given(t, taken[i], owner))))
            status = yk__error_code();
    }
    for (int i = 0; i < t->n_modules && !status; i++) {
        traced_module *m = &t->modules[i];
        m->hook = yk_module_register_forward_hook(m->module, after_forward, m);
        status = m->hook ? YK_OK : yk__error_code();
    }
    if (!status)
        status = yk_forward_list(model, taken, n_inputs, &output, 1);
    int end = status ? -1 : node_add(t, "", "output", "Identity", NULL);
    if (!status && (end < 0 || !tensor_source(t, &t->nodes[end], output)))
        status = yk__error_code();
    for (int i = 0; i < t->n_modules; i++) {
        if (t->modules[i].hook && yk_module_hook_remove(t->modules[i].module, t->modules[i].hook) && !status)
            status = yk__error_code();
        yk_module_train(t->modules[i].module, t->modules[i].training); /* parents come before their children */
    }
    yk_set_grad_enabled(before);
    return status;
}

/* ---- the message ------------------------------------------------------------------------------------------------- */
/* The sizes of a module's own parameters as attributes. */
static void parameters_write(yk_module *m, yk__proto *node)
{
    yk__proto attribute = {0}, value = {0};
    char text[200];
    yk_parameters *parameters = yk_module_parameters(m);
    const yk_state_dict *list = yk__parameters_list(parameters);
    for (int64_t i = 0; i < yk__state_dict_count(list); i++) {
        const char *name = yk__state_dict_name(list, i);
        if (strchr(name, '.')) /* of a child */
            continue;
        yk__proto_text(&value, 2, yk_shape_format(yk__state_dict_at(list, i), text, sizeof(text)));
        yk__proto_text(&attribute, 1, name);
        yk__proto_message(&attribute, 2, &value);
        yk__proto_message(node, 5, &attribute);
    }
}

static void node_write(const graph_trace *t, const graph_node *n, yk__proto *graph)
{
    yk__proto node = {0};
    yk__proto_text(&node, 1, n->name);
    yk__proto_text(&node, 2, n->op);
    for (int i = 0; i < n->n_sources; i++) {
        const graph_source *s = &n->sources[i];
        int from = s->node ? claimed_by(t, s->node) : s->from;
        if (from >= 0 && &t->nodes[from] != n)
            yk__proto_text(&node, 3, t->nodes[from].name);
    }
    if (n->module)
        parameters_write(n->module, &node);
    yk__proto_message(graph, 1, &node);
}

/* The modules that took no part; of those of a traced model, where others are named by what is in them, without
 * children alone. */
static void modules_write(graph_trace *t, bool traced, yk__proto *graph)
{
    for (int i = 0; i < t->n_modules; i++) {
        const traced_module *m = &t->modules[i];
        bool there = traced && yk_module_child_count(m->module) > 0;
        for (int k = 0; k < t->n_nodes && !there; k++)
            there = t->nodes[k].module == m->module;
        if (there)
            continue;
        const graph_node alone = {.name = m->path, .op = m->module->shown_name, .module = m->module};
        node_write(t, &alone, graph);
    }
}

yk_status yk__module_graph(yk_module *model, yk_tensor *const *inputs, int n_inputs, yk__proto *graph)
{
    graph_trace t = {0};
    yk_status status = modules_list(&t, model, model->shown_name) ? YK_OK : yk__error_code();
    if (!status && n_inputs > 0)
        status = model_trace(&t, model, inputs, n_inputs);
    for (int i = 0; i < t.n_nodes && !status; i++)
        node_write(&t, &t.nodes[i], graph);
    if (!status)
        modules_write(&t, n_inputs > 0, graph);
    for (int i = 0; i < t.n_nodes; i++) {
        free(t.nodes[i].name);
        free(t.nodes[i].sources);
    }
    for (int i = 0; i < t.n_modules; i++)
        free(t.modules[i].path);
    for (int i = 0; i < t.n_given; i++)
        yk_tensor_release(t.given[i].tensor);
    free(t.nodes);
    free(t.modules);
    free(t.claimed);
    free(t.given);
    return status;
}

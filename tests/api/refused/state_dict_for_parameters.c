/* refused: a state dict is no list of parameters */
#include <yoke/yoke.h>

int main(void)
{
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_lenet(NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_state_dict(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_scope_end(scope);
    return sgd == NULL;
}
